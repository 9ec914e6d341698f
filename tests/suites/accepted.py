"""The tests of a suite that are known to fail, with the reasons, and the pages that tell users."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Reason:
    """Why some tests fail."""

    text: str
    page: str
    tests: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Accepted:
    """A file `accepted.txt`."""

    title: str
    version: str
    reasons: list[Reason]

    @property
    def tests(self) -> dict[str, Reason]:
        """Returns the reason of each test."""
        return {test: reason for reason in self.reasons for test in reason.tests}


def read(file: Path, root: Path) -> Accepted:
    """Reads the file. Every page that it names, and the heading in it, must exist."""
    blocks = [block.splitlines() for block in re.split(r"\n\n+", file.read_text().strip())]
    head = fields(blocks[0], file)
    reasons = [reason(block, file, root) for block in blocks[1:]]
    tests = [test for each in reasons for test in each.tests]
    if twice := {test for test in tests if tests.count(test) > 1}:
        raise SystemExit(f"{file}: named twice: {' '.join(sorted(twice))}")
    return Accepted(head["suite"], head["version"], reasons)


def fields(lines: list[str], file: Path) -> dict[str, str]:
    """Reads lines of a word, a colon and a text."""
    if not all(": " in line for line in lines):
        raise SystemExit(f"{file}: not a field: {lines}")
    return dict(line.split(": ", 1) for line in lines)  # type: ignore[misc]


def reason(lines: list[str], file: Path, root: Path) -> Reason:
    """Reads a block: the reason, the page, and the tests, one on each line."""
    told = fields(lines[:2], file)
    if list(told) != ["reason", "page"] or len(lines) < 3:
        raise SystemExit(f"{file}: not a reason, a page and tests: {lines}")
    path, _, heading = told["page"].partition("#")
    page = root / path
    if not page.is_file() or heading and heading not in headings(page):
        raise SystemExit(f"{file}: no such page or heading: {told['page']}")
    return Reason(told["reason"], told["page"], lines[2:])


def headings(page: Path) -> set[str]:
    """Returns the anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
