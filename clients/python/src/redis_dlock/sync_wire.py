"""Sends the commands of a lock, and waits for replies that may take long.

Commands that do not wait use the client's pool. A wait and a session use a connection of their own outside of it, so
that they cannot exhaust it. Nothing waits for a server longer than docs/time-limits.md says.
"""

from __future__ import annotations

import atexit
import math
import os
import time
import weakref
from typing import Any

from redis.exceptions import ConnectionError, NoPermissionError, ResponseError, TimeoutError

from . import info, owners, redis_py
from .acquisition import Acquisition, Debt, Replicas
from .commands import Command, Target
from .errors import ReplicasError
from .holds import ENDED_LATE, Hold
from .limited import Work
from .limits import STEP, UNNEEDED
from .sync_way import Way
from .talk import Line, Talk

# The pause between two looks at a connection that waits, while the server is asked whether it still answers.
_PROBING = 0.05
# The cleanups of acquisitions that were given up, and the releases in the background.
_clearings: weakref.WeakSet[Work[Any]] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    """The interpreter ends. Cleanups get a moment: the end of a program releases no lock that has a lease."""
    until = time.monotonic() + redis_py.CLEANING_AT_END
    for clearing in list(_clearings):
        clearing.wait(until)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_clearings.clear)


class Wire(Way):
    """The way to the server that has a key, with acquisitions."""

    def acquire(self, attempt: Acquisition) -> None:
        """Sets the attempt's token if the lock was granted, and for a session the connection it is bound to."""
        outage = redis_py.Outage()
        try:
            attempt.starts()
            while not attempt.course.turn.is_outcome:
                if attempt.token is None:
                    self._repeat_acquiring(attempt)
                replicas = attempt.replicas_in_time(time.monotonic())
                if attempt.token is not None and replicas is not None:
                    try:
                        self._confirm(attempt, replicas)
                    except redis_py.LOST as error:
                        attempt.repeats(time.monotonic())
                        time.sleep(outage.pause(attempt.limits.gives_up() - time.monotonic(), error))
                self._settle(attempt)
                self.release_former(attempt)
            if attempt.course.turn.do == "unreachable":
                raise TimeoutError("no reply in time")
            attempt.parts()
            _close_spare(attempt)
        except redis_py.LOST:
            self.give_up(attempt, seen=0.0)
            if not attempt.is_not_granted(time.monotonic()):
                raise
        except BaseException as error:
            if not attempt.goes_on(error):
                self.give_up(attempt)
            raise

    def give_up(self, attempt: Acquisition, seen: float = redis_py.CLEANING_SEEN) -> None:
        """Leaves no hold behind, as far as the server can be reached. The caller waits for the first moments only: long
        enough for a server that answers to release the lock, but not for one that does not answer."""
        # After an interrupt at any place, a second call does the rest.
        if attempt.connection is not None:
            attempt.connection.close()
            attempt.connection = None
        _close_spare(attempt)
        self.release_former(attempt)
        if attempt.debt is None:
            attempt.debt = attempt.owes()
        if (debt := attempt.debt) is not None:
            clearing = Work(lambda: self._clear(attempt, debt))
            _clearings.add(clearing)
            clearing.start()
            attempt.debt = None
            clearing.wait(time.monotonic() + seen)

    def undone(self, hold: Hold[Line], until: float) -> bool:
        """Waits for the undo of a re-entry that failed, and returns whether it has ended. A forked child leaves it to
        its parent."""
        if (attempt := hold.undoing) is None:
            return True
        debt = attempt.owed
        if debt is not None:
            if not hold.forked() and not debt.ended.wait(max(0.0, until - time.monotonic())):
                return False
            if not debt.is_paid():
                hold.doubts()
        hold.undoing = None
        return True

    def tell(self, commands: list[Command], hold: Hold[Line]) -> None:
        """Releases a hold in the background, and reports no failure. The caller waits for the first moments only."""
        until = redis_py.latest()

        def tell() -> None:
            self.undone(hold, until)
            self.ask(commands, until)

        telling = Work(tell)
        _clearings.add(telling)
        telling.start()
        telling.wait(time.monotonic() + redis_py.CLEANING_SEEN)

    def release_late(self, owner: bytes, target: Target, alive: list[Command], home: Any) -> None:
        """Releases in the background what a copy of a request takes after its end. Not while the hold is `alive` (no
        commands: there was none), since another lock object may have entered it, and not if a caller has named the
        owner. If the last try fails, the session `home` releases it later."""
        request = owners.new_request()

        def release() -> None:
            failure: Exception | None = None
            for pause in redis_py.SEES_AN_END:
                time.sleep(pause)
                try:
                    self._insist(owner, target, alive, request, time.monotonic() + redis_py.CLEANING)
                    failure = None
                except (*redis_py.LOST, ResponseError) as error:
                    failure = error
            if failure is not None and home is not None and not redis_py.wrong_type(failure):
                home.owe_late(target, owner, request)

        releasing = Work(release)
        # Without a thread, the caller would wait for the pauses.
        if releasing.begins():
            _clearings.add(releasing)

    def release_former(self, attempt: Acquisition) -> None:
        """Releases in the background what copies take of requests that are over."""
        while attempt.former:
            self.release_late(attempt.former[0], attempt.target, [], attempt.home)
            attempt.former.pop(0)

    def _insist(
        self, owner: bytes, target: Target, alive: list[Command], request: str, until: float
    ) -> None:
        def once() -> None:
            # A connection outside of the pool, which the program may have closed. Connecting needs no other thread.
            step = min(until, time.monotonic() + STEP)
            line = self.open(step, exactly=False)
            try:
                if alive and set(line.exchange(*alive, within=step - time.monotonic())) != {None}:
                    return
                replies = line.exchange(*target.ask(owner), within=step - time.monotonic())
                releases = info.releases(target, owner, replies, request)
                # A caller may have named the owner meanwhile.
                if releases and owner not in owners.named:
                    line.exchange(*releases, within=step - time.monotonic())
            finally:
                line.close()

        outage = redis_py.Outage()
        while True:
            try:
                self._follow(once, lambda: until)
                return
            except (*redis_py.LOST, redis_py.Unreachable) as error:
                pause = outage.pause(until - time.monotonic(), error)
            time.sleep(pause)

    def _clear(self, attempt: Acquisition, debt: Debt) -> None:
        if not debt.begins():
            return
        try:
            self._pay(attempt, debt, time.monotonic() + redis_py.CLEANING)
        finally:
            debt.ended.set()

    def _pay(self, attempt: Acquisition, debt: Debt, until: float) -> None:
        for talk in debt.talks:
            debt.reads(talk.end(until))
        if debt.owner is not None and debt.arrives_late():
            self.release_late(debt.owner, attempt.target, [], attempt.home)
        outage = redis_py.Outage()
        while debt.token is not None or debt.unanswered:
            try:
                self._undo(attempt, debt, until)
            except (*redis_py.LOST, redis_py.Unreachable) as error:
                try:
                    time.sleep(outage.pause(until - time.monotonic(), error))
                except redis_py.LOST:
                    return _leave_behind(attempt, debt)
            except ResponseError as refusal:
                return None if redis_py.wrong_type(refusal) else _leave_behind(attempt, debt)

    def _undo(self, attempt: Acquisition, debt: Debt, until: float) -> None:
        # The cleanup has a thread of its own, so that connecting needs no other: an interpreter that ends starts none.
        line = self.open(until, exactly=False)
        try:
            if debt.token is None:
                debt.reads(line.exchange(attempt.once_more(), within=until - time.monotonic()))
            if debt.token is not None:
                debt.undos += 1
                line.exchange(*attempt.undo(debt.token), within=until - time.monotonic())
                debt.token = None
        finally:
            line.close()

    def _repeat_acquiring(self, attempt: Acquisition) -> None:
        """Repeats after a lost connection, for as long as the attempt looks for a server."""
        outage = redis_py.Outage()
        while True:
            try:
                self._follow(lambda: self._once(attempt), attempt.limits.gives_up)
                if attempt.token is not None and attempt.may_end_late():
                    raise ConnectionError(ENDED_LATE)
                return
            except (*redis_py.LOST, redis_py.Unreachable) as error:
                attempt.loses(time.monotonic())
                time.sleep(outage.pause(attempt.limits.gives_up() - time.monotonic(), error))
                attempt.forgive(time.monotonic(), error)
            _close_spare(attempt)

    def _settle(self, attempt: Acquisition) -> None:
        """Asks whether the server still has a grant that counts from long ago: another may have the lock since."""
        outage = redis_py.Outage()
        while attempt.course.turn.do == "confirm":
            number, until = attempt.asks(time.monotonic())
            try:
                replies = self._question(attempt, min(until, time.monotonic() + STEP))
                attempt.confirmed(time.monotonic(), number, replies)
            except NoPermissionError:
                # A user who may not renew has the lock for as long as its grant is certain.
                attempt.course.refused(time.monotonic(), number)
                if attempt.course.over(time.monotonic()).do != "granted":
                    raise
            except (*redis_py.LOST, redis_py.Unreachable) as error:
                if attempt.course.cut(time.monotonic(), number).do == "granted":
                    return  # The time of the wait is over, and the grant is certain.
                time.sleep(outage.pause(until - time.monotonic(), error))
                if attempt.session:
                    return attempt.repeats(time.monotonic())
            if attempt.token is None and attempt.connection is not None:
                attempt.connection.close()
                attempt.connection = None

    def _question(self, attempt: Acquisition, until: float) -> list[Any]:
        """Asks whether the server still has the grant. Returns the replies."""
        commands = attempt.confirms()
        if attempt.session:
            return list(attempt.connection.exchange(*commands, within=until - time.monotonic()))
        return list(self._follow(lambda: self._exchanged(commands, until), lambda: until))

    def _exchanged(self, commands: list[Command], until: float) -> list[Any]:
        with self._talk(until) as talk:
            return talk.exchange(*commands, within=until - time.monotonic())

    def _once(self, attempt: Acquisition) -> None:
        attempt.check()
        self._look(attempt.limits.step(time.monotonic()))
        if attempt.named is not None:
            attempt.enters(attempt.named.home(self._name, attempt.limits.step(time.monotonic())))
        tries = attempt.course.turn.do == "try"
        if tries and not attempt.session and (not attempt.limits.waits or self._lends(attempt)):
            step = attempt.limits.step(time.monotonic())
            with redis_py.Crowd(self._source()), self._talk(step, attempt) as talk:
                _try(talk, attempt)
            if attempt.course.turn.do != "wait":
                return
        self._wait(attempt)

    def _lends(self, attempt: Acquisition) -> bool:
        """Returns whether the pool is worth asking before a wait."""
        pool = self._source()
        return redis_py.Crowd.room(pool) and (not attempt.lent or redis_py.has_open_connection(pool))

    def _wait(self, attempt: Acquisition) -> None:
        """Waits on a connection of its own, `lines[0]`. During a move to a new one, `lines[1]` is the former one."""
        lines: list[Line] = []
        try:
            if attempt.course.turn.do == "try" and self._granted_at_once(attempt, lines):
                return
            if lines:
                _send(lines[0], attempt)
            else:
                self._ask_to_wait(attempt, lines)
            while True:
                while not self._answers(lines[0], attempt):
                    # The repeat takes over the place in the queue. The first gets nil, or the same token.
                    before = attempt.last
                    self._ask_to_wait(attempt, lines)
                    if _leave(lines.pop(), attempt):
                        attempt.course.settled(before)
                if _read(lines[0], attempt, time.monotonic()) is not None or attempt.course.turn.do != "wait":
                    break
                _send(lines[0], attempt)
            if attempt.session and attempt.token is not None:
                attempt.connection = lines[0]
        finally:
            for line in () if attempt.connection is not None else lines:
                if not attempt.keeps(line):
                    line.done()

    def _granted_at_once(self, attempt: Acquisition, lines: list[Line]) -> bool:
        """Asks without waiting. Returns whether the attempt is over: it was granted, or its time has passed. Otherwise
        the server has said that the lock is held, so that a wait that ends late is no outage."""
        self._begin(attempt, lines)
        attempt.sends(time.monotonic())
        lines[0].send(attempt.first())
        if _read(lines[0], attempt, attempt.limits.step(time.monotonic())) is not None and attempt.session:
            attempt.connection = lines[0]
        return attempt.course.turn.do != "wait"

    def _ask_to_wait(self, attempt: Acquisition, lines: list[Line]) -> None:
        self._begin(attempt, lines)
        _send(lines[0], attempt)

    def _begin(self, attempt: Acquisition, lines: list[Line]) -> None:
        """Makes a connection, and releases there what former owners of the attempt have."""
        until = attempt.limits.step(time.monotonic())
        lines.insert(0, self.open(until))
        releases = [command for owner in attempt.former for command in attempt.release_all(owner)]
        if releases:
            lines[0].send(*releases)
            replies = [lines[0].read(until) for _ in releases]
            if not any(isinstance(reply, ResponseError) for reply in replies):
                self.release_former(attempt)

    def _answers(self, line: Line, attempt: Acquisition) -> bool:
        """Waits for a reply. Returns False when it is time for another connection."""
        now = time.monotonic()
        pause = attempt.limits.moves_on(now)
        moves = math.inf if pause is None else now + pause
        latest = attempt.limits.answer_by(now) or math.inf
        missed = False
        first = attempt.limits.soonest(now)
        while True:
            asks = max(attempt.limits.heartbeat(), first)
            if missed:
                asks = time.monotonic() + attempt.limits.outage / 30
            if line.answers(min(moves, latest, asks)):
                return True
            now = time.monotonic()
            if now >= latest or now >= attempt.limits.gives_up() and attempt.limit() is None:
                raise TimeoutError("no reply in time")
            if now >= moves:
                return False
            if now < asks:
                continue
            there = self._probe(line, attempt)
            if there is None:
                missed = True
            elif missed or there != redis_py.address(line.connection):
                return False

    def _probe(self, line: Line, attempt: Acquisition) -> object:
        """Returns the address of a server that answers. None: none does, or the wait has ended meanwhile."""
        until = attempt.limits.probe(time.monotonic())
        asking = Work(lambda: self._ping(until))
        asking.start()
        try:
            while not asking.wait(min(until, time.monotonic() + _PROBING)):
                if time.monotonic() >= until or line.answers(time.monotonic()):
                    return None
            there = asking.outcome()
            attempt.hears(time.monotonic())
            return there
        except (*redis_py.LOST, redis_py.Unreachable):
            return None
        finally:
            asking.abandon()

    def _ping(self, until: float) -> object:
        pool = self._source()
        lent = redis_py.open_connection(pool)
        talk = self.open(until) if lent is None else Talk(lent, pool.release)
        try:
            talk.send(("PING",))
            talk.read(until)
            return redis_py.address(talk.connection)
        finally:
            talk.done()

    def _confirm(self, attempt: Acquisition, replicas: Replicas) -> None:
        """Raises `ReplicasError` unless enough replicas have the grant."""
        assert attempt.token is not None
        if attempt.acknowledged is None:
            # The command that got the grant had no `WAIT` behind it, and a later one may not wait for the grant: Redis
            # before 7.0.12 does not count a grant to a blocked client as a write of its connection, and an earlier copy
            # may have got it on another connection. A renewal is a write of the connection that sends `WAIT`.
            renewals = attempt.target.renew(attempt.owner, attempt.token, attempt.lease)
            number, now = attempt.course.renews(time.monotonic()), time.monotonic()
            until = attempt.limit() or now + STEP + replicas.answer_within()
            renewed = self._renew_with(renewals, replicas, until, attempt.connection)
            attempt.replicated(time.monotonic(), number, renewed)
        elif attempt.acknowledged < replicas.count:
            raise ReplicasError(replicas.too_few(attempt.acknowledged))


