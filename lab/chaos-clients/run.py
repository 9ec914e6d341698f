"""Chaos with real packages: see README.md.

    python run.py --help
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pprint
import random
import re
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

from command import begin, end, parser, play, tell
from evidence import keep
from faults import Faults, watch
from history import write
from judge import Round, judge
from machines import Deployment, soon
from prepare import TOP, plants, prepare
from programs import Command, Program, commands, micros
from workers import LEASES, Worker

# How long a round brings faults, and how long its workers work on without any, in seconds.
FAULTS, CALM = 9.0, 5.0
# How long servers and programs may take to come to rest when nobody asks for locks any more, in seconds.
REST = 4.0
# The names of the workers of a program.
WORKERS = "abcdefghij"


class Run:
    """A run over one deployment."""

    def __init__(
        self, options: argparse.Namespace, deployment: Deployment, built: Path, history: TextIO | None
    ) -> None:
        self._options = options
        self._deployment = deployment
        self._history = history
        words = [word for word in options.only.split(",") if word]
        starts = commands(built)
        if options.through in ("sentinel", "cluster"):
            # The PHP package, a store for Symfony, waits for no replicas, so a failover loses grants.
            del starts["php"]
        if options.through == "cluster":
            del starts["ruby"]  # The gem refuses clusters.
        chosen = {name: each for name, each in starts.items() if not words or any(word in name for word in words)}
        self._programs: list[Program | Command] = [Program(*each) for each in chosen.items()]
        if not words or "dlock" in words:
            self._programs.append(Command())
        self._faults = Faults(deployment, self._programs, random.Random(f"{options.seed} faults"))
        self._found: list[str] = []
        self._sums = dict.fromkeys(("rounds", "attempts", "grants", "losses", "samples"), 0)
        self._results: dict[str, int] = {}
        self._server = "no server"
        self._died = False
        self._highest = 0  # the highest token of all rounds so far

    async def play(self) -> list[str]:
        """Returns what is wrong. A run that dies, because a server does not come back or the judge fails, is wrong."""
        began = time.monotonic()
        try:
            await self._play(began)
        except Exception as error:
            traceback.print_exc()
            self._died = True
            self._found.append(f"the run died: {error!r}")
        self._seconds = time.monotonic() - began
        return self._found

    async def _play(self, began: float) -> None:
        await self._deployment.start()
        self._server = await self._deployment.machines[0].version()
        tell("the servers are there")
        await asyncio.gather(*(program.start() for program in self._programs))
        current: dict[str, Round] = {}
        watching = watch(self._deployment, current)
        try:
            number = 0
            while time.monotonic() - began < self._options.seconds and not self._is_seen():
                number += 1
                current["now"] = it = Round(unix=time.time_ns() // 1000 - micros())
                it.loses, it.replicates = self._deployment.loses, self._deployment.replicas > 0
                it.is_one, it.highest = self._deployment.is_one, self._highest
                await self._round(it, number)
                found = judge(it)
                self._add(it, found)
                tell(f"round {number}: {len(it.attempts)} acquisitions, {len(found)} violations")
                for each in found:
                    tell(f"VIOLATION: {each}")
                if found and self._history is not None:
                    Path(f"{self._history.name}.{number}").write_text(pprint.pformat(vars(it), width=200))
                for fault in it.faults if found else ():
                    tell("{} {} {}..{}".format(*fault))
        finally:
            for each in watching:
                each.cancel()
        # Grants that nobody released have ended by now, unless something renews them.
        await asyncio.sleep(max(LEASES) / 1000 + 1)
        self._found += [f"a lease after the end, {lock}" for lock in await self._deployment.locks()]
        for program in self._programs:
            await program.close()

    def _is_seen(self) -> bool:
        """Returns whether the bug that was planted has been found."""
        return bool(self._options.plant) and any(
            re.search(plants()[self._options.plant][1], each) for each in self._found)

    async def close(self) -> None:
        """Ends what still runs."""
        await end(self._programs, self._deployment)

    async def _round(self, it: Round, number: int) -> None:
        now = micros()
        choices = random.Random(f"{self._options.seed} {number}")
        end = now + int((FAULTS + CALM) * 1_000_000)
        # Few programs have more workers each: locks that nobody else wants show nothing.
        workers = WORKERS[:max(2, len(WORKERS) // len(self._programs))]
        working = []
        for at, program in enumerate(self._programs):
            # A program that does one thing at a time has one worker.
            for name in "a" if "sequential" in program.features else workers:
                own = random.Random(choices.random())
                worker = Worker(program, self._deployment.ports_of(at), name, self._deployment, own)
                working.append(worker.work(it, number, end))
        await asyncio.gather(self._faults.play(it, now + int(FAULTS * 1_000_000)), *working)
        await soon("the servers are whole again", self._deployment.is_whole)
        rests = time.monotonic() + REST
        while True:
            it.left = [lock for lock in await self._deployment.locks() if f":{number}" in lock["lock"]]
            if time.monotonic() > rests or not it.left:
                return
            await asyncio.sleep(0.3)

    def _add(self, it: Round, found: list[str]) -> None:
        self._found += found
        self._highest = max([self._highest, *(attempt.token for attempt in it.attempts)])
        self._sums["rounds"] += 1
        self._sums["attempts"] += len(it.attempts)
        self._sums["grants"] += sum(attempt.is_granted for attempt in it.attempts)
        self._sums["losses"] += sum(any(sample.lost for sample in attempt.samples) for attempt in it.attempts)
        self._sums["samples"] += sum(len(attempt.samples) for attempt in it.attempts)
        for attempt in it.attempts:
            # Errors are counted by message, too.
            result = attempt.result + (f" {attempt.message}" if attempt.result == "error" else "")
            for result in (result, attempt.release and f"release {attempt.release}"):
                if result:
                    told = f"{attempt.program}: {result}"
                    self._results[told] = self._results.get(told, 0) + 1
        if self._history is not None:
            write(self._history, it.attempts)

    def counts(self) -> list[float]:
        """Returns the minutes, then acquisitions, grants, losses that were told, faults and violations."""
        sums = (self._sums[name] for name in ("attempts", "grants", "losses"))
        return [round(self._seconds / 60, 1), *sums, sum(self._faults.counts.values()), len(self._found)]

    def where(self) -> list[str]:
        """Returns the deployment and its servers."""
        return [self._options.through, self._server + (", died" if self._died else "")]

    def report(self) -> str:
        """Returns what became of the acquisitions, the faults, and the row of a table."""
        faults = self._faults.counts
        done = ", ".join(f"{count} {kind}" for kind, count in sorted(faults.items()))
        minutes, *counts = self.counts()
        row = f"| {' | '.join(self.where())} | {minutes:.1f} | {' | '.join(map(str, counts))} |"
        results = "\n".join(f"  {count:6} {result}" for result, count in sorted(self._results.items()))
        return f"{results}\nfaults: {done}\n{row}"


async def main(options: argparse.Namespace) -> int:
    """Returns the exit code."""
    deployment = begin("chaos of clients", options)
    built = TOP / "target/chaos-clients" / (options.plant or "as-it-is").replace(": ", "-").replace(" ", "-")
    words = {word for word in options.only.split(",") if word}
    prepare(built, words, options.plant)
    tell("the programs are built")
    with open(options.history, "w") if options.history else contextlib.nullcontext() as history:
        run = Run(options, deployment, built, history)
        found = await play(run)
    print(run.report())
    if options.keep:
        keep("chaos", run.where(), run.counts())
    for each in found:
        print(f"VIOLATION: {each}")
    return 1 if found else 0


def parsed() -> argparse.Namespace:
    """Returns the options."""
    known = parser("Chaos with real packages.", "words of the names of programs")
    known.add_argument("--plant", help="a bug of planted.txt; the run ends when something is found")
    known.add_argument("--history", help="where to write the history")
    options: Any = known.parse_args()
    options.only = options.only or (plants()[options.plant][0] if options.plant else "")
    return options


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parsed())))
