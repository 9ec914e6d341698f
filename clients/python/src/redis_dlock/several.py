"""Semaphores, and several locks at once, for threads and processes. The server's module must have `DLOCK.SACQUIRE` and
`DLOCK.MACQUIRE`."""

# Written by scripts/python-threads from async_several.py.

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TypeVar

from redis.exceptions import LockError

from . import redis_py
from .sync import DLock
from .talk import Line
from .sync_wire import Wire
from .commands import Name, Target
from .errors import attach
from .holds import Hold
from .options import check_names
from .permits import Permits, is_full

A = TypeVar("A", bound="AllOf")


class Permit(DLock):
    """Permits of a semaphore, taken together, with one lease and one token."""

    def __init__(self, redis: Any, name: Name, limit: int, permits: int, numbered: bool, **settings: Any) -> None:
        self._limit, self._permits, self._numbered = limit, permits, numbered
        super().__init__(redis, name, mode="read", thread_local=False, **settings)

    def _what(self) -> Target:
        return Target((self.name,), self.mode, limit=self._limit, permits=self._permits, numbered=self._numbered)

    @property
    def slot(self) -> int:
        """The number of the permit: the lowest of 0 to `limit` - 1 that was free. Raises `LockError` if the permit is
        not held, or the semaphore gives no numbers. Raises `LockNotOwnedError` if the permit is lost: another program
        may have its number then."""
        slot = self._live().slot
        if slot is None:
            raise self._error("The permit has no number: slots=True asks for one")
        return slot

    def release(self) -> None:
        """Releases all of the permits that are left."""
        self._give_back(self._to_release().entries)

    def _released(self, hold: Hold[Line]) -> int:
        return hold.entries

    def give_back(self, number: int) -> None:
        """Releases some of the permits. The others keep the lease and the token."""
        self._give_back(number)

    def _leaves_permits(self, number: int) -> None:
        """Counts permits as released whose release has failed, because nobody repeats the release."""
        if (hold := self._hold) is not None:
            self._leaves_to_last(hold, number)


class DSemaphore:
    """A semaphore with the interface of `threading.BoundedSemaphore`: at most `limit` permits are taken at a time, by all
    programs together.

        with DSemaphore(redis, "downloads", 5, timeout=30) as permit:
            work(fence=permit.token)

    Waiting happens in the server, strictly first come, first served. The limit belongs to each request: nothing is
    created on the server, and nothing is left behind.
    """

    def __init__(
        self, redis: Any, name: Name, limit: int, timeout: float | None = None, *, slots: bool = False, **settings: Any
    ) -> None:
        """`timeout` and the other settings are those of `DLock`; each acquisition has a lease of its own. `slots`: each
        permit has a number, too, which no other permit has at the same time (`permit.slot`)."""
        if limit < 1:
            raise ValueError(f"limit must be 1 or more, not {limit}")
        check_names([name])
        redis_py.check_client(redis, asyncio=False)
        self.redis = redis
        self.name = name
        self.limit = limit
        self._slots = slots
        self._settings = {"timeout": timeout, **settings}
        self._taken: Permits[Permit] = Permits(threading.get_ident)

    def permit(self, permits: int = 1) -> Permit:
        """Returns a lock object for this number of permits, which is not acquired yet."""
        if not 1 <= permits <= self.limit:
            raise ValueError(f"permits must be 1 to limit, which is {self.limit}, not {permits}")
        if permits > 1 and self._settings.get("at_least"):
            raise ValueError(f"permits must be 1 with at_least, not {permits}")
        if permits > 1 and self._slots:
            raise ValueError(f"permits must be 1 with slots=True, not {permits}")
        return Permit(self.redis, self.name, self.limit, permits, self._slots, **self._settings)

    def acquire(self, blocking: bool = True, timeout: float | None = None, *, permits: int = 1) -> bool:
        """Takes this number of permits, and returns whether they were granted. `timeout` is the number of seconds to
        wait; None: no limit."""
        if not blocking and timeout is not None:
            raise ValueError(f"timeout must be None with blocking=False, not {timeout}")
        return self._take(self.permit(permits), permits, blocking=blocking, blocking_timeout=timeout)

    def _take(self, permit: Permit, permits: int, **how: Any) -> bool:
        """Acquires permits, and records which caller has them. After an interrupt, no caller has them."""
        try:
            if not permit.acquire(**how):
                return False
            self._taken.add(permit, permits)
            return True
        except BaseException as error:
            try:
                self._undo(permit, error)
            except BaseException:  # A second interrupt ended the cleanup.
                self._undo(permit, error)
            raise

    def _undo(self, permit: Permit, error: BaseException) -> None:
        """Gives back permits that the caller does not get, because an error or an interrupt came after the grant."""
        permit._ends_with(error)
        self._taken.forget(permit)

    def locked(self) -> bool:
        """Returns whether `acquire` would have to wait for a permit."""
        [found] = Wire(self.redis, self.name).ask([("DLOCK.INFO", self.name)], redis_py.latest())
        return is_full(found, self.limit)

    def release(self, n: int = 1) -> None:
        """Gives back n permits, those of this thread first. Raises `LockError` (a `ValueError`) if fewer
        are taken, and `LockNotOwnedError` if one was lost."""
        failed: Exception | None = None
        for permit, number in self._taken.take(n):
            try:
                permit.give_back(number)
            except Exception as error:  # noqa: BLE001 - the others are released, too
                permit._leaves_permits(number)
                failed = failed or error
        if failed is not None:
            raise failed

    def __enter__(self) -> Permit:
        permit = self.permit()
        if not self._take(permit, 1):
            raise LockError("Unable to acquire lock within the time specified")
        return permit

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            for permit, _ in self._taken.take(1):
                permit.__exit__(kind, value, traceback)
        except LockError as error:
            # The block has released the permit itself, so none is left to take.
            if value is None:
                raise
            attach(value, error, "The permit was not released")


class AllOf(DLock):
    """Several locks that were acquired together, with one token."""

    def __init__(self, redis: Any, names: Iterable[Name], **settings: Any) -> None:
        self.names = tuple(names)
        if not self.names:
            raise ValueError("names must be 1 to 64, not 0")
        super().__init__(redis, self.names[0], thread_local=False, **settings)

    def _what(self) -> Target:
        return Target(self.names, self.mode, together=True)

    def __enter__(self: A) -> A:
        # `acquire_all` returns the guard with the locks.
        return self if self._hold is not None else super().__enter__()


def acquire_all(redis: Any, names: Iterable[Name], timeout: float | None = None, **settings: Any) -> AllOf:
    """Acquires all of these locks or none, and returns the guard. The guard releases them at the end of a `with`
    block, or by `release`. The settings are those of `DLock`. Raises `LockError` if they were not granted within
    `blocking_timeout`.

    Programs need not agree on an order: such requests never deadlock among themselves. A request that waits holds
    nothing. In a cluster all names must be in one slot.
    """
    guard = AllOf(redis, names, timeout=timeout, **settings)
    return guard.__enter__()