def _close_spare(attempt: Acquisition) -> None:
    """Gives back the connections that the attempt does not need. After an interrupt, a second call does the rest."""
    while attempt.spare:
        attempt.spare[-1].done()
        attempt.spare.pop()


def _leave_behind(attempt: Acquisition, debt: Debt) -> None:
    """A grant that cannot be undone ends with its lease, unless its session keeps it."""
    if attempt.home is not None:
        attempt.home.owe_grant(attempt, debt)


def _leave(line: Line, attempt: Acquisition) -> bool:
    """Waits a moment for the server to take the place in the queue from a connection, and closes it. Returns whether
    the server has. If not, the connection of a session stays open: a late grant may still be bound to it. Raises
    `ConnectionError` if that connection has ended."""
    answered = False
    try:
        answered = line.answers(time.monotonic() + redis_py.LENDING)
    except redis_py.LOST:
        if attempt.session:
            raise
    finally:
        if answered or not attempt.session:
            line.close()
        else:
            attempt.late.append(line)
    return answered


def _try(talk: Talk, attempt: Acquisition) -> None:
    """Sends the command that does not wait, with `WAIT` behind it if replicas must have the grant. An earlier copy may
    have been granted on another connection: then `WAIT` would wait for nothing here, and a renewal comes first."""
    commands = [attempt.first()]
    replicas = None if attempt.course.may_be_granted else attempt.replicas_in_time(time.monotonic())
    if replicas is not None:
        commands.append(replicas.wait())
    attempt.sends(time.monotonic())
    talk.send(*commands)
    _read(talk, attempt, attempt.limits.step(time.monotonic()))
    if replicas is None:
        return
    if attempt.token is not None:
        try:
            [attempt.acknowledged] = redis_py.results([talk.read(time.monotonic() + replicas.answer_within())])
        except redis_py.LOST:
            attempt.repeats(time.monotonic())
            talk.leave()
            raise
    elif talk.answers(time.monotonic() + UNNEEDED):
        # A connection that still waits for replicas is closed instead.
        talk.read(time.monotonic() + UNNEEDED)


def _send(talk: Talk, attempt: Acquisition) -> None:
    """Sends the command that waits."""
    attempt.sends(time.monotonic())
    talk.send(attempt.command(time.monotonic()))


def _read(talk: Talk, attempt: Acquisition, until: float) -> int | None:
    """Reads the reply to an acquiring command into the attempt."""
    reply = talk.read(until)
    attempt.takes(time.monotonic(), reply)
    return attempt.token
