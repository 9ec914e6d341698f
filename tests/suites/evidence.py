"""The parts of docs/evidence.md that a run of the suites writes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from accepted import Accepted, Reason

HEAD = ["| suite | version | tests | passed | accepted differences |", "|---|---|---|---|---|"]


def write(root: Path, results: Any, known: Accepted) -> None:
    """Writes the row of a suite, and its differences. Those of other suites stay as they are."""
    page = root / "docs/evidence.md"
    text = page.read_text()
    anchor = re.sub(r"[^\w\- ]", "", known.title.lower()).replace(" ", "-")
    title = f"[{known.title}](#{anchor})" if known.reasons else known.title
    row = f"| {title} | {results.version} | {len(results.tests())} | {len(results.passed)} | {len(results.failed)} |"
    text = put(text, "suites", lambda old: table(old, known.title, row))
    text = put(text, "differences", lambda old: sections(old, known, page.parent, root, results))
    page.write_text(text)


def put(text: str, mark: str, change: Any) -> str:
    """Changes the part between the marks."""
    found = re.search(rf"(?s)(<!-- {mark} -->\n)(.*?)(<!-- end of {mark} -->)", text)
    if found is None:
        raise SystemExit(f"docs/evidence.md has no part {mark}")
    return text[: found.end(1)] + "\n" + change(found[2]).strip() + "\n\n" + text[found.start(3) :]


def table(old: str, title: str, row: str) -> str:
    """Returns the table with this row in it."""
    rows = [line for line in old.splitlines() if line.startswith("| ") and line not in HEAD]
    rows = [line for line in rows if not line.startswith((f"| {title} |", f"| [{title}]"))]
    return "\n".join([*HEAD, *sorted([*rows, row], key=lambda line: line.strip("| [").lower())])


def sections(old: str, known: Accepted, folder: Path, root: Path, results: Any) -> str:
    """Returns the sections with that of this suite in it."""
    parts = {part.split("\n", 1)[0]: part.strip() for part in re.split(r"(?m)^### ", old) if part.strip()}
    parts.pop(known.title, None)
    if known.reasons:
        told = [wrapped(reason, folder, root, results) for reason in known.reasons]
        parts[known.title] = f"{known.title}\n\n" + "\n".join(told)
    return "\n\n".join("### " + parts[title] for title in sorted(parts, key=str.lower))


def wrapped(reason: Reason, folder: Path, root: Path, results: Any) -> str:
    """Returns the reason as an item of a list, with the number of its tests and the page."""
    path, _, heading = reason.page.partition("#")
    page = os.path.relpath(root / path, folder) + (f"#{heading}" if heading else "")
    number = len([test for test in reason.tests if test in results.failed])
    words = f"{reason.text} ({number} {'test' if number == 1 else 'tests'}, [told here]({page}))".split(" ")
    lines = ["-"]
    for word in words:
        if len(lines[-1]) + 1 + len(word) > 120 and lines[-1].strip():
            lines.append(" ")
        lines[-1] += f" {word}"
    return "\n".join(lines)
