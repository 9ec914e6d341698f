"""The part of docs/evidence.md that runs write: sums over all runs that were kept."""

from __future__ import annotations

from prepare import TOP

PAGE = TOP / "docs/evidence.md"
BEGIN, END = "<!-- chaos -->\n", "<!-- end of chaos -->\n"


def keep(through: str, counts: list[float]) -> None:
    """Adds a run to the row of its deployment: minutes, then numbers."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    table, after = rest.split(END)
    head, rows = table.strip().split("\n")[:2], table.strip().split("\n")[2:]
    sums = {name: numbers for name, *numbers in (row.strip("| ").split(" | ") for row in rows)}
    old = [float(number.replace(",", "")) for number in sums.get(through, ["0"] * (len(counts) + 1))]
    runs, minutes, *numbers = (one + two for one, two in zip(old, [1, *counts]))
    sums[through] = [f"{runs:.0f}", f"{minutes:.1f}", *(f"{number:,.0f}" for number in numbers)]
    lines = [*head, *("| " + " | ".join([name, *sums[name]]) + " |" for name in sorted(sums))]
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + after)
