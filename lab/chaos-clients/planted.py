"""Fails unless chaos finds each bug of planted.txt: python planted.py --help"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

from prepare import plants

SECONDS = 120


def main(word: str, histories: str | None) -> int:
    """Returns the exit code."""
    missed = 0
    print("| planted bug | found after | as |\n|---|--:|---|", flush=True)
    for bug, (_, says, *_) in plants().items():
        if word not in bug:
            continue
        words = [sys.executable, str(Path(__file__).with_name("run.py")), "--plant", bug]
        words += ["--seconds", str(SECONDS), "--seed", "1"]
        if histories:
            Path(histories).mkdir(parents=True, exist_ok=True)
            words += ["--history", str(Path(histories, re.sub(r"\W+", "-", bug) + ".jsonl"))]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None and run.stderr is not None
            began, took = time.monotonic(), 0.0
            for line in run.stderr:
                if "the programs are built" in line:
                    began = time.monotonic()
                elif "round" in line:
                    took = time.monotonic() - began
            said = [line for line in run.stdout if line.startswith("VIOLATION: ") and re.search(says, line)]
        missed += not said
        told = re.search(says, said[0]) if said else None
        print(f"| {bug} | {took:.0f} s | {told[0] if told else 'not found'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Puts the bugs of planted.txt back, one after the other.")
    parser.add_argument("word", nargs="?", default="", help="only bugs with this word in their names")
    parser.add_argument("--histories", help="a folder for the histories of the runs")
    options = parser.parse_args()
    sys.exit(main(options.word, options.histories))
