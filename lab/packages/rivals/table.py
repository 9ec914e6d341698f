#!/usr/bin/env python3
"""Figures of `make rivals`, and the table of them in docs/comparison.md. `table.py --check` fails if the page differs."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).with_name("figures.json")
PAGE = Path(__file__).resolve().parents[3] / "docs/comparison.md"
MARKS = ("<!-- rivals -->\n", "<!-- end of rivals -->")

LABELS = {
    "redisson": "Redisson `RLock`, Java",
    "redisson-fair": "Redisson `RFairLock`, Java",
    "dlock-java": "**dlock, Java**",
    "redsync": "redsync, Go",
    "redislock": "redislock, Go",
    "dlock-go": "**dlock, Go**",
    "redlock": "redlock, Node.js",
    "redis-semaphore": "redis-semaphore, Node.js",
    "dlock-node": "**dlock, Node.js**",
    "redis-py": "redis-py `Lock`, Python",
    "dlock-python": "**dlock, Python**",
}

HEAD = (
    "| | hand-off, ms | p99, ms | longest wait, s | out of order | overtaken at most | commands | server's CPU, µs "
    "| holder killed, s | the same with a session, s |"
)


class Seen:
    """The figures of a system, pass by pass."""

    def __init__(self) -> None:
        self.killed: list[float] = []
        self.session: list[float] = []
        self._hand_offs: list[float] = []
        self._waits: list[float] = []
        self._swapped: list[float] = []
        self._overtaken = 0
        self._commands: list[float] = []
        self._cpu: list[float] = []

    def add_pass(self, rounds: list[dict[str, Any]], commands: float, cpu: float) -> None:
        """Adds a pass; `commands` and `cpu` (µs) are those of a hand-off."""
        self._commands.append(commands)
        self._cpu.append(cpu)
        for each in rounds:
            self._add(each["released"], sorted(each["waiters"]))

    def _add(self, released: int, waiters: list[list[int]]) -> None:
        before = released
        for _, granted, end in sorted(waiters, key=lambda waiter: waiter[1]):
            if granted < before:
                raise RuntimeError("two had the lock")
            self._hand_offs.append((granted - before) / 1e6)
            before = end
        # For each waiter, how many came later and were granted earlier.
        grants = [granted for _, granted, _ in waiters]
        passed = [sum(later < mine for later in grants[at + 1 :]) for at, mine in enumerate(grants)]
        self._overtaken = max(self._overtaken, *passed)
        self._swapped.append(sum(passed) / (len(grants) * (len(grants) - 1) / 2))
        self._waits.append(max(granted - released for _, granted, _ in waiters) / 1e9)

    def figures(self) -> dict[str, Any]:
        """Returns the medians, and the extremes where a column says so."""
        ordered = sorted(self._hand_offs)
        return {
            "hand_off_ms": round(statistics.median(ordered), 3),
            "p99_ms": round(ordered[int(len(ordered) * 0.99)], 3),
            "longest_wait_s": round(max(self._waits), 3),
            "out_of_order": round(statistics.mean(self._swapped), 5),
            "overtaken_at_most": self._overtaken,
            "commands": round(statistics.median(self._commands), 2),
            "cpu_us": round(statistics.median(self._cpu)),
            "killed_s": self.killed,
            "session_s": self.session,
        }


def table(systems: dict[str, dict[str, Any]]) -> str:
    """Returns the table of the page."""
    lines = [HEAD, "|---" + "|--:" * (HEAD.count("|") - 2) + "|"]
    for kind, label in LABELS.items():
        if kind not in systems:
            continue
        its = systems[kind]
        cells = [
            number(its["hand_off_ms"]), number(its["p99_ms"]), f"{its['longest_wait_s']:.2f}",
            share(its["out_of_order"]), str(its["overtaken_at_most"]), number(its["commands"]),
            f"{its['cpu_us']:,}", seconds(its["killed_s"]), seconds(its["session_s"]),
        ]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def share(value: float) -> str:
    """Returns a share with two decimals; one that they would show as 0 is `<0.01`."""
    return "0" if value == 0 else f"{value:.2f}" if value >= 0.01 else "<0.01"


def seconds(values: list[float]) -> str:
    """Returns the median; a dash if there is none."""
    if not values:
        return "–"
    median = statistics.median(values)
    return f"{median:.1f}" if median >= 0.1 else f"{median:.3f}"


def put(text: str) -> str:
    """Returns the page with the table between its marks."""
    before, rest = PAGE.read_text().split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return f"{before}{MARKS[0]}\n{text}\n\n{MARKS[1]}{after}"


def main() -> int:
    page = put(table(json.loads(FIGURES.read_text())["systems"]))
    if sys.argv[1:] == ["--check"]:
        return int(page != PAGE.read_text())
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
