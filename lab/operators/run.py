#!/usr/bin/env python3
"""Plays what operators do while programs lock: `make operators`. A minute; needs root for small file systems.

    run.py [--only WORDS] [--keep]    --keep writes the table of docs/evidence.md
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path += [str(TOP / "clients/python/tests")]
from trials import TRIALS, Missing  # noqa: E402 - the path comes first

PAGE = TOP / "docs/evidence.md"
BEGIN, END = "<!-- operators -->\n", "<!-- end of operators -->\n"


def main() -> None:
    """Plays the trials, and fails if one does."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="")
    options.add_argument("--keep", action="store_true")
    chosen = options.parse_args()
    rows, failed = [], 0
    for name, expected, trial in TRIALS:
        if chosen.only not in name:
            continue
        began = time.monotonic()
        try:
            seen = trial()
        except Missing as what:
            seen = f"not played: {what} is missing"
            failed += chosen.keep  # a table that is kept has every trial
        except AssertionError as why:
            seen, failed = f"FAILED: {why}", failed + 1
        print(f"{name}: {seen} ({time.monotonic() - began:.1f} s)", flush=True)
        rows.append(f"| {name} | {expected} | {seen} |")
    if chosen.keep and not failed and not chosen.only:
        keep(rows)
    sys.exit(failed > 0)


def keep(rows: list[str]) -> None:
    """Writes the table of the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    table = "\n".join(["| what is done | what is promised | what was seen |", "|---|---|---|", *rows])
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n\n{END}{after}")


if __name__ == "__main__":
    main()
