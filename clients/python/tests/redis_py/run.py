"""Runs redis-py's own tests of its lock with DLock.

    python run.py DIRECTORY

DIRECTORY is redis-py's source distribution. The tests run from a copy in which only the class that they pass as
`lock_class` is another one. `differences.txt` lists what is expected to fail.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

FILES = {"tests/test_lock.py": "redis_dlock", "tests/test_asyncio/test_lock.py": "redis_dlock.asyncio"}
LOCK_CLASS = 'kwargs["lock_class"] = Lock\n'
DIFFERENCES = Path(__file__).with_name("differences.txt")


class Outcomes:
    """A plugin of pytest that remembers what failed."""

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.passed: set[str] = set()
        self.other: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for each phase of each test."""
        name = re.sub(r"\[.*\]$", "", report.nodeid)
        if report.when == "call" and report.passed:
            self.passed.add(name)
        elif report.when == "call" and report.failed:
            self.failed.add(name)
        elif not report.passed:
            self.other[name] = f"{report.when}: {report.longreprtext}"


def expected() -> dict[str, str]:
    """Returns the tests that fail, with the reasons."""
    lines = [line for line in DIFFERENCES.read_text().splitlines() if line and not line.startswith("#")]
    return dict(tuple(line.split(": ", 1)) for line in lines)  # type: ignore[misc]


def prepare(distribution: Path, copy: Path) -> None:
    """Copies the tests, with another lock class."""
    shutil.copytree(distribution / "tests", copy / "tests")
    for file, module in FILES.items():
        text = (copy / file).read_text()
        assert text.count(LOCK_CLASS) == 1, f"{file} selects its lock class in another way"
        ours = f'kwargs["lock_class"] = __import__("{module}", fromlist=["DLock"]).DLock\n'
        (copy / file).write_text(text.replace(LOCK_CLASS, ours))


def run(directory: Path, *tests: str) -> Outcomes:
    """Runs these tests."""
    url = f"redis://{os.environ['DLOCK_TEST_HOST']}:{os.environ['DLOCK_TEST_PORT']}/0"
    outcomes = Outcomes()
    options = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--rootdir", str(directory), "-c", os.devnull]
    options += ["-W", "ignore", f"--redis-url={url}", "-o", "asyncio_mode=auto", "--show-capture=no", "-rN"]
    pytest.main([*options, *tests], plugins=[outcomes])
    return outcomes


def main() -> int:
    """Returns the exit code."""
    known = expected()
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        prepare(Path(sys.argv[1]).resolve(), copy)
        os.chdir(copy)
        sys.path.insert(0, directory)
        outcomes = run(copy, *FILES)
        # On a busy machine an answer may come after the limit of its wait, and is none. These tests do not ask again.
        for _ in range(2):
            if late := outcomes.failed - known.keys():
                again = run(copy, *late)
                outcomes.failed -= again.passed - again.failed
                outcomes.other.update(again.other)
    wrong = [f"failed, and is not expected to: {name}" for name in sorted(outcomes.failed - known.keys())]
    wrong += [f"expected to fail, and did not: {name}" for name in sorted(known.keys() - outcomes.failed)]
    wrong += [f"did not run: {name}: {why}" for name, why in sorted(outcomes.other.items())]
    print("\n".join(wrong) or f"{len(outcomes.passed)} tests of redis-py pass, {len(known)} differ as expected")
    return 1 if wrong or not outcomes.passed else 0


if __name__ == "__main__":
    sys.exit(main())
