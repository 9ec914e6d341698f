"""The faults of programs, ways and servers, and their times: the seed decides."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from typing import Any

import redis

from judge import Round
from machines import Cluster, Deployment, Machine, Quorum, Sentinel, lacks_replica
from programs import Command, Program, micros
from way import Way

OF_WAYS = ["delay", "delay", "cut", "replies held", "commands held", "replies lost", "grants canceled"]
OF_PROGRAMS = ["program stopped", "program stopped", "program killed"]
# The user of a way that no program has.
NOBODY = "-"


class Faults:
    """Plays the faults of a run."""

    of_programs = OF_PROGRAMS

    def __init__(self, deployment: Deployment, programs: list[Program | Command], choices: random.Random) -> None:
        self._deployment = deployment
        self._programs = programs
        self._choices = choices
        self.counts: dict[str, int] = {}
        self._troubled: set[str] = set()

    async def play(self, it: Round, until: int) -> None:
        """Begins one fault after the other until that time, so that some overlap, and heals all of them."""
        running: set[asyncio.Task[None]] = set()
        # Faults of servers do not overlap.
        server = asyncio.Lock()
        while micros() < until:
            await asyncio.sleep(self._choices.uniform(0.1, 0.9))
            kind = self._choices.choice([*OF_WAYS, *self.of_programs, *self._deployment.faults])
            running.add(asyncio.create_task(self._one(it, kind, server)))
        await asyncio.gather(*running)
        self._deployment.heal()
        it.calm = micros()

    async def _one(self, it: Round, kind: str, server: asyncio.Lock) -> None:
        if kind in self.of_programs:
            await self._of_program(it, kind, self._chosen())
        elif kind in OF_WAYS:
            await self._of_way(it, kind)
        elif not server.locked():
            async with server:
                await self._of_server(it, kind)

    def _begins(self, it: Round, kind: str, whom: str, of: str = "") -> int:
        """Writes down a fault that has begun. `of`: how strong it is."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        kind += of
        # The end is later than any time until `_ends` sets it.
        it.faults.append((kind, whom, micros(), 1 << 62))
        return len(it.faults) - 1

    @staticmethod
    def _ends(it: Round, at: int) -> None:
        kind, whom, since, _ = it.faults[at]
        it.faults[at] = kind, whom, since, micros()

    def _chosen(self) -> Program | Command:
        """Returns the program that a fault befalls."""
        return self._choices.choice(self._programs)

    async def _of_program(self, it: Round, kind: str, program: Program | Command) -> None:
        # A program is in one trouble at a time.
        if kind == "program stopped" and isinstance(program, Command) or program.name in self._troubled:
            return
        self._troubled.add(program.name)
        at = self._begins(it, kind, program.name)
        await self._does(it, kind, program)
        self._ends(it, at)
        self._troubled.discard(program.name)

    async def _does(self, it: Round, kind: str, program: Any) -> None:
        """Plays the fault on a program."""
        if kind == "program stopped":
            program.signal(signal.SIGSTOP)
            await asyncio.sleep(self._choices.choice([0.2, 0.8, 1.6, 3.0]))
            program.signal(signal.SIGCONT)
        else:
            it.killed.update(await program.kill())
            await program.start()

    def _users(self, way: Way) -> str:
        """Returns the programs whose way it is, with commas between; nothing if all need it."""
        its = self._deployment
        if its.by or way.port not in its.ports:
            return ""
        users = [each.name for at, each in enumerate(self._programs) if its.ports_of(at) == [way.port]]
        return ",".join(users) or NOBODY

    async def _of_way(self, it: Round, kind: str) -> None:
        way = self._choices.choice(self._deployment.ways)
        slow = self._choices.choice([0.02, 0.1, 0.4]) if kind == "delay" else 0.0
        at = self._begins(it, kind, self._users(way), f" of {slow * 1000:.0f} ms" if slow else "")
        if kind == "cut":
            way.cut(self._choices.choice([0.3, 1.0]))
        else:
            if kind == "delay":
                way.delay = slow
            elif kind == "replies lost":
                way.swallow()
            elif kind == "grants canceled":
                # Some acquisitions are granted meanwhile, and their programs give up before they hear of it.
                way.hold("replies")
                await asyncio.sleep(self._choices.uniform(0.2, 0.5))
                await asyncio.gather(*(worker.give_up() for worker in list(it.asking)))
            else:
                way.hold(kind.removesuffix(" held"))
            await asyncio.sleep(0.1 if kind == "grants canceled" else self._choices.choice([0.2, 0.6, 1.2, 2.2]))
            way.heal()
        self._ends(it, at)

    async def _of_server(self, it: Round, kind: str) -> None:
        at, its, number = self._begins(it, kind, ""), self._deployment, self._choices.randrange(64)
        if kind == "freeze":
            machine = its.machines[number % len(its.machines)]
            machine.freeze()
            await asyncio.sleep(self._choices.choice([0.2, 0.8, 1.5, 3.0]))
            machine.thaw()
        elif kind == "restart":
            await its.restart(number)
        elif isinstance(its, (Sentinel, Cluster)):
            await (its.handover() if isinstance(its, Sentinel) and kind == "handover" else its.failover())
        elif isinstance(its, Quorum) and kind == "agent stopped":
            its.agent(signal.SIGSTOP)
            await asyncio.sleep(self._choices.choice([0.2, 0.8, 1.6]))
            its.agent(signal.SIGCONT)
        elif isinstance(its, Quorum):
            await its.agent_again()
        self._ends(it, at)


def watch(deployment: Deployment, it: dict[str, Round]) -> list[asyncio.Task[None]]:
    """Begins to write down what nobody brings about: a late machine, slow servers, primaries without a replica."""
    watches = (watch_lateness(it), watch_replicas(deployment, it), watch_servers(deployment, it))
    return [asyncio.create_task(each) for each in watches]


async def watch_replicas(deployment: Deployment, it: dict[str, Round]) -> None:
    """Writes down when a primary has no replica. After a failover, the old one is no replica until it has the data."""
    while deployment.replicas:
        before = micros()
        lacking = [await lacks_replica(machine) for machine in deployment.machines]
        if any(lacking) and "now" in it:
            it["now"].faults.append(("replica away", "", before, micros()))
        await asyncio.sleep(0.2)


async def watch_servers(deployment: Deployment, it: dict[str, Round]) -> None:
    """Writes down when servers are slow. Asks them directly, not through a `Way`: a server that waits for its disk
    answers nobody."""
    await asyncio.gather(*(_watch(machine, it, deployment.slow) for machine in deployment.machines))


async def _watch(machine: Machine, it: dict[str, Round], slow: int) -> None:
    while True:
        before = micros()
        with contextlib.suppress(redis.RedisError, OSError):
            await machine.call("PING")
        if micros() - before > slow and "now" in it:
            it["now"].faults.append(("server slow", "", before, micros()))
        await asyncio.sleep(0.05)


async def watch_lateness(it: dict[str, Round]) -> None:
    """Writes down when the machine lets this process run late, by 20 ms or more."""
    step = 0.02
    while True:
        before = micros()
        await asyncio.sleep(step)
        late = micros() - before - int(step * 1_000_000)
        if late > 20_000 and "now" in it:
            it["now"].late.append((micros(), late))
