"""A plugin of pytest that writes the results of tests as `run` reads them."""

from __future__ import annotations

import os
import re

import pytest

# Classes and functions of tests that are about things that dlock does not offer.
LEFT_OUT = set(os.environ.get("DLOCK_SUITE_LEFT_OUT", "").split())
ONLY = [line for line in os.environ.get("DLOCK_SUITE_ONLY", "").split("\n") if line]


def note(kind: str, name: str, why: str = "") -> None:
    """Writes a line."""
    with open(os.environ["DLOCK_SUITE_RESULTS"], "a", encoding="utf-8") as file:
        file.write("\t".join([kind, name, " ".join(why.split())[:300]]).rstrip("\t") + "\n")


def name_of(nodeid: str) -> str:
    """Returns the name of a test without its parameters: a list must not depend on each of them."""
    return re.sub(r"\[.*\]$", "", nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Chooses the tests."""
    items[:] = [item for item in items if not LEFT_OUT & set(name_of(item.nodeid).split("::"))]
    if ONLY:
        items[:] = [item for item in items if name_of(item.nodeid) in ONLY]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called for each phase of each test."""
    name = name_of(report.nodeid)
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        note("failed", name, crash.message if crash else report.longreprtext)
    elif report.skipped:
        note("skipped", name, report.longrepr[2] if isinstance(report.longrepr, tuple) else "")
    elif report.when == "call":
        note("passed", name)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be read is a failure, too."""
    if report.failed:
        note("failed", report.nodeid, report.longreprtext.splitlines()[-1] if report.longreprtext else "")
