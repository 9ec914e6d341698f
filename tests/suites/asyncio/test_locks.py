"""CPython's tests of asyncio's locks, semaphores and conditions, with those of redis_dlock.

The tests call `release()` and `locked()` without `await`, and take one round of the event loop for the time that a
waiting task needs. Here a release goes on in a task, and a round takes as long as a server may need for it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import redis.asyncio
from redis_dlock.asyncio import DLock, DSemaphore
from test.test_asyncio import test_locks as theirs

LEASE = 60
LIMIT = 1000
ROUND = 0.8
# How long after each other the requests of tasks that start at once are sent: each has a connection of its own, and the
# server serves them in the order in which they arrive.
APART = 0.1
numbers = itertools.count()
running: set[asyncio.Task[Any]] = set()


def client() -> redis.asyncio.Redis:
    """Returns a client for the loop of this test."""
    return redis.asyncio.Redis(host=os.environ["DLOCK_TEST_HOST"], port=int(os.environ["DLOCK_TEST_PORT"]))


def goes_on(work: Any) -> None:
    """Runs it in a task."""
    task = asyncio.ensure_future(work)
    running.add(task)
    task.add_done_callback(running.discard)


async def sleep(delay: float, result: Any = None) -> Any:
    """Sleeps for as long as a round takes, too."""
    return await asyncio.sleep(max(delay, ROUND), result)


class Waiting:
    """A base for both kinds: the tasks that are waiting, and `async with`."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Task[Any] | None] = []
        self._next = 0.0

    async def _wait(self, acquire: Callable[[], Awaitable[Any]]) -> None:
        self._waiters.append(asyncio.current_task())
        try:
            await self._begin()
            now = time.monotonic()
            turn = max(now, self._next)
            self._next = turn + APART
            await asyncio.sleep(turn - now)
            await acquire()
        finally:
            self._waiters.remove(asyncio.current_task())

    async def _begin(self) -> None:
        """Comes before the first acquisition."""

    async def __aenter__(self) -> None:
        await self.acquire()  # type: ignore[attr-defined]

    async def __aexit__(self, *raised: object) -> None:
        self.release()  # type: ignore[attr-defined]


class Lock(Waiting):
    """As `asyncio.Lock`: any task may release it."""

    def __init__(self) -> None:
        super().__init__()
        self._held = False
        self._lock: DLock | None = None

    async def _begin(self) -> None:
        if self._lock is None:
            self._lock = DLock(client(), f"lock:{next(numbers)}", timeout=LEASE)
            await self._lock.locked()

    async def _acquire(self) -> None:
        assert self._lock is not None
        await self._lock.acquire()

    async def acquire(self) -> bool:
        await self._wait(self._acquire)
        self._held = True
        return True

    def release(self) -> None:
        if not self._held or self._lock is None:
            raise RuntimeError("Lock is not acquired.")
        self._held = False
        goes_on(self._lock.release())

    def locked(self) -> bool:
        return self._held


class Semaphore(Waiting):
    """As `asyncio.Semaphore`, which may have no permits at first: the others are taken before the first acquisition."""

    def __init__(self, value: int = 1) -> None:
        super().__init__()
        if value < 0:
            raise ValueError("value is 0 or more")
        self._free = self._most = value
        self._semaphore: DSemaphore | None = None
        self._begun = asyncio.Event()

    async def _begin(self) -> None:
        if self._semaphore is None:
            self._semaphore = DSemaphore(client(), f"semaphore:{next(numbers)}", LIMIT, timeout=LEASE)
            assert await asyncio.shield(self._semaphore.acquire(permits=LIMIT - self._most))
            self._begun.set()
        await self._begun.wait()

    async def _acquire(self) -> None:
        assert self._semaphore is not None
        await self._semaphore.acquire()

    async def acquire(self) -> bool:
        await self._wait(self._acquire)
        self._free -= 1
        return True

    def release(self) -> None:
        self._free += 1
        goes_on(self._give_back())

    async def _give_back(self) -> None:
        await self._begun.wait()
        assert self._semaphore is not None
        await self._semaphore.release()

    @property
    def _value(self) -> int:
        """The permits that no waiting task is about to get."""
        return max(0, self._free - len(self._waiters))

    def locked(self) -> bool:
        return self._value == 0


class BoundedSemaphore(Semaphore):
    """As `asyncio.BoundedSemaphore`."""

    def __init__(self, value: int = 1) -> None:
        super().__init__(value)

    def release(self) -> None:
        if self._free >= self._most:
            raise ValueError("BoundedSemaphore released too many times")
        super().release()


class Condition(asyncio.Condition):
    """As `asyncio.Condition`, over a lock of dlock."""

    def __init__(self, lock: Any = None) -> None:
        super().__init__(lock or Lock())


# The names that the tests look up.
theirs.asyncio = SimpleNamespace(**vars(asyncio) | {
    "Lock": Lock, "Semaphore": Semaphore, "BoundedSemaphore": BoundedSemaphore, "Condition": Condition, "sleep": sleep,
})


class LockTests(theirs.LockTests):
    # The test looks into the list of waiting futures.
    test_cancel_race = None
    # The lock is expected to have another owner before the event loop has gone on.
    test_cancel_release_race = None


class ConditionTests(theirs.ConditionTests):
    # The test gives a condition the loop of another thread.
    test_ambiguous_loops = None


class SemaphoreTests(theirs.SemaphoreTests):
    pass
