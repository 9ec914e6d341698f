"""The common part of the two classes of sessions: when heartbeats are due, and what is sent. Sends nothing, and does
not wait."""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from redis.exceptions import LockError, LockNotOwnedError, ResponseError, TimeoutError

from . import redis_py
from .acquisition import Acquisition, Debt
from .binding import Binding, LateOwed, Owed, Round
from .commands import Command, Name, Target, code, milliseconds
from .options import SHORTEST
from .validity import Sent, Validity

# The lease of each lock is at least this many times the session's timeout, unless `max_hold` is shorter. The server
# renews the lease when a third of it has passed, so a hold whose session was lost outlives the client's belief in it.
LEASES = 3
# The longest timeout of a session on the server, in seconds.
_LONGEST = 3600.0
# An exchange may take this part of the timeout, within these limits in seconds. With a timeout of 0.6 s or more, two
# may fail before the session is lost; with a shorter one, at least one.
_PART_FOR_ANSWER, _LONGEST_ANSWER, _SHORTEST_ANSWER = 1 / 6, 2.0, 0.1
# How many locks are bound again, or asked for their caps, in one exchange: few enough that a connection takes the
# commands without waiting.
_AT_ONCE = 100


class SessionBase:
    """Sends nothing, and does not wait."""

    def __init__(
        self,
        redis: Any,
        timeout: float = 10.0,
        *,
        on_lost: Callable[[LockNotOwnedError], Any] | None = None,
        manual: bool = False,
    ) -> None:
        """`timeout`: the server frees all locks of the session this many seconds (0.3 to 3600) after the last
        heartbeat. One is sent whenever a third of it has passed.

        `on_lost`: called once with the error if the session is lost, or must be assumed lost, before it is closed.

        `manual`: heartbeats are sent only while the program calls `beat`. If the loop that does the work calls it, the
        locks of a process whose loop hangs are freed.
        """
        if not SHORTEST <= timeout <= _LONGEST:
            raise ValueError(f"timeout must be 0.3 to 3600 seconds, not {timeout}")
        self.redis = redis
        self._milliseconds = milliseconds(timeout)
        # Not longer than the server is told.
        self.timeout = self._milliseconds / 1000
        # The name by which the server knows it.
        self.id = uuid.uuid4().hex
        self._on_lost = on_lost
        self._manual, self._beaten = manual, False
        self._process = os.getpid()
        self._lost: Any = None
        # Why it is not open. None: it is.
        self._not_open: str | None = _NEW
        # Until when the server certainly has it, once it was open; and when the next heartbeat is due, by
        # `time.monotonic()`.
        self._beats: Validity | None = None
        self._due = -math.inf
        # In a cluster, the sessions on the nodes decide.
        self._has_homes = False
        # The number of attempts to open it on a server. Locks that were granted before the last attempt must be bound
        # again.
        self.openings = 0
        # The two sets grow and shrink in single steps of the interpreter. They need no mutex, which an interrupt could
        # leave locked.
        self._bindings: set[Binding] = set()
        self._owed: set[Owed] = set()
        # Why the last heartbeat failed, if it did. The next one uses a new connection: those of the pool may lead to a
        # server that hangs, or was replaced.
        self._failed: Exception | None = None
        # Whether a lock, or something owed, may be on another server now.
        self._strayed = False
        self._prepare()

    def _prepare(self) -> None:
        """The rest of the construction."""

    def _signal(self) -> Any:
        """Returns what tells a loss."""
        raise NotImplementedError

    def _wake(self) -> None:
        """Something is due earlier than it was."""
        raise NotImplementedError

    def _tell(self, losses: list[tuple[Any, Callable[..., Any] | None, LockNotOwnedError]]) -> None:
        """Sets the signals, and calls the callbacks with the errors."""
        raise NotImplementedError

    # For the program

    @property
    def is_open(self) -> bool:
        """Returns whether it is open, as far as is known here."""
        return self._reason() is None

    def beat(self) -> None:
        """With `manual`: the program is alive. Sends nothing itself and does not wait, so call it often."""
        self._beaten = True
        if time.monotonic() >= self._due:
            self._wake()

    def _begin_opening(self) -> None:
        """Makes the signal of a loss. Raises `LockError` if the session was opened before."""
        if self._not_open != _NEW:
            raise LockError(f"A session is opened once: {self._not_open or 'it is open'}")
        self._lost = self._signal()

    def _loss(self) -> Any:
        if self._lost is None:
            self.check()
        return self._lost

    @property
    def _until(self) -> float:
        if self._has_homes:
            return math.inf
        return -math.inf if self._beats is None else self._beats.until

    # For its locks

    @property
    def has_locks(self) -> bool:
        """Returns whether it keeps something, or has something to release."""
        return bool(self._bindings or self._owed)

    def check(self) -> None:
        """Raises `LockError` if it is not open."""
        if (why := self._reason()) is not None:
            raise LockError(f"The session is not open: {why}")

    def _reason(self) -> str | None:
        if self._process != os.getpid():
            return "it belongs to the process that this one was forked from"
        return self._not_open or (_LATE if time.monotonic() >= self._until else None)

    def lease(self, lease: int | None) -> int:
        """Returns the lease of a lock in ms."""
        return max(lease or 0, LEASES * self._milliseconds)

    def missing(self) -> None:
        """A heartbeat is due now: the server does not know the session or one of its holds, a lock must be bound, or a
        cap is near."""
        self._due = time.monotonic()
        self._beaten = True
        self._wake()

    def join(self, binding: Binding, openings: int) -> None:
        """A lock was granted. `openings`: those of the session when the lock was first asked for. Raises `LockError` if
        the session is not open."""
        self._bindings.add(binding)
        if self._reason() is not None:
            self._bindings.discard(binding)
            self.check()
        hurries = binding.cap.is_near(time.monotonic() + self.timeout)
        if openings != self.openings and binding.unbound is None:
            binding.unbound, hurries = self._until, True
        if hurries:
            self.missing()

    def take(self, binding: Binding) -> None:
        """A lock comes from the session of another server."""
        self._bindings.add(binding)
        if binding._stopped:
            self._bindings.discard(binding)
        elif (why := self._reason()) is not None:
            self._lose_some([binding], f"its session is not open: {why}")
        else:
            self.missing()

    def _leave(self, binding: Binding) -> bool:
        was = binding in self._bindings
        self._bindings.discard(binding)
        return was

    def owe(self, owed: Owed) -> None:
        """Something must still be released."""
        if self._not_open is None:
            self._owed.add(owed)

    def owe_grant(self, attempt: Acquisition, debt: Debt) -> None:
        """An attempt may have left a grant behind."""
        self.owe(Owed(attempt.target.names[0], attempt.once_more(), attempt.undo, debt.token))

    def owe_late(self, target: Target, owner: bytes, request: str) -> None:
        """A late copy of a request may have left a grant behind. Not if a caller has named the owner by then."""
        for name in target.names:
            self.owe(LateOwed(target._replace(names=(name,)), owner, request))

    # Commands and replies

    def _command(self, option: str) -> Command:
        return ("DLOCK.SESSION", self.id, "PX", self._milliseconds, option)

    def _close_command(self) -> Command:
        return ("DLOCK.SESSION", self.id, "CLOSE")

    def _round(self) -> Round:
        """A heartbeat, and what follows from its reply. Opens the session if the server does not know it."""
        known = list(self._bindings)
        sent = self._sends()
        bound: Any = None
        if self.openings:
            [bound] = yield [self._command("XX")]
        if not self.openings or isinstance(bound, ResponseError) and code(bound) == "NOSESSION":
            if self._is_closed():
                return
            self._unbind()
            sent = self._sends(sent)
            [bound] = yield [self._command("NX")]
            if bound is None:
                # An earlier attempt has opened it, and its reply was lost.
                sent = self._sends(sent)
                [bound] = yield [self._command("XX")]
        redis_py.results([bound])
        self._doubt(known, bound)
        if self._is_closed() or not self._confirmed(sent):
            return
        self._not_open = None
        yield from self._bind()
        yield from self._ask_caps()
        for owed in list(self._owed):
            yield from owed.round()
            if owed.done:
                self._owed.discard(owed)
            self._strayed = self._strayed or not owed.done

    def _sends(self, refused: Sent | None = None) -> Sent:
        """A heartbeat is about to be sent. `refused`: the server has not executed the one before."""
        now = time.monotonic()
        if self._beats is None:
            return Sent(now)
        if refused is not None:
            self._beats.refused(now, refused)
        return self._beats.sends(now, self.timeout)

    def _confirmed(self, sent: Sent) -> bool:
        """Notes that a heartbeat was answered: its time counts from when it was sent. Returns whether that time is not
        over yet."""
        now = time.monotonic()
        if self._beats is not None:
            self._beats.ok(now, sent)
        else:
            beats = Validity(now, sent.at, self.timeout)
            if beats.is_lost:
                raise TimeoutError("the answer came too late")
            self._beats = beats
        self._due = self._beats.renew_at
        return now < self._until

    def _unbind(self) -> None:
        """The server has none of the bindings, and the holds are certain only for as long as they were."""
        self.openings += 1
        for binding in list(self._bindings):
            if binding.unbound is None:
                binding.unbound = self._until

    def _doubt(self, known: list[Binding], bound: int) -> None:
        """Marks locks as unbound if the server has fewer of them than it should: nobody knows yet which ones it lacks.
        Until it is bound again, each is certain only for as long as it was before this heartbeat.

        `known`: the locks that the session had when the heartbeat was sent. `bound`: the number of holds that the
        server has bound to the session.
        """
        known = [each for each in known if each in self._bindings and each.unbound is None]
        if bound < sum(len(each.bind) for each in known):
            for each in known:
                each.unbound = self._until

    def _bind(self) -> Round:
        """Binds the locks again that are marked as unbound."""
        for some in self._pieces([each for each in list(self._bindings) if each.unbound is not None]):
            replies = yield [command for each in some for command in each.bind]
            for each in some:
                self._bound(each, [replies.pop(0) for _ in each.bind])

    def _bound(self, binding: Binding, replies: list[Any]) -> None:
        """Takes the replies to a binding. After an error it is tried again, until the hold is not certain any more."""
        if any(isinstance(reply, redis_py.MOVING) for reply in replies):
            self._strayed = True
        elif None in replies:
            self._lose_some([binding], "the server has no such hold")
        elif any(isinstance(reply, ResponseError) and redis_py.wrong_type(reply) for reply in replies):
            self._lose_some([binding], "the key is no lock any more")
        elif not any(isinstance(reply, ResponseError) for reply in replies) and time.monotonic() < binding.ends():
            binding.unbound = None

    def _ask_caps(self) -> Round:
        """Asks for each cap that is not known yet and may end its lock soon."""
        # Two timeouts are enough to ask for thousands of caps.
        soon = time.monotonic() + 2 * self.timeout
        near = [each for each in list(self._bindings) if each.cap.is_near(soon)]
        for some in self._pieces(near):
            sent = time.monotonic()
            replies = yield [command for each in some for command in each.cap.asks]
            for each in some:
                if not each.cap.read(sent, [replies.pop(0) for _ in each.cap.asks]):
                    self._lose_some([each], "the server has no such hold")

    def _pieces(self, some: list[Binding]) -> Iterator[list[Binding]]:
        """Yields the bindings that the session still has, few at once, until the next heartbeat is due. Even a round
        that is late has one piece: otherwise a slow program, whose rounds are all late, would bind nothing."""
        for first in range(0, len(some), _AT_ONCE):
            if first and time.monotonic() >= self._due:
                return
            if piece := [each for each in some[first : first + _AT_ONCE] if each in self._bindings]:
                yield piece

    def _limit(self) -> float:
        """Returns until when an exchange may take."""
        now = time.monotonic()
        part = max(_SHORTEST_ANSWER, min(_LONGEST_ANSWER, self.timeout * _PART_FOR_ANSWER))
        return min(now + part, self._until)

    # The course of time

    def _pause(self) -> float:
        """Returns the seconds until something is due."""
        now = time.monotonic()
        events = [self._until, *(each.ends() for each in list(self._bindings))]
        if not self._manual or self._beaten:
            events.append(self._due)
        return max(0.0, min(events) - now)

    def _is_due(self) -> bool:
        """Returns whether a heartbeat must be sent. Loses the session, or locks, that are not certain any more."""
        now = time.monotonic()
        if now >= self._until:
            self._lose(_LATE if self._failed is None else f"{_LATE}: {self._failed}")
            return False
        late = [each for each in list(self._bindings) if now >= each.ends()]
        for why, capped in (("it was not bound to the session again in time", False), ("its cap ended it", True)):
            if some := [each for each in late if (now >= each.cap.at) == capped]:
                self._lose_some(some, why)
        if now < self._due or self._manual and not self._beaten:
            return False
        self._beaten = False
        return True

    def _went(self, error: Exception | None) -> None:
        """A round has ended. If it failed, or a lock is still unbound, the next one follows soon; with `manual`, not
        before the program calls `beat` again: a repeat would keep the session of a program that hangs for longer."""
        unbound = any(each.unbound is not None for each in list(self._bindings))
        self._failed = error
        if (error is not None or unbound) and self._beats is not None:
            self._due = self._beats.pauses(time.monotonic())

    def _is_closed(self) -> bool:
        return self._not_open == _CLOSED

    def _mark_closed(self) -> bool:
        """Marks the session closed, and sends nothing. Returns whether it was open."""
        was, self._not_open = self._not_open, _CLOSED
        return was is None and self._process == os.getpid()

    def _lose(self, why: str) -> None:
        self._not_open = why
        error = LockNotOwnedError(f"The session is lost: {why}")
        self._tell([(self._lost, self._on_lost, error), *self._losses(list(self._bindings), f"its session is not open: {why}")])

    def _lose_some(self, bindings: list[Binding], why: str) -> None:
        self._tell(self._losses(bindings, why))

    def _losses(
        self, bindings: Iterable[Binding], why: str
    ) -> list[tuple[Any, Callable[..., Any] | None, LockNotOwnedError]]:
        left = [each for each in bindings if self._leave(each)]
        for each in left:
            each.end()
        return [(each.lost, each.on_lost, each.error(why)) for each in left]


_NEW = "it was not opened"
_LATE = "no heartbeat was confirmed within its timeout"
_CLOSED = "it was closed"
