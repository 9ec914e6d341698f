"""The work of a program's workers: they acquire, look at what they hold, and release it or not."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

from history import Attempt, Sample
from judge import Round, told
from machines import Deployment
from programs import Command, Died, Program, micros

# The leases, in ms. A hold of the longest is still there when a round is over.
LEASES = [700, 700, 1500, 1500, 4000, 12000, 12000]
WAITS = [0, 300, 1000, 2500]
# The time of a named session, in ms.
TIMEOUT = 1500
# A grant that is heard of this much later is late, in microseconds.
LATE = 150_000
# How long a worker waits to be told of a loss, in microseconds.
UNTOLD = 5_000_000
# How long an answer may take before the round goes on without it, in seconds.
HANGS = 20.0


class Worker:
    """A worker of a program."""

    def __init__(
        self, program: Program | Command, ports: list[int], name: str, deployment: Deployment, choices: random.Random
    ) -> None:
        self._program = program
        self._ports = ports
        self._name = name
        self._deployment = deployment
        self._choices = choices

    async def work(self, it: Round, number: int, until: int) -> None:
        """Makes one attempt after the other until that time. Locks of a round have its number."""
        while micros() < until:
            attempt, request = self._draw(number)
            it.attempts.append(attempt)
            try:
                await asyncio.wait_for(self._attempt(it, attempt, request, until), HANGS)
            except asyncio.TimeoutError:
                attempt.result = attempt.result or "hung"
                it.seen.append(f"no answer for {HANGS:g} s: {attempt}")
            except Died:
                attempt.killed = self._program.killed_at
                attempt.result = attempt.result or "died"
                attempt.ended = attempt.ended or micros()
                await self._revive(it)
            await asyncio.sleep(self._choices.uniform(0, 0.1))

    async def _revive(self, it: Round) -> None:
        """Waits until the run has started the program again; one that has ended by itself is started here."""
        ended_itself = not isinstance(self._program, Command) and self._pid not in self._program.killed
        if ended_itself and self._program.pid == self._pid:
            self._program.killed.add(self._pid)
            it.killed.add(self._pid)
            it.seen.append(f"{self._program.name} has ended: {self._program.log()}")
            await self._program.start()
        while self._program.has_ended:
            await asyncio.sleep(0.05)

    def _can(self, feature: str) -> bool:
        offered = feature not in ("named", "slots") or feature in self._deployment.features
        return offered and feature in self._program.features

    def _draw(self, number: int) -> tuple[Attempt, dict[str, Any]]:
        draw = self._choices
        what = draw.choice(["e1", "e1", "e1", "e2", "rw", "rw", "sem"])
        slots = 2 if what == "sem" and self._can("slots") else None
        mode = "exclusive" if what[0] == "e" or slots else draw.choice(["read", "read", "write"])
        name = f"{what}:{number}" if slots or what != "sem" else f"rw:{number}"
        kinds = ["fixed", "fixed", "keep", "keep", *(["named"] if self._can("named") else [])]
        kind = "fixed" if "sequential" in self._program.features else draw.choice(kinds)
        lease, wait = draw.choice(LEASES), draw.choice(WAITS)
        db = draw.choice([*self._deployment.databases, self._deployment.databases[-1]])
        # The command renews its leases, which are longer.
        if isinstance(self._program, Command):
            kind, lease = "keep", max(3000, lease)
        if self._program.name.startswith("php") and mode == "exclusive":
            mode = "write"
        who = self._program.name, self._name, self._program.pid
        attempt = Attempt(*who, f"{db}/{name}", mode, slots, kind, lease, wait, micros())
        request = {
            "by": self._deployment.by, "ports": self._ports, "db": db, "name": name, "mode": mode,
            "slots": slots, "lease": lease, "wait": wait, "keep": kind == "keep", "named": kind == "named",
            "timeout": TIMEOUT,
            "replicas": self._deployment.replicas if self._can("replicas") else 0,
        }
        return attempt, request

    async def _ask(self, do: str, **request: Any) -> dict[str, Any]:
        # A program that was started again knows nothing of the attempt.
        if self._program.pid != self._pid:
            raise Died
        return await self._program.ask(do=do, worker=self._name, **request)

    async def _attempt(self, it: Round, attempt: Attempt, request: dict[str, Any], until: int) -> None:
        canceling, self._pid = None, self._program.pid
        if attempt.wait and self._can("cancel") and self._choices.random() < 0.3:
            # A hold that a canceled request leaves behind is still there when the round is over.
            attempt.lease = request["lease"] = max(LEASES)
            canceling = asyncio.create_task(self._cancel(self._choices.uniform(0, attempt.wait / 1000)))
        it.asking.append(self)
        try:
            answer = await self._ask("acquire", **request)
        finally:
            it.asking.remove(self)
            if canceling is not None:
                canceling.cancel()
        attempt.ended = micros()
        attempt.result, attempt.message = answer["result"], answer.get("message", "")
        attempt.process = answer.get("process", attempt.process)
        if attempt.is_granted:
            attempt.token, attempt.slot = answer["token"], answer.get("slot")
            attempt.samples.append(sample(answer))
            await self._hold(it, attempt, until)

    async def give_up(self) -> None:
        """Cancels what it has asked for, if its program can."""
        if self._can("cancel"):
            await self._cancel(0)

    async def _cancel(self, after: float) -> None:
        await asyncio.sleep(after)
        with contextlib.suppress(Died):
            await self._ask("cancel")

    async def _hold(self, it: Round, attempt: Attempt, until: int) -> None:
        """Works with the lock for a while, sometimes until it is lost. Now and then, nobody releases it."""
        draw = self._choices
        # A token tells when it was granted. A program that counts from a late answer believes for too long at the end.
        is_late = attempt.ended - (attempt.token - it.unix) > LATE
        to_the_end = draw.random() < (0.6 if is_late else 0.15)
        most = attempt.lease * 1.3 if to_the_end else min(draw.expovariate(1 / 300), 2000)
        ends = micros() + int(most * 1000)
        forgets = attempt.kind == "fixed" and draw.random() < 0.1
        while True:
            last = attempt.samples[-1]
            if last.lost or (micros() >= min(ends, until) and last.believes):
                break
            if not last.believes and last.before - _first_doubt(attempt) > UNTOLD:
                break
            await asyncio.sleep(draw.uniform(0.02, 0.15))
            answer = await self._ask("held")
            attempt.samples.append(sample(answer))
            if answer.get("token") not in (None, attempt.token):
                it.seen.append(f"the token of another hold, {answer['token']}: {told(attempt)}")
        if forgets or attempt.samples[-1].lost and draw.random() < 0.5:
            return
        # A program that is killed meanwhile may have released it.
        attempt.releasing = micros()
        answer = await self._ask("release")
        attempt.samples.append(sample(answer))
        attempt.releasing, attempt.released = answer["at"][0], micros()
        attempt.release, attempt.release_message = answer["result"], answer.get("message", "")


def _first_doubt(attempt: Attempt) -> int:
    return next(sample.before for sample in attempt.samples if not sample.believes)


def sample(answer: dict[str, Any]) -> Sample:
    """Returns what a program said of its lock."""
    if "remaining" not in answer:
        raise RuntimeError(f"a program says nothing of its lock: {answer}")
    # A package may not know yet when a hold ends: 60 s at most, which is longer than any lease here.
    remaining = min(answer["remaining"], 60_000.0)
    return Sample(*answer["at"], int(remaining * 1000), answer["lost"])
