"""Tests of the runner: results that differ from the list of accepted differences are a fault."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
loader = importlib.machinery.SourceFileLoader("run", str(HERE / "run"))
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))  # type: ignore[arg-type]
sys.modules["run"] = run
loader.exec_module(run)

LIST = """suite: Some
version: some 1

reason: Because.
page: page.md#a-heading
one
two
"""


class RunTests(unittest.TestCase):
    """Lists of accepted differences, and results of suites, in temporary files."""

    def known(self, text: str = LIST, page: str = "# A heading\n") -> run.accepted.Accepted:
        """Reads a list of accepted differences that lies beside this page."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        home = Path(folder.name)
        (home / "page.md").write_text(page)
        (home / "accepted.txt").write_text(text)
        return run.accepted.read(home / "accepted.txt", home)

    def faults(self, *lines: str, gate: bool = False) -> list[str]:
        """Returns the faults in these lines of results, with `gate` as in `run --gate`."""
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("\n".join(lines))
            file.flush()
            return run.faults("some", run.Results.read(Path(file.name)), self.known(), gate)

    def test_differences_that_are_accepted_are_no_faults(self) -> None:
        self.assertEqual(self.faults("version\tsome 1", "passed\tthree", "failed\tone\twhy", "failed\ttwo\twhy"), [])

    def test_a_failure_that_is_not_listed_is_a_fault(self) -> None:
        [fault] = self.faults("passed\tfour", "failed\tone", "failed\ttwo", "failed\tthree\twhy")
        self.assertIn("not accepted: three: why", fault)

    def test_a_listed_test_that_passes_is_a_fault(self) -> None:
        [fault] = self.faults("passed\tone", "failed\ttwo")
        self.assertIn("passed: one", fault)

    def test_a_test_that_fails_with_one_of_its_parameters_has_failed(self) -> None:
        self.assertEqual(self.faults("passed\tthree", "passed\tone", "failed\tone", "failed\ttwo"), [])

    def test_a_listed_test_that_does_not_run_is_a_fault_in_a_full_run_of_its_version_only(self) -> None:
        [fault] = self.faults("version\tsome 1", "passed\tthree", "failed\tone")
        self.assertIn("did not run: two", fault)
        self.assertEqual(self.faults("version\tsome 2", "passed\tthree", "failed\tone"), [])
        self.assertEqual(self.faults("version\tsome 1", "passed\tthree", "failed\tone", gate=True), [])

    def test_a_suite_in_which_nothing_passes_is_a_fault(self) -> None:
        [fault] = self.faults("failed\tone", "failed\ttwo")
        self.assertIn("no test passed", fault)

    def test_a_reason_needs_a_page_with_its_heading(self) -> None:
        for page in ("# Another heading\n", ""):
            with self.assertRaises(SystemExit):
                self.known(page=page)
        with self.assertRaises(SystemExit):
            self.known(LIST.replace("page.md", "no-page.md"))

    def test_a_test_has_one_reason(self) -> None:
        with self.assertRaises(SystemExit):
            self.known(LIST + "\nreason: Because.\npage: page.md\none\n")


if __name__ == "__main__":
    unittest.main()
