"""Programs as users write them, under faults: see README.md.

    python run.py --help
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "chaos-clients"))
from build import build  # noqa: E402 - the path comes first
from command import begin, end, parser, play, tell  # noqa: E402
from evidence import keep  # noqa: E402
from faults import OF_PROGRAMS, Faults, watch  # noqa: E402
from judge import Round  # noqa: E402
from machines import PATIENCE, Broken, Deployment, soon  # noqa: E402
from program import LANGUAGES, ROLES, Adopter, adopters  # noqa: E402
from programs import micros  # noqa: E402
from rules import KEPT, excuses, violations  # noqa: E402

# For how long faults come, and for how long none come after that, in seconds. The run repeats both.
FAULTS, CALM = 12.0, 7.0
# The longest lease, and how late a hold that is left may end after it, in seconds.
LEASE, REST = KEPT / 1_000_000, 1.0


class Interference(Faults):
    """Faults that seek programs which have a lock. A program is also ended and started again, as for a new version."""

    # The faults of ../chaos-clients come twice as often as the one of this class.
    of_programs = [*OF_PROGRAMS, *OF_PROGRAMS, "program ended"]

    def _chosen(self) -> Adopter:
        # Seven times in ten a program that has a lock, otherwise any program.
        inside = [each for each in self._programs if each.visits.is_inside]
        return self._choices.choice(inside if inside and self._choices.random() < 0.7 else self._programs)

    async def _does(self, it: Round, kind: str, program: Adopter) -> None:
        if kind == "program ended":
            await program.end(slack=20.0)
            await program.start()
        else:
            await super()._does(it, kind, program)


class Run:
    """A run over one deployment."""

    def __init__(self, options: argparse.Namespace, deployment: Deployment, built: Path, ledger: Path) -> None:
        self._options, self._deployment, self._built, self._ledger = options, deployment, built, ledger
        self.it = Round(unix=time.time_ns() // 1000 - micros())
        self.it.loses, self.it.replicates = deployment.loses, deployment.replicas > 0
        self.it.is_one = deployment.is_one
        self._programs: list[Adopter] = []
        self._faults = Interference(deployment, self._programs, random.Random(f"{options.seed} faults"))
        self._server = ""

    async def play(self) -> list[str]:
        """Plays the run. Returns what is wrong."""
        await self._deployment.start()
        self._server = await self._deployment.machines[0].version()
        lines = open(self._options.lines, "w") if self._options.lines else None
        self._programs += adopters(self._built, self._deployment, self.it, self._options, self._ledger, lines)
        current = {"now": self.it}
        watching = watch(self._deployment, current)
        # Ten programs a second: a machine that starts all seventy at once does nothing else.
        for program in self._programs:
            await program.start()
            await asyncio.sleep(0.1)
        tell(f"{len(self._programs)} programs are started")
        ends = time.monotonic() + self._options.seconds
        while time.monotonic() < ends:
            await self._faults.play(self.it, micros() + int(min(FAULTS, ends - time.monotonic()) * 1_000_000))
            await self._recover()
            await asyncio.sleep(CALM)
            tell(f"{len(self.it.attempts)} acquisitions")
        await asyncio.gather(*(program.end(slack=5.0) for program in self._programs))
        self.it.left = await self._deployment.locks()
        await asyncio.sleep(LEASE + REST)
        self.it.seen += [f"a lease after the end, {lock}" for lock in await self._deployment.locks()]
        for each in watching:
            each.cancel()
        self.it.seen += [f"{each.name} has said nothing" for each in self._programs if not each.said]
        orders = {each.name: each.read_text().splitlines() for each in sorted(self._ledger.iterdir())}
        self._paid = sum(any(row.startswith("paid") for row in rows) for rows in orders.values())
        return violations(self.it, orders)

    async def _recover(self) -> None:
        """Waits until the servers are whole again. The time until then is recorded as a fault: errors are allowed.

        Servers that do not become whole in time are a violation, and the run goes on.
        """
        began = micros()
        try:
            await soon("the servers are whole again", self._deployment.is_whole)
        except Broken as error:
            self.it.seen.append(f"{error}, {PATIENCE:.0f} s after the last fault")
        self.it.faults.append(("servers not whole", "", began, micros()))
        self.it.calm = micros()

    async def close(self) -> None:
        """Ends what still runs."""
        await end(self._programs, self._deployment)

    def report(self) -> str:
        """Returns what became of the acquisitions, by language, and what was done."""
        results = Counter(" ".join([*each.program.split()[:2], each.result or "open", each.message.split(":")[0]])
                          for each in self.it.attempts)
        results += Counter(" ".join([*each.program.split()[:2], "release", each.release])
                           for each in self.it.attempts if each.is_granted and each.release != "released")
        lines = [f"  {count:6} {what}" for what, count in sorted(results.items())]
        for role in ROLES:
            its = [each for each in self.it.attempts if each.program.split()[1] == role]
            lost = sum(any(sample.lost for sample in each.samples) for each in its)
            grants = sum(each.is_granted for each in its)
            lines.append(f"{role}: {len(its)} acquisitions, {grants} grants, {lost} losses")
        excused = excuses(self.it)
        lines.append(f"unreachable: {excused['fault']} with a fault, {excused['lateness']} on a late machine")
        lines.append("faults: " + ", ".join(f"{count} {kind}" for kind, count in sorted(self._faults.counts.items())))
        lines.append(f"{self._server}: {len(self._programs)} programs, {self._paid} orders paid")
        return "\n".join(lines)

    def row(self, violations: int) -> tuple[list[str], list[float]]:
        """Returns a row of docs/evidence.md: servers, minutes, acquisitions, grants, losses, faults, violations."""
        its = self.it.attempts
        lost = sum(any(sample.lost for sample in each.samples) for each in its)
        counts = [len(its), sum(each.is_granted for each in its), lost, sum(self._faults.counts.values()), violations]
        return [self._options.through, self._server], [round(self._options.seconds / 60, 1), *counts]


async def main(options: argparse.Namespace) -> int:
    """Returns the exit code."""
    deployment = begin("adopters", options)
    built = build(set(options.only) & set(LANGUAGES) or set(LANGUAGES))
    tell("the programs are built")
    with tempfile.TemporaryDirectory(prefix="dlock-adopters-") as ledger:
        run = Run(options, deployment, built, Path(ledger))
        found = await play(run)
    print(run.report())
    if options.keep:
        keep("adopters", *run.row(len(found)))
    for each in found:
        print(f"VIOLATION: {each}")
    if found:
        for fault in run.it.faults:
            print("{} {} {}..{}".format(*fault))
    print(f"{len(found)} violations")
    return 1 if found else 0


def parsed() -> argparse.Namespace:
    """Returns the options."""
    known = parser("Programs as users write them, under faults.", "languages and roles")
    known.add_argument("--each", type=int, default=2, help="programs for each language and role")
    known.add_argument("--lines", help="where to write the lines of all programs")
    options = known.parse_args()
    options.only = [word for word in options.only.split(",") if word]
    return options


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parsed())))
