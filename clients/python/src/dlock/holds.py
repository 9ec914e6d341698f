"""What a lock object remembers of the lock it has: for each thread, for all threads, or for each task."""

from __future__ import annotations

import asyncio
import threading
import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Generic, TypeVar

C = TypeVar("C")


@dataclass
class Hold(Generic[C]):
    """A lock that was acquired."""

    # Who holds it, for the server.
    owner: bytes
    # The fencing token. None: the owner was set by hand (`lock.local.token = …`), so it is not known.
    token: int | None = None
    # The connection that a session hold is bound to.
    connection: C | None = None
    # How often it was entered.
    entries: int = 1
    # The id of a release that was not answered, and whether it was sent, so that it may have been executed.
    releasing: str | None = None
    release_sent: bool = False


class _Slot(Generic[C]):
    """Where the hold is kept. `token` is what redis-py calls it: the owner."""

    hold: Hold[C] | None = None

    @property
    def token(self) -> bytes | None:
        """The owner. To set it takes over a hold that somebody else acquired, as with redis-py's lock."""
        return None if self.hold is None else self.hold.owner

    @token.setter
    def token(self, owner: bytes | None) -> None:
        self.hold = None if owner is None else Hold(owner)


class Shared(_Slot[C], SimpleNamespace):
    """One hold for whoever has the lock object."""


class PerThread(_Slot[C], threading.local):
    """A hold for each thread."""


class PerTask(_Slot[C], SimpleNamespace):
    """A hold for each asyncio task, so that a reentrant lock is entered by the task that has it only."""

    def __init__(self) -> None:
        self._holds: weakref.WeakKeyDictionary[asyncio.Task[object], Hold[C]] = weakref.WeakKeyDictionary()

    @property
    def hold(self) -> Hold[C] | None:
        """That of the current task."""
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
