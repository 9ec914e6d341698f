"""The common part of the two lock classes: settings, the memory of a hold, and how replies are read."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from redis.exceptions import LockError, LockNotOwnedError, ResponseError

from . import commands, info, owners, redis_py
from .acquisition import Acquisition, Replicas
from .binding import Binding, Cap
from .commands import Command, Mode, Name, Target, rest_of
from .errors import DeadlockError, attach, logger
from .heartbeat import Terms
from .holds import Hold, PerTask, PerThread, Shared, SharedValidity, thread
from .limits import Limits
from .options import SHORTEST_LEASE, check_cap, check_certain, check_label, check_limit, check_names, check_seconds
from .scripts import Scripts
from .session import SessionBase
from .validity import MARGIN, Sent

C = TypeVar("C")


class LockBase(Scripts, Generic[C]):
    """Sends nothing, and does not wait."""

    # As redis-py declares them.
    name: Any
    local: Any
    # The lease of a grant in seconds, if it is longer than the timeout.
    _begins_with: float | None = None

    def __init__(
        self,
        redis: Any,
        name: Name,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        mode: Mode = "exclusive",
        session: bool | SessionBase | None = None,
        reentrant: bool = False,
        auto_renewal: bool = False,
        on_lost: Callable[[LockNotOwnedError], Any] | None = None,
        replicas: int = 0,
        replicas_timeout: float = 1.0,
        wait_slice: float | None = None,
        outage: float = 30.0,
        max_hold: float | None = None,
        at_least: float | None = None,
        label: str | None = None,
    ) -> None:
        """The parameters up to `raise_on_release_error` are those of redis-py's lock. These work differently:

        `timeout`: the lease in seconds. None, without `session` and `at_least`: the lock is held for as long as its
        connection lives (a session). This connection is not one of the client's pool.

        `sleep` is not used for waiting, which happens in the server. It is the pause between two looks at a key that is
        not a dlock lock, because another program locks it with `SET NX`.

        New options:

        `mode`: "read" shares the lock with other readers, "write" excludes them; "exclusive" is a lock without
        readers.

        `session`: bind the hold to a connection even if it has a timeout (True), or never (False: without a timeout, it
        ends with the server's default lease). None: if it has no timeout. An open `Session` of the same pool:
        bind the hold to it. The session keeps it, so `auto_renewal` has no effect, and its lease is at least three
        times the session's timeout, or `max_hold` if that is shorter.

        `reentrant`: the holder (the thread; in asyncio the task) may acquire the lock again, and releases it as often.

        `auto_renewal`: a lock with a timeout is renewed until it is released or lost, or until its lock object is gone.

        `on_lost`: called once with the error if the lock is lost, or must be assumed lost, before it is released. The
        lock of threads calls it in a thread of its own; that of asyncio calls it in the event loop, and awaits what it
        returns.

        `replicas`: a grant counts only if this many replicas acknowledge it within `replicas_timeout` seconds,
        or what is left of the wait. If fewer do, it is released, and `ReplicasError` is raised.

        `wait_slice`: for connections that something on the way closes when they are idle. No command waits longer
        than this many seconds. Well before that, the next one is sent on a second connection and takes over the place
        in the queue.

        `outage`: how long a wait without `blocking_timeout` looks for a server, in seconds since the last answer of
        one. Then the error of redis-py is raised. With a `blocking_timeout`, an outage counts as waiting.

        `max_hold`: the lock ends this many seconds after the grant, even if `auto_renewal`, a session or `extend`
        renews it, so a job that hangs does not keep it. `lost` and `remaining` count to that end.

        `at_least`: the lock stays this many seconds after the grant, even if it is released earlier, or if this process
        ends. Work that takes longer needs a `timeout` and `auto_renewal`. Not for sessions: their end frees the lock.

        `label`: what `dlock info` calls the owner; a random end follows. Without it: host, process and number.
        """
        if mode not in ("exclusive", "read", "write"):
            raise ValueError(f"mode must be exclusive, read or write, not {mode!r}")
        named = session if isinstance(session, SessionBase) else None
        if named is not None and redis_py.servers_of(redis) is not redis_py.servers_of(named.redis):
            raise ValueError("the session belongs to a client with another pool")
        if auto_renewal and not timeout and named is None:
            raise ValueError("auto_renewal needs a timeout: without one, the server renews the lock")
        check_certain("timeout", timeout)
        check_certain("at_least", at_least)
        check_limit("blocking_timeout", blocking_timeout)
        check_seconds(replicas_timeout=replicas_timeout, wait_slice=wait_slice)
        check_label(label)
        if replicas < 0:
            raise ValueError(f"replicas must be 0 or more, not {replicas}")
        if replicas_timeout <= 0:
            raise ValueError(f"replicas_timeout must be more than 0, not {replicas_timeout}")
        if outage <= 0:
            raise ValueError(f"outage must be more than 0, not {outage}")
        if at_least:
            if session:
                raise ValueError("at_least needs a lease: the end of a session frees its locks")
            if at_least > (max_hold or at_least):
                raise ValueError(f"at_least must be max_hold ({max_hold}) at most, not {at_least}")
            timeout = timeout or at_least
        check_cap(max_hold, timeout, binds=named is not None or (session is True or session is None and not timeout))
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.mode: Mode = mode
        self.session = session
        self._named = named
        self.reentrant = reentrant
        self.auto_renewal = auto_renewal
        self.on_lost = on_lost
        self.wait_slice = wait_slice
        self.outage = outage
        self.max_hold = max_hold
        self.at_least = at_least
        self.label = label
        self._cap = None if max_hold is None else commands.milliseconds(max_hold)
        self._replicas = Replicas(replicas, replicas_timeout) if replicas else None
        self._target = self._what()
        check_names(self._target.names)
        self.local = self._memory()
        self._prepare()

    def _what(self) -> Target:
        return Target((self.name,), self.mode, self.reentrant)

    def _prepare(self) -> None:
        """The rest of the construction."""

    def _memory(self) -> Shared[C] | PerThread[C] | PerTask[C]:
        return PerThread(thread) if self.thread_local else Shared(thread)

    @property
    def _hold(self) -> Hold[C] | None:
        hold: Hold[C] | None = self.local.hold
        if hold is not None and hold.elsewhere():
            self.local.forget(hold)
            return None
        return hold

    def _held(self) -> Hold[C]:
        hold = self._hold
        if hold is None:
            raise self._error("The lock is not held")
        return hold

    def _live(self) -> Hold[C]:
        hold = self._held()
        if time.monotonic() >= hold.claims():
            raise self._not_owned("The lock is no longer held: its lease has ended, or its connection, or it was lost")
        return hold

    @property
    def owner(self) -> bytes:
        """The holder, as the server knows it. Pass it to `acquire(token=…)` of another lock object: a reader that wants
        to write has to be the same owner. Raises `LockError` if the lock is not held."""
        return self._live().owner

    @property
    def token(self) -> int:
        """The fencing token. Every grant has a higher one: send it along with every write, and let the receiver refuse
        lower tokens than it has seen. Raises `LockError` if the lock is not held or its owner was set by hand, and
        `LockNotOwnedError` when its lease or the connection of its session has ended, or it is lost."""
        token = self._live().token
        if token is None:
            raise self._error("The token is not known, because the owner was set by hand")
        return token

    @property
    def remaining(self) -> float:
        """The seconds for which the lock is certainly held if nothing renews it any more; 0 when it is lost, and while the
        connection of its session has ended and another one is not bound yet. `inf` for the first second of a session
        without a timeout, and for a lock whose owner was set by hand. Raises `LockError` if the lock is not held."""
        return max(0.0, self._held().claims() - time.monotonic())

    # Acquiring

    def _attempt(self, blocking: bool | None, blocking_timeout: float | None, token: str | bytes | None) -> Acquisition:
        """Returns a new acquisition, with an owner of its own unless the caller named one."""
        blocking = self.blocking if blocking is None else blocking
        patience = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        now = time.monotonic()
        # A limit that has passed already means no wait: the lock is asked for once.
        waits = blocking and (patience is None or patience > 0)
        check_limit("blocking_timeout", patience)
        owner = owners.new(self.label) if token is None else redis_py.encoder(self.redis).encode(token)
        if token is not None:
            owners.named.append(owner)
        ends = None if patience is None or not waits else now + patience
        session = not self.timeout if self.session is None else self.session is True
        limits = Limits(now, ends, waits, self.outage, self.wait_slice)
        attempt = Acquisition(
            self._target, owner, self._first_lease(), session, limits, self._replicas, self._cap,
            functools.partial(owners.new, self.label) if token is None else None,
        )
        attempt.named = self._named
        return attempt

    def _entry(self, hold: Hold[C]) -> Acquisition:
        """Returns a re-entry. It never waits, and leaves the binding to a connection as it is."""
        # The id of the re-entry replaces that of the first request, a late copy of which would count as one more entry.
        hold.is_entered_late = hold.is_entered_late or hold.is_copied
        target = Target((self.name,), self.mode, reentrant=True)
        limits = Limits(time.monotonic(), None, waits=False)
        return Acquisition(target, hold.owner, self._lease(), session=False, limits=limits, asks_old=False)

    def _first_lease(self) -> int | None:
        """Returns the lease of a grant. The end of this process must not shorten the time that the lock stays."""
        lease, longest = self._lease(), self.at_least or self._begins_with
        return lease if lease is None or not longest else max(lease, commands.milliseconds(longest))

    def _lease(self) -> int | None:
        lease = commands.milliseconds(self.timeout) if self.timeout else None
        if self._named is None:
            return lease
        lease = self._named.lease(lease)
        return lease if self._cap is None else min(lease, self._cap)

    def _again(self) -> Hold[C] | None:
        """Returns the hold that would be entered again."""
        hold: Hold[C] | None = self.local.own() if self.reentrant else None
        if hold is None or hold.token is None or hold.forked() or hold.is_ending():
            return None
        return hold

    def _lost_before_entry(self, hold: Hold[C]) -> LockNotOwnedError:
        self.local.forget(hold)
        return self._not_owned("Cannot enter a lock again that's no longer owned")

    # Reading errors

    def _refused(self, attempt: Acquisition, error: ResponseError) -> None:
        """Raises the error of an acquisition, unless a program has locked the key with `SET NX`."""
        if commands.code(error) == "DEADLOCK":
            raise DeadlockError(str(error), lock_name=self._printed()) from error
        if not redis_py.wrong_type(error):
            raise error
        attempt.held(time.monotonic())

    def _printed(self) -> str:
        names: tuple[Name, ...] = self._target.names
        return " ".join(name if isinstance(name, str) else bytes(name).decode(errors="replace") for name in names)

    def _error(self, message: str) -> LockError:
        return LockError(message, lock_name=self._printed())

    def _not_owned(self, message: str) -> LockNotOwnedError:
        return LockNotOwnedError(message, lock_name=self._printed())

    def _not_acquired(self) -> LockError:
        return self._error("Unable to acquire lock within the time specified")

    # Releasing and renewing

    def _remember(self, attempt: Acquisition) -> tuple[Hold[C], list[Hold[C]]]:
        """Remembers a grant. Returns its hold, and those that it replaces."""
        course = attempt.course
        since, lasts, now, named = course.sent, course.lasts, time.monotonic(), self._named is not None
        hold: Hold[C] = Hold(
            attempt.owner, attempt.token, attempt.connection,
            SharedValidity(now, since, math.inf if named else lasts, is_open=course.is_open),
            earliest=since + lasts - MARGIN if named else math.inf,
            latest=since + self.max_hold - MARGIN if named and self.max_hold is not None else math.inf,
            entries=self._target.permits,
            slot=attempt.slot,
            late=list(attempt.late),
            home=attempt.home,
            openings=attempt.openings,
            is_own=attempt.owners is not None,
            is_copied=attempt.course.may_be_granted,
            # Counted from now, which is late enough: the grant came before.
            stays_until=time.monotonic() + self.at_least if self.at_least else -math.inf,
        )
        replaced = self.local.add(hold, alone=self.mode != "read")
        attempt.late = []
        return hold, replaced

    def _entered(self, hold: Hold[C]) -> bool:
        """Takes a re-entry into the memory. Returns whether the server must be asked how long it lasts: a cap may have cut
        it."""
        hold.entries += 1
        return bool(self.timeout) and hold.watch is None

    def _copied(self, hold: Hold[C], attempt: Acquisition) -> None:
        """Notes whether a copy of a re-entry may be executed later."""
        if attempt.is_copied:
            hold.is_copied = hold.is_entered_late = True

    def _take_over(self, owner: str | bytes) -> None:
        encoded: bytes = redis_py.encoder(self.redis).encode(owner)
        hold = self._hold
        if hold is None or hold.owner != encoded:
            self.local.token = encoded
            self._held().entries = self._target.permits

    def _to_release(self) -> Hold[C]:
        hold = self._hold
        if hold is None:
            raise self._error("Cannot release a lock that's not owned or is already unlocked.")
        return hold

    def _stays(self, hold: Hold[C], entries: int) -> bool:
        """Returns whether a release leaves the lock to a lease."""
        return hold.entries <= entries and time.monotonic() < hold.stays_until

    def _release(self, hold: Hold[C], entries: int, stays: bool) -> list[Command]:
        """Returns the commands of a release. One that was sent before and not answered has the same commands again."""
        if stays:
            hold.is_leaving = True
            return self._target.renew(hold.owner, hold.token, max(1, rest_of(hold.stays_until)))
        if hold.releasing is not None and hold.releasing[1] != entries:
            hold.unsure, hold.releasing = hold.unsure or hold.release_sent, None
        if hold.releasing is None:
            hold.releasing, hold.release_sent = (owners.new_request(), entries), False
            hold.was_held = not hold.ended()
        every = hold.entries <= entries and self._in_doubt(hold)
        return self._target.release(hold.owner, hold.token, *hold.releasing, every=every)

    def _in_doubt(self, hold: Hold[C]) -> bool:
        """Returns whether the server may count an entry that the caller does not have."""
        # If a caller has named the owner, another lock object may have entered the hold, too: its entry must stay.
        entered_late = hold.is_entered_late and hold.owner not in owners.named
        return hold.token is not None and (hold.unsure or entered_late or hold.undoing is not None)

    def _leaves_to_last(self, hold: Hold[C], entries: int) -> bool:
        """Counts an inner release that is not sent, or not again: the last release releases all entries. Returns False if
        this is the last one."""
        if hold.entries <= entries:
            return False
        hold.doubts()
        hold.entries -= entries
        return True

    def _may_be_held_late(self, hold: Hold[C]) -> bool:
        """Returns whether a copy of the request of a hold that ends may take the lock again."""
        return hold.is_copied and hold.is_own and not hold.forked() and time.monotonic() >= hold.stays_until

    def _release_later(self, hold: Hold[C]) -> None:
        """Has the session release the hold, if the hold is bound to one: otherwise the session would keep it."""
        if isinstance(hold.watch, Binding) and hold.token is not None:
            every = self._in_doubt(hold)
            times = hold.entries if self.reentrant and not every else 1
            entries = hold.entries if self._target.limit is not None else 1
            owner, token = hold.owner, hold.token
            requests = [owners.new_request() for _ in range(times)]
            if hold.releasing is not None and hold.is_ending():
                # A release that was sent, and that the server may execute late, is the same one.
                requests[0] = hold.releasing[0]
            releases = [self._target.release(owner, token, request, entries, every=every) for request in requests]
            hold.watch.release_later([command for release in releases for command in release])

    def _still_entered(self, hold: Hold[C], reply: int | None, entries: int, stays: bool) -> bool:
        """Takes the reply to a release into the memory. If the lock is no longer held, forgets the hold."""
        hold.releasing, hold.release_sent = None, False
        if reply == 0 and not stays:
            hold.entries -= entries
            return True
        self.local.forget(hold)
        return False

    def _no_longer_owned(self, doing: str) -> LockNotOwnedError:
        return self._not_owned(f"Cannot {doing} a lock that's no longer owned")

    def _to_renew(self, doing: str) -> tuple[Hold[C], float]:
        """Returns the hold, and the timeout in seconds."""
        hold = self._hold
        if hold is None:
            raise self._error(f"Cannot {doing} an unlocked lock")
        if self.timeout is None:
            raise self._error(f"Cannot {doing} a lock with no timeout")
        return hold, self.timeout

    def _left(self, hold: Hold[C]) -> list[Command]:
        """Returns the commands that ask how many milliseconds are left, and so whether the hold is live."""
        if hold.token is None:
            return self._target.ask(hold.owner)
        return self._target.check(hold.token)

    def _left_of(self, hold: Hold[C], replies: list[Any]) -> int | None:
        if hold.token is None:
            holds = [info.of_owner(reply, self.mode) for reply in replies]
            replies = [None if found is None else found["ttl"] for found in holds]
        left = least(replies)
        if left is None and hold.token is not None:
            hold.gone()
        return left

    def _renewing(self, hold: Hold[C], lease: int, doing: str) -> Sent:
        """A renewal is about to be sent. Raises `LockNotOwnedError` if the lock is lost, and `ValueError` for a lease
        of which nothing would be certain."""
        if 0 < lease < SHORTEST_LEASE:
            raise ValueError(
                f"a lease must be {SHORTEST_LEASE} ms or more (no hold is certain for a shorter one), not {lease} ms"
            )
        now = time.monotonic()
        hold.validity.passes(now)
        if hold.validity.is_lost:
            raise self._no_longer_owned(doing)
        # The server refuses a lease of 0 or less, and a named session knows by itself until when the hold is certain.
        sent = hold.validity.sends(now, lease / 1000) if lease > 0 and self._named is None else Sent(now)
        if hold.watch is not None:
            hold.watch.changed()
        return sent

    def _renewed(self, hold: Hold[C], sent: Sent, lease: int) -> None:
        """The server has renewed the hold. `lease`: the ms that it lasts."""
        if hold.watch is not None:
            hold.watch.renewed(sent.at, lease / 1000)

    def _terms(self, hold: Hold[C], token: int) -> Terms:
        renews = self.auto_renewal or self._replicas is not None and hold.connection is not None
        # Keeps no reference to the hold, nor to this object.
        renewal = functools.partial(self._target.renew_for, hold.owner, token, self._lease(), hold.stays_until)
        error: Callable[[str], LockNotOwnedError] = functools.partial(LockNotOwnedError, lock_name=self._printed())
        bind = self._target.renew(hold.owner, token, self._lease(), bind=True)
        every, lease = self.timeout if self.at_least else None, self._lease()
        return Terms(
            renewal if renews else None, bind, self._target.check(token), None if lease is None else lease / 1000, every,
            hold.stays_until, self._replicas, error,
        )

    def _binding(self, hold: Hold[C], token: int) -> Binding:
        """Returns the binding of a hold to its named session, which does not know of it yet."""
        bind = functools.partial(self._target.bind, hold.owner, token)
        asks = self._target.ask(hold.owner)
        cap = Cap(asks, self.mode, token, hold.latest, hold.earliest)
        return Binding(hold.home, self._target.names[0], bind, cap, self._printed(), self.on_lost, hold.openings)

    def _is_of_parent(self) -> bool:
        """Returns whether the hold is of the parent of this forked process. The parent is still in its block, and
        releases the lock at the end."""
        hold: Hold[C] | None = self.local.hold
        return hold is not None and hold.forked()

    def _exit(self, body: BaseException | None, error: Exception) -> None:
        """A release at the end of a `with` block has failed. The error of the body wins."""
        if body is not None:
            attach(body, error, f"The release of {self._printed()} failed")
        elif self.raise_on_release_error or not isinstance(error, LockError):
            raise error
        else:
            logger.warning("%s was released, or no longer owned, before the end of its block: %s", self._printed(), error)


def least(replies: list[Any]) -> int | None:
    """Returns the lowest of the replies; None if one of them is None."""
    return None if None in replies else min(replies)
