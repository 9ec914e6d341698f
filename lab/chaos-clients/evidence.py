"""The tables of docs/evidence.md that runs write: sums over all runs that `keep` has added.

    python evidence.py <REPORT    adds the verdicts in a report of Porcupine
"""

from __future__ import annotations

import re
import sys

from prepare import TOP

PAGE = TOP / "docs/evidence.md"
VERDICT = r": (\d+) locks, (\d+) operations, (\d+) without a verdict, (\d+) violations"


def keep(table: str, where: list[str], counts: list[float]) -> None:
    """Adds a run to the row that begins with these words."""
    begin, end = f"<!-- {table} -->\n", f"<!-- end of {table} -->\n"
    before, rest = PAGE.read_text().split(begin)
    old, after = rest.split(end)
    head, rows = old.strip().split("\n")[:2], old.strip().split("\n")[2:]
    cells = [row.strip("| ").split(" | ") for row in rows]
    width = len(where)
    sums = {tuple(row[:width]): [number(each) for each in row[width:]] for row in cells}
    now = [1, *counts]
    sums[tuple(where)] = [one + two for one, two in zip(sums.get(tuple(where), [0] * len(now)), now)]
    lines = [*head]
    for words, numbers in sorted(sums.items()):
        shown = [f"{each:,.1f}" if isinstance(each, float) else f"{each:,}" for each in numbers]
        lines.append("| " + " | ".join([*words, *shown]) + " |")
    PAGE.write_text(before + begin + "\n" + "\n".join(lines) + "\n\n" + end + after)


def number(text: str) -> float:
    """Returns a number of a table. Minutes have a point, and counts have none."""
    plain = text.replace(",", "")
    return float(plain) if "." in plain else int(plain)


if __name__ == "__main__":
    for verdict in re.findall(VERDICT, sys.stdin.read()):
        keep("porcupine", ["all clients"], [int(each) for each in verdict])
