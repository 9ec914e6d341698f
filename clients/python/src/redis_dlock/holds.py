"""The memory that a lock object has of its locks: one hold for each acquisition."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from .validity import Validity

C = TypeVar("C")
# Why a hold is lost for which `Hold.may_end_late` is true.
ENDED_LATE = "a connection ended on which a command that binds it had no answer"


class SharedValidity(Validity):
    """A validity that the thread of its lock and the one that renews it change."""

    def __init__(self, now: float, sent: float, lease: float, *, is_open: bool = False) -> None:
        self._guard = threading.Lock()
        super().__init__(now, sent, lease, is_open=is_open)


def _guarded(change: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(change)
    def guarded(self: SharedValidity, *args: Any, **kwargs: Any) -> Any:
        if sys.is_finalizing():
            # No other thread goes on, and one that stopped in the middle of a change keeps the guard.
            return change(self, *args, **kwargs)
        with self._guard:
            return change(self, *args, **kwargs)

    return guarded


for _name in (
    "passes", "release", "gone", "sends", "ok", "cut", "refused", "capped", "asks", "left", "ends_by", "unasked",
):
    setattr(SharedValidity, _name, _guarded(getattr(Validity, _name)))


@dataclass(eq=False)
class Hold(Generic[C]):
    """A lock that was acquired."""

    # The holder, as the server knows it.
    owner: bytes
    # The fencing token. None: the owner was set by hand (`lock.local.token = …`), so the token is not known.
    token: int | None = None
    # The connection that a session hold is bound to.
    connection: C | None = None
    # Until when the hold is certain by its lease. No lease ends a hold without a token, nor one of a named session,
    # which ends with its binding.
    validity: SharedValidity = field(default_factory=lambda: SharedValidity(0.0, 0.0, math.inf))
    # When a cap may end the hold of a named session: the earliest possible time, and the time of the cap that was asked
    # for.
    earliest: float = math.inf
    latest: float = math.inf
    # The number of entries; of a semaphore: of permits.
    entries: int = 1
    # The number that came with a permit.
    slot: int | None = None
    # Whether the owner was made for it. One that the caller has named may have another hold after this one.
    is_own: bool = False
    # Whether a copy of its request, or of a re-entry, got no answer: the copy may be executed after the release.
    is_copied: bool = False
    # Whether a copy of a re-entry, or of a request before one, got no answer: after the owner's next request, the copy
    # would count as one more entry. The last release then releases all entries.
    is_entered_late: bool = False
    # The release that was not answered yet: its id, and the number of entries that it releases.
    releasing: tuple[str, int] | None = None
    # Whether that release was sent, and so may have been executed.
    release_sent: bool = False
    # Whether its last release leaves the lock to a lease (`at_least`), and was not answered.
    is_leaving: bool = False
    # Whether it was certain when that release began.
    was_held: bool = True
    # The re-entry that is undone in the background. Until that has ended, no other command with `REQUEST` is sent for this
    # hold: the server keeps one id for each hold, and would execute the repeat of the undo as a new entry.
    undoing: Any = None
    # Whether the server may count other entries than this one: the outcome of a release or of an undo is not known. Then
    # inner releases are only counted here, and the last release releases all entries: a late or repeated command must not
    # release an entry that the caller has.
    unsure: bool = False
    # Renews the lock, or notices its loss. Of a hold of a named session: its binding.
    watch: Any = None
    # The time before which the hold is not released, by `time.monotonic()`.
    stays_until: float = -math.inf
    # The hold's named session, on the server that granted it.
    home: Any = None
    # How often its named session had been opened before it was acquired. -1: it may come from another node.
    openings: int = 0
    # Connections on which a command that binds it was not answered: it may still arrive.
    late: list[C] = field(default_factory=list)
    # The process that acquired it.
    process: int = field(default_factory=os.getpid)

    def ends(self) -> float:
        """Returns until when it is certain, as far as is known here."""
        return self.validity.until if self.watch is None else float(self.watch.until())

    def claims(self) -> float:
        """Returns until when the user may count on it."""
        return self.validity.until if self.watch is None else float(self.watch.claims())

    def ended(self) -> bool:
        """Returns whether it is lost, or must be assumed lost, as far as is known here."""
        return time.monotonic() >= self.ends()

    def gone(self) -> None:
        """The server has no such hold."""
        self.validity.gone(time.monotonic())
        if self.watch is not None:
            self.watch.look_now()

    def is_ending(self) -> bool:
        """Returns whether its last release was begun, and not answered. A copy of the release may end it at any time."""
        return self.is_leaving or self.releasing is not None and self.releasing[1] >= self.entries

    def doubts(self) -> None:
        """A release or an undo of an entry may be executed or not. It is not repeated: the server may keep another id by
        then, and would release one entry too many."""
        self.unsure, self.releasing, self.release_sent = True, None, False

    def connections(self) -> list[C]:
        """Returns the connections that it may be bound to."""
        bound: list[C] = [] if self.connection is None else [self.connection]
        return [*bound, *self.late]

    def may_end_late(self) -> bool:
        """Returns whether a connection has ended on which a command that binds it was not answered: if the server
        executes the command late, the end of that connection releases it."""
        late: list[Any] = list(self.late)
        return any([line.has_ended() for line in late])

    def unbinds(self) -> None:
        """Forgets its connections, which are closed."""
        self.connection, self.late = None, []

    def forked(self) -> bool:
        """Returns whether another process acquired it, from which this one was forked."""
        return self.process != os.getpid()

    def elsewhere(self) -> bool:
        """Returns whether this process has no part in it. A lease that nothing renews may be handed over by a fork."""
        return (self.connection is not None or self.watch is not None) and self.forked()


class _Thread:
    """Stands for a thread, because a later thread may get the same thread id."""


_threads = threading.local()


def thread() -> object:
    """Returns what stands for the thread that calls."""
    try:
        return _threads.me
    except AttributeError:
        _threads.me = _Thread()
        return _threads.me


def task() -> object:
    """Returns the asyncio task that calls, or what stands for its thread."""
    try:
        return asyncio.current_task() or thread()
    except RuntimeError:
        return thread()


class _Entry(Generic[C]):
    """A hold, and who acquired it."""

    __slots__ = ("_caller", "hold")

    def __init__(self, caller: object, hold: Hold[C]) -> None:
        self._caller = weakref.ref(caller)
        self.hold = hold

    def is_of(self, caller: object) -> bool:
        return self._caller() is caller

    def is_left(self) -> bool:
        """Returns whether it has ended, and whoever acquired it cannot ask for it any more."""
        caller = self._caller()
        over = caller is None or isinstance(caller, asyncio.Task) and caller.done()
        return over and self.hold.ended()


class _Memory(Generic[C]):
    """The holds of the callers: threads or tasks. A caller that has none uses the latest one of the others."""

    # Lists, which one step of the interpreter changes: no lock is needed that an interrupt could leave locked.
    _entries: list[_Entry[C]]
    _caller: Callable[[], object]

    def own(self) -> Hold[C] | None:
        """Returns the latest hold of the caller."""
        caller = self._caller()
        return next((each.hold for each in reversed(list(self._entries)) if each.is_of(caller)), None)

    @property
    def hold(self) -> Hold[C] | None:
        """The hold that a call means."""
        own = self.own()
        if own is not None:
            return own
        entries = list(self._entries)
        return entries[-1].hold if entries else None

    def find(self, owner: bytes, token: int | None) -> Hold[C] | None:
        """Returns the hold of this grant."""
        found = [each.hold for each in list(self._entries) if each.hold.owner == owner and each.hold.token == token]
        return found[0] if found else None

    def add(self, hold: Hold[C], *, alone: bool) -> list[Hold[C]]:
        """Remembers a hold of the caller. Forgets and returns the caller's older holds that have ended, and those that
        ended without a caller. `alone`: all older ones of the caller, because the new hold proves that none is left."""
        caller = self._caller()
        old = [
            each for each in list(self._entries)
            if each.is_left() or each.is_of(caller) and (alone or each.hold.ended())
        ]
        self._entries.append(_Entry(caller, hold))
        for each in old:
            self._drop(each)
        return [each.hold for each in old]

    def remembers(self, hold: Hold[C]) -> bool:
        """Returns whether this hold is not forgotten."""
        return any([each.hold is hold for each in list(self._entries)])

    def forget(self, hold: Hold[C]) -> None:
        """Forgets this hold, and no other one."""
        for each in list(self._entries):
            if each.hold is hold:
                self._drop(each)

    def _drop(self, entry: _Entry[C]) -> None:
        try:
            self._entries.remove(entry)
        except ValueError:
            pass  # A different thread did it.

    @property
    def token(self) -> bytes | None:
        """The owner, as redis-py calls it. As with redis-py's lock, setting it takes over a hold that was acquired
        elsewhere."""
        hold = self.hold
        return None if hold is None else hold.owner

    @token.setter
    def token(self, owner: bytes | None) -> None:
        hold = self.hold
        if hold is not None:
            self.forget(hold)
        if owner is not None:
            self._entries.append(_Entry(self._caller(), Hold(owner)))


class Shared(_Memory[C], SimpleNamespace):
    """For every user of the lock object."""

    def __init__(self, caller: Callable[[], object]) -> None:
        self._entries, self._caller = [], caller


class PerThread(_Memory[C], threading.local):
    """For each thread by itself."""

    def __init__(self, caller: Callable[[], object]) -> None:
        self._entries, self._caller = [], caller


class PerTask(_Memory[C], SimpleNamespace):
    """For each asyncio task by itself, so that only the task that has a reentrant lock enters it again."""

    def __init__(self) -> None:
        self._all: weakref.WeakKeyDictionary[Any, list[_Entry[C]]] = weakref.WeakKeyDictionary()
        self._caller = task

    @property
    def _entries(self) -> list[_Entry[C]]:  # type: ignore[override]
        if not isinstance(self._caller(), asyncio.Task):
            raise RuntimeError("a reentrant lock is used by tasks")
        return self._all.setdefault(self._caller(), [])
