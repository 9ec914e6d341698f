"""A run that dies is counted: $(../../scripts/python) test_run.py"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import evidence
import run
from machines import Broken, Deployment


class Dead(Deployment):
    """A deployment whose servers do not come."""

    async def start(self) -> None:
        """Fails."""
        raise Broken("not in time: a server answers")


class Runs(unittest.IsolatedAsyncioTestCase):
    """The end of a run whose play dies."""

    async def test_a_run_that_dies_has_found_something_and_says_so(self) -> None:
        options = argparse.Namespace(seed=1, seconds=1, through="one", only="none", plant=None)
        one = run.Run(options, Dead(None), Path("none"), None)
        with contextlib.redirect_stderr(io.StringIO()) as told:
            found = await one.play()
        self.assertEqual(found, ["the run died: Broken('not in time: a server answers')"])
        self.assertIn("Traceback", told.getvalue())
        self.assertEqual(one.where(), ["one", "no server, died"])
        self.assertEqual(one.counts()[-1], 1)
        self.assertTrue(one.report().endswith("| one | no server, died | 0.0 | 0 | 0 | 0 | 0 | 1 |"))

    def test_runs_that_died_have_a_row_of_their_own(self) -> None:
        page = "<!-- chaos -->\n\n| a | b |\n|---|--:|\n| one | Redis | 1 | 2 |\n\n<!-- end of chaos -->\n"
        at = Path(self.enterContext(tempfile.TemporaryDirectory())) / "page.md"
        at.write_text(page)
        self.addCleanup(setattr, evidence, "PAGE", evidence.PAGE)
        evidence.PAGE = at
        evidence.keep("chaos", ["one", "Redis, died"], [3.0])
        self.assertIn("| one | Redis | 1 | 2 |\n| one | Redis, died | 1 | 3.0 |", at.read_text())


if __name__ == "__main__":
    unittest.main()
