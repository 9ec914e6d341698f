"""The memory that a lock object has of its lock: for each thread, for all threads, or for each task."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

C = TypeVar("C")


@dataclass(eq=False)
class Hold(Generic[C]):
    """A lock that was acquired."""

    # The holder, as the server knows it.
    owner: bytes
    # The fencing token. None: the owner was set by hand (`lock.local.token = …`), so the token is not known.
    token: int | None = None
    # The connection that a session hold is bound to.
    connection: C | None = None
    # When the command that was granted was sent, by `time.monotonic()`; for a grant after a wait, when it was read.
    since: float = 0.0
    queued: bool = False
    # The grant is not older.
    asked: float = 0.0
    # When it ends by itself unless it is renewed, by `time.monotonic()`. For a session, and while it is watched, the
    # watch knows.
    until: float = math.inf
    # The shortest lease in seconds of the renewals that were sent and not answered. One may still arrive, and cut a longer
    # lease that was confirmed meanwhile.
    shortest: float = math.inf
    # When it ends, whatever renews it, as far as is known.
    cap: float = math.inf
    # The number of entries; of a semaphore: of permits.
    entries: int = 1
    # The number that came with a permit.
    slot: int | None = None
    # The id of a release that was not answered with the number of entries, and whether it was sent, so that it may have
    # been executed.
    releasing: tuple[str, int] | None = None
    release_sent: bool = False
    # Renews the lock, or notices its loss. Of a hold of a named session: its binding.
    watch: Any = None
    # It is not released before, by `time.monotonic()`.
    stays_until: float = -math.inf
    # Its named session, on the server that granted it.
    home: Any = None
    # How often its named session had been opened before it was acquired.
    openings: int = 0
    # Connections on which a command that binds it was not answered: it may still arrive.
    late: list[C] = field(default_factory=list)
    # The process that acquired it.
    process: int = field(default_factory=os.getpid)

    def ends(self) -> float:
        """Returns until when it is certain, as far as is known here."""
        return self.until if self.watch is None else float(self.watch.until())

    def ended(self) -> bool:
        """Returns whether it is lost, or must be assumed lost, as far as is known here."""
        if self.watch is not None:
            return bool(self.watch.is_lost)
        return time.monotonic() >= self.until

    def renewing(self, sent: float, lease: float) -> Callable[[], None]:
        """A renewal is sent that may shorten the lease. Until it is answered, no more than the shorter lease is certain.
        Returns what to call if the server refuses it."""
        until, shortest = self.until, self.shortest
        self.until, self.shortest = min(until, sent + lease), min(shortest, lease)
        undo: Callable[[], None] | None = None if self.watch is None else self.watch.renewing(sent, lease)

        def refused() -> None:
            self.until, self.shortest = until, shortest
            if undo is not None:
                undo()

        return refused

    def gone(self) -> None:
        """The server has no such hold."""
        self.until = -math.inf
        if self.watch is not None:
            self.watch.look_now()

    def connections(self) -> list[C]:
        """Returns the connections that it may be bound to, and forgets them."""
        bound: list[C] = [] if self.connection is None else [self.connection]
        all_of_them = [*bound, *self.late]
        self.connection, self.late = None, []
        return all_of_them

    def elsewhere(self) -> bool:
        """Returns whether it belongs to the process that this one was forked from."""
        return self.process != os.getpid() and (self.connection is not None or self.watch is not None)


class _Slot(Generic[C]):
    """Where the hold is kept. `token` is what redis-py calls it: the owner."""

    hold: Hold[C] | None = None

    @property
    def token(self) -> bytes | None:
        """The owner. As with redis-py's lock, setting it takes over a hold that was acquired elsewhere."""
        return None if self.hold is None else self.hold.owner

    @token.setter
    def token(self, owner: bytes | None) -> None:
        self.hold = None if owner is None else Hold(owner)


class Shared(_Slot[C], SimpleNamespace):
    """One hold, for every user of the lock object."""


class PerThread(_Slot[C], threading.local):
    """A hold for each thread."""


class PerTask(_Slot[C], SimpleNamespace):
    """A hold for each asyncio task, so that only the task that has a reentrant lock enters it again."""

    def __init__(self) -> None:
        self._holds: weakref.WeakKeyDictionary[asyncio.Task[object], Hold[C]] = weakref.WeakKeyDictionary()

    @property
    def hold(self) -> Hold[C] | None:
        """The hold of the current task."""
        task = asyncio.current_task()
        return None if task is None else self._holds.get(task)

    @hold.setter
    def hold(self, hold: Hold[C] | None) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a reentrant lock is used by tasks")
        if hold is None:
            self._holds.pop(task, None)
        else:
            self._holds[task] = hold
