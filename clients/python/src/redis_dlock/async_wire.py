"""As `sync_wire`, for asyncio."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from redis.exceptions import ConnectionError, NoPermissionError, ResponseError, TimeoutError

from . import info, owners, redis_py
from .acquisition import Acquisition, Debt, Replicas
from .async_talk import BUSY, Line, Talk, cancel, in_background, replies, start
from .async_way import Way, in_time
from .commands import Command, Target
from .errors import ReplicasError
from .holds import ENDED_LATE, Hold
from .limits import STEP, UNNEEDED

Reply = asyncio.Future[Any]


class Wire(Way):
    """The way to the server that has a key, with acquisitions."""

    async def acquire(self, attempt: Acquisition) -> None:
        """Sets the attempt's token if the lock was granted, and for a session the connection it is bound to."""
        attempt.starts()
        work = start(self._acquire(attempt))
        try:
            while not work.done():
                limit = attempt.limit()
                left = None if limit is None else limit - time.monotonic()
                await asyncio.wait({work}, timeout=left if left is None else max(left, BUSY))
                if left is not None and left <= 0 and not work.done():
                    raise TimeoutError("no reply in time")
            work.result()
        except BaseException as error:
            if attempt.goes_on(error):
                raise
            attempt.abandoned = True
            attempt.clearing = start(self._abandon(attempt, work))
            lost = isinstance(error, redis_py.LOST)
            await in_background(attempt.clearing, 0.0 if lost else redis_py.CLEANING_SEEN)
            if not lost or not attempt.is_not_granted(time.monotonic()):
                raise

    async def _acquire(self, attempt: Acquisition) -> None:
        outage = redis_py.Outage()
        while not attempt.course.turn.is_outcome:
            if attempt.token is None:
                await self._repeat_acquiring(attempt)
            replicas = attempt.replicas_in_time(time.monotonic())
            if attempt.token is not None and replicas is not None:
                try:
                    await self._confirm(attempt, replicas)
                except redis_py.LOST as error:
                    attempt.repeats(time.monotonic())
                    await asyncio.sleep(outage.pause(attempt.limits.gives_up() - time.monotonic(), error))
            await self._settle(attempt)
            await self.release_former(attempt)
        if attempt.course.turn.do == "unreachable":
            raise TimeoutError("no reply in time")
        attempt.parts()
        await _close_spare(attempt)

    async def _abandon(self, attempt: Acquisition, work: asyncio.Task[None]) -> None:
        """Leaves no place in the queue and no hold."""
        try:
            await cancel(work)
        except asyncio.CancelledError:
            # The event loop ends.
            await cancel(work)
            await self._give_up(attempt, redis_py.CLEANING_AT_END)
            raise
        await self._give_up(attempt, redis_py.CLEANING)

    async def give_up(self, attempt: Acquisition) -> None:
        """Leaves no hold behind, as far as the server can be reached."""
        if not attempt.abandoned:
            await self._give_up(attempt, redis_py.CLEANING)

    async def undone(self, hold: Hold[Line], until: float) -> bool:
        """Waits for the undo of a re-entry that failed, and returns whether it has ended."""
        if (attempt := hold.undoing) is None:
            return True
        clearing = attempt.clearing
        if not clearing.done():
            await asyncio.wait({clearing}, timeout=max(0.0, until - time.monotonic()))
        if not clearing.done():
            return False
        debt = attempt.owed
        if clearing.cancelled() or clearing.exception() is not None or debt is not None and not debt.is_paid():
            hold.doubts()
        hold.undoing = None
        return True

    async def tell(self, commands: list[Command], hold: Hold[Line]) -> None:
        """Releases a hold in the background, and reports no failure. The caller waits for the first moments only."""
        await in_background(self._told(commands, hold, redis_py.latest()))

    async def _told(self, commands: list[Command], hold: Hold[Line], until: float) -> None:
        await self.undone(hold, until)
        await self.ask(commands, until)

    async def release_late(self, owner: bytes, target: Target, alive: list[Command], home: Any) -> None:
        """Releases in the background what a copy of a request takes after its end. Not while the hold is `alive` (no
        commands: there was none), since another lock object may have entered it, and not if a caller has named the
        owner. If the last try fails, the session `home` releases it later."""
        request = owners.new_request()
        pauses = list(redis_py.SEES_AN_END)

        async def release(until: float) -> None:
            failure: Exception | None = None
            while pauses:
                await asyncio.sleep(pauses[0])
                try:
                    await self._insist(owner, target, alive, request, min(until, time.monotonic() + redis_py.CLEANING))
                    failure = None
                except (*redis_py.LOST, ResponseError) as error:
                    failure = error
                pauses.pop(0)
            if failure is not None and home is not None and not redis_py.wrong_type(failure):
                home.owe_late(target, owner, request)

        async def to_the_end() -> None:
            try:
                await release(math.inf)
            except asyncio.CancelledError:
                # The event loop ends, and waits for what it has cancelled.
                await release(time.monotonic() + redis_py.CLEANING_AT_END)
                raise

        await in_background(to_the_end(), 0.0)

    async def release_former(self, attempt: Acquisition) -> None:
        """Releases in the background what copies take of requests that are over."""
        while attempt.former:
            # Taken first: a clean-up in the background does the same at the same time.
            owner = attempt.former.pop(0)
            try:
                await self.release_late(owner, attempt.target, [], attempt.home)
            except BaseException:
                attempt.former.append(owner)
                raise

    async def _insist(
        self, owner: bytes, target: Target, alive: list[Command], request: str, until: float
    ) -> None:
        async def once() -> None:
            # A connection outside of the pool, which the program may have closed.
            step = min(until, time.monotonic() + STEP)
            line = await self.open(step)
            try:
                if alive and set(await line.exchange(*alive, within=step - time.monotonic())) != {None}:
                    return
                replies = await line.exchange(*target.ask(owner), within=step - time.monotonic())
                releases = info.releases(target, owner, replies, request)
                # A caller may have named the owner meanwhile.
                if releases and owner not in owners.named:
                    await line.exchange(*releases, within=step - time.monotonic())
            finally:
                await line.close()

        outage = redis_py.Outage()
        while True:
            try:
                await self._follow(once, lambda: until)
                return
            except (*redis_py.LOST, redis_py.Unreachable) as error:
                pause = outage.pause(until - time.monotonic(), error)
            await asyncio.sleep(pause)

    async def _give_up(self, attempt: Acquisition, seconds: float) -> None:
        debt = attempt.owes()
        try:
            await self._clear(attempt, debt, time.monotonic() + seconds)
        except asyncio.CancelledError:
            # The event loop ends, and waits for what it has cancelled. The end of a program releases no lock that has a
            # lease.
            await self._clear(attempt, debt, time.monotonic() + redis_py.CLEANING_AT_END)
            raise

    async def _clear(self, attempt: Acquisition, debt: Debt | None, until: float) -> None:
        line, attempt.connection = attempt.connection, None
        if line is not None:
            await line.close()
        await _close_spare(attempt)
        await self.release_former(attempt)
        if debt is None:
            return
        for talk in debt.talks:
            debt.reads(await talk.end(until))
        if debt.owner is not None and debt.arrives_late():
            await self.release_late(debt.owner, attempt.target, [], attempt.home)
        outage = redis_py.Outage()
        while debt.token is not None or debt.unanswered:
            try:
                await self._undo(attempt, debt, until)
            except (*redis_py.LOST, redis_py.Unreachable) as error:
                try:
                    await asyncio.sleep(outage.pause(until - time.monotonic(), error))
                except redis_py.LOST:
                    return _leave_behind(attempt, debt)
            except ResponseError as refusal:
                return None if redis_py.wrong_type(refusal) else _leave_behind(attempt, debt)

    async def _undo(self, attempt: Acquisition, debt: Debt, until: float) -> None:
        line = await self.open(until)
        try:
            if debt.token is None:
                debt.reads(await line.exchange(attempt.once_more(), within=until - time.monotonic()))
            if debt.token is not None:
                debt.undos += 1
                await line.exchange(*attempt.undo(debt.token), within=until - time.monotonic())
                debt.token = None
        finally:
            await line.close()

    async def _repeat_acquiring(self, attempt: Acquisition) -> None:
        """Repeats after a lost connection, for as long as the attempt looks for a server."""
        outage = redis_py.Outage()
        while True:
            try:
                await self._follow(lambda: self._once(attempt), attempt.limits.gives_up)
                if attempt.token is not None and attempt.may_end_late():
                    raise ConnectionError(ENDED_LATE)
                return
            except (*redis_py.LOST, redis_py.Unreachable) as error:
                attempt.loses(time.monotonic())
                await asyncio.sleep(outage.pause(attempt.limits.gives_up() - time.monotonic(), error))
                attempt.forgive(time.monotonic(), error)
            await _close_spare(attempt)

    async def _settle(self, attempt: Acquisition) -> None:
        """Asks whether the server still has a grant that counts from long ago: another may have the lock since."""
        outage = redis_py.Outage()
        while attempt.course.turn.do == "confirm":
            number, until = attempt.asks(time.monotonic())
            try:
                replies = await self._question(attempt, min(until, time.monotonic() + STEP))
                attempt.confirmed(time.monotonic(), number, replies)
            except NoPermissionError:
                # A user who may not renew has the lock for as long as its grant is certain.
                attempt.course.refused(time.monotonic(), number)
                if attempt.course.over(time.monotonic()).do != "granted":
                    raise
            except (*redis_py.LOST, redis_py.Unreachable) as error:
                if attempt.course.cut(time.monotonic(), number).do == "granted":
                    return  # The time of the wait is over, and the grant is certain.
                await asyncio.sleep(outage.pause(until - time.monotonic(), error))
                if attempt.session:
                    return attempt.repeats(time.monotonic())
            if attempt.token is None and attempt.connection is not None:
                await attempt.connection.close()
                attempt.connection = None

    async def _question(self, attempt: Acquisition, until: float) -> list[Any]:
        """Asks whether the server still has the grant. Returns the replies."""
        commands = attempt.confirms()
        if attempt.session:
            return list(await attempt.connection.exchange(*commands, within=until - time.monotonic()))

        async def exchanged() -> list[Any]:
            async with self._talk(until) as talk:
                return await talk.exchange(*commands, within=until - time.monotonic())

        return list(await self._follow(lambda: in_time(exchanged(), until), lambda: until))

    async def _once(self, attempt: Acquisition) -> None:
        attempt.check()
        await self._look(_step(attempt))
        if attempt.named is not None:
            attempt.enters(await attempt.named.home(self._name, attempt.limits.step(time.monotonic())))
        tries = attempt.course.turn.do == "try"
        if tries and not attempt.session and (not attempt.limits.waits or self._lends(attempt)):
            with redis_py.Crowd(self._source()):
                async with self._talk(_step(attempt), attempt) as talk:
                    await _try(talk, attempt)
            if attempt.course.turn.do != "wait":
                return
        await self._wait(attempt)

    def _lends(self, attempt: Acquisition) -> bool:
        """Returns whether the pool is worth asking before a wait."""
        source = self._source()
        return redis_py.Crowd.room(source) and (not attempt.lent or redis_py.has_open_connection(source))

    async def _wait(self, attempt: Acquisition) -> None:
        """Waits on a connection of its own, `lines[0]`. During a move to a new one, `lines[1]` is the former one."""
        lines: list[Line] = []
        try:
            if attempt.course.turn.do == "try" and await self._granted_at_once(attempt, lines):
                return
            reply = await self._send(lines[0], attempt) if lines else await self._ask_to_wait(attempt, lines)
            while True:
                while not await self._answers(lines[0], reply, attempt):
                    before, number = reply, attempt.last
                    # The repeat takes over the place in the queue. The first gets nil, or the same token.
                    reply = await self._ask_to_wait(attempt, lines)
                    await asyncio.wait({before}, timeout=redis_py.LENDING)
                    line, told = lines.pop(), before.result() if before.done() else TimeoutError()
                    is_open = isinstance(told, redis_py.LOST) and redis_py.may_be_executed(told)
                    if not is_open:
                        attempt.course.settled(number)
                    if not is_open or not attempt.session:
                        await line.close()
                        continue
                    attempt.late.append(line)
                    if before.done():
                        redis_py.results([told])
                _judge(attempt, reply.result())
                if attempt.course.turn.do != "wait":
                    break
                reply = await self._send(lines[0], attempt)
            if attempt.session and attempt.token is not None:
                attempt.connection = lines[0]
        finally:
            for line in () if attempt.connection is not None else lines:
                if not attempt.keeps(line):
                    await line.done()

    async def _granted_at_once(self, attempt: Acquisition, lines: list[Line]) -> bool:
        """Asks without waiting. Returns whether the attempt is over: it was granted, or its time has passed. Otherwise
        the server has said that the lock is held, so that a wait that ends late is no outage."""
        await self._begin(attempt, lines)
        attempt.sends(time.monotonic())
        _judge(attempt, *await replies(await lines[0].send(attempt.first()), _step(attempt)))
        if attempt.token is not None and attempt.session:
            attempt.connection = lines[0]
        return attempt.course.turn.do != "wait"

    async def _ask_to_wait(self, attempt: Acquisition, lines: list[Line]) -> Reply:
        await self._begin(attempt, lines)
        return await self._send(lines[0], attempt)

    async def _begin(self, attempt: Acquisition, lines: list[Line]) -> None:
        """Makes a connection, and releases there what former owners of the attempt have."""
        until = _step(attempt)
        lines.insert(0, await self.open(until))
        releases = [command for owner in attempt.former for command in attempt.release_all(owner)]
        if releases:
            answers = await replies(await lines[0].send(*releases), until)
            if not any(isinstance(answer, Exception) for answer in answers):
                await self.release_former(attempt)

    async def _send(self, line: Line, attempt: Acquisition) -> Reply:
        """Sends the command that waits."""
        attempt.sends(time.monotonic())
        [reply] = await line.send(attempt.command(time.monotonic()))
        return reply

    async def _answers(self, line: Line, reply: Reply, attempt: Acquisition) -> bool:
        """Waits for a reply. Returns False when it is time for another connection."""
        now = time.monotonic()
        pause = attempt.limits.moves_on(now)
        moves = math.inf if pause is None else now + pause
        # The caller of the attempt sees to the limit of a wait.
        latest = math.inf if attempt.limit() is not None else attempt.limits.answer_by(now) or math.inf
        missed = False
        first = attempt.limits.soonest(now)
        while True:
            asks = max(attempt.limits.heartbeat(), first)
            if missed:
                asks = time.monotonic() + attempt.limits.outage / 30
            pause = min(moves, latest, asks) - time.monotonic()
            await asyncio.wait({reply}, timeout=max(0.0, pause))
            if reply.done():
                return True
            now = time.monotonic()
            if now >= latest or now >= attempt.limits.gives_up() and attempt.limit() is None:
                raise TimeoutError("no reply in time")
            if now >= moves:
                return False
            if now < asks:
                continue
            there = await self._probe(reply, attempt)
            if there is None:
                missed = True
            elif missed or there != redis_py.address(line.connection):
                return False

    async def _probe(self, reply: Reply, attempt: Acquisition) -> object:
        """Returns the address of a server that answers. None: none does, or the wait has ended meanwhile."""
        until = attempt.limits.probe(time.monotonic())
        asking = start(self._ping(until))
        try:
            left = max(0.0, until - time.monotonic())
            await asyncio.wait({asking, reply}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() or asking.exception() is not None:
                return None
            attempt.hears(time.monotonic())
            return asking.result()
        finally:
            asking.cancel()

    async def _ping(self, until: float) -> object:
        source = self._source()
        if redis_py.has_open_connection(source):
            talk = Talk(await source.get_connection(), source.release)
        else:
            talk = await self.open(until)
        try:
            [reply] = await replies(await talk.send(("PING",)), until)
            if isinstance(reply, redis_py.LOST):
                raise reply  # `LOADING`, too: nobody has looked at the lock.
            return redis_py.address(talk.connection)
        finally:
            await talk.done()

    async def _confirm(self, attempt: Acquisition, replicas: Replicas) -> None:
        """Raises `ReplicasError` unless enough replicas have the grant."""
        assert attempt.token is not None
        if attempt.acknowledged is None:
            # The command that got the grant had no `WAIT` behind it, and a later one may not wait for the grant: Redis
            # before 7.0.12 does not count a grant to a blocked client as a write of its connection, and an earlier copy
            # may have got it on another connection. A renewal is a write of the connection that sends `WAIT`.
            renewals = attempt.target.renew(attempt.owner, attempt.token, attempt.lease)
            number, now = attempt.course.renews(time.monotonic()), time.monotonic()
            until = attempt.limit() or now + STEP + replicas.answer_within()
            renewed = await self._renew_with(renewals, replicas, until, attempt.connection)
            attempt.replicated(time.monotonic(), number, renewed)
        elif attempt.acknowledged < replicas.count:
            raise ReplicasError(replicas.too_few(attempt.acknowledged))


def _step(attempt: Acquisition) -> float:
    """Returns until when a connection may be made, or a command that does not wait be answered. The caller of the
    attempt sees to the limit of a wait."""
    return attempt.limits.step(time.monotonic()) if attempt.limit() is None else time.monotonic() + STEP


async def _close_spare(attempt: Acquisition) -> None:
    """Gives back the connections that the attempt does not need. After a cancellation, a second call does the rest."""
    while attempt.spare:
        await attempt.spare[-1].done()
        attempt.spare.pop()


def _leave_behind(attempt: Acquisition, debt: Debt) -> None:
    """A grant that cannot be undone ends with its lease, unless its session keeps it."""
    if attempt.home is not None:
        attempt.home.owe_grant(attempt, debt)


async def _try(talk: Talk, attempt: Acquisition) -> None:
    """Sends the command that does not wait, with `WAIT` behind it if replicas must have the grant. An earlier copy may
    have been granted on another connection: then `WAIT` would wait for nothing here, and a renewal comes first."""
    commands = [attempt.first()]
    replicas = None if attempt.course.may_be_granted else attempt.replicas_in_time(time.monotonic())
    if replicas is not None:
        commands.append(replicas.wait())
    attempt.sends(time.monotonic())
    first, *others = await talk.send(*commands)
    _judge(attempt, *await replies([first], _step(attempt)))
    if replicas is None:
        return
    if attempt.token is None:
        # A connection that still waits for replicas then is closed.
        await asyncio.wait(others, timeout=UNNEEDED)
        return
    try:
        acknowledged = await replies(others, time.monotonic() + replicas.answer_within())
        [attempt.acknowledged] = redis_py.results(acknowledged)
    except redis_py.LOST:
        attempt.repeats(time.monotonic())
        await talk.leave()
        raise


def _judge(attempt: Acquisition, reply: Any) -> None:
    """Takes the reply to an acquiring command into the attempt."""
    if isinstance(reply, redis_py.LOST):
        redis_py.results([reply])
    attempt.takes(time.monotonic(), reply)
