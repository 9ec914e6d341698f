"""CPython's tests of asyncio's locks, semaphores and conditions, with the classes of redis_dlock.

The tests call `release()` and `locked()` without `await`, and expect a waiting task to go on after one round of the
event loop. Here a release goes on in a task of its own, and `sleep` waits until the server has done its work.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import weakref
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import redis.asyncio
from redis_dlock.asyncio import DLock, DSemaphore
from test.test_asyncio import test_locks as theirs

LEASE = 60
# The permits of a semaphore on the server.
LIMIT = 1000
# How long a busy server may take, and the pause between two looks at it, in seconds.
PATIENCE = 20
STEP = 0.02
numbers = itertools.count()
running: set[asyncio.Task[Any]] = set()


def goes_on(work: Any) -> None:
    """Runs an awaitable in a task of its own."""
    task = asyncio.ensure_future(work)
    running.add(task)
    task.add_done_callback(running.discard)


async def until(ready: Callable[[], Awaitable[bool]], times: int = 1) -> None:
    """Waits until `ready` returns true `times` times in a row: a canceled request may leave the queue late."""
    end, seen = time.monotonic() + PATIENCE, 0
    while seen < times:
        seen = seen + 1 if await ready() else 0
        assert time.monotonic() < end, "not ready in time"
        await asyncio.sleep(STEP)


async def sleep(delay: float, result: Any = None) -> Any:
    """Stands for a round of the event loop: waits until each release is done, and each request is granted or queued."""
    await asyncio.sleep(max(delay, STEP))
    for each in tuple(Waiting.all):
        await until(each.is_quiet, times=3)
    return result


class Waiting:
    """The common part of locks and semaphores: the tasks that wait, in order, and `async with`."""

    all: weakref.WeakSet[Waiting] = weakref.WeakSet()

    def __init__(self, kind: str) -> None:
        self._name = f"{kind}:{next(numbers)}"
        self._waiters: list[asyncio.Task[Any] | None] = []
        self._redis: redis.asyncio.Redis | None = None
        Waiting.all.add(self)

    def _client(self) -> redis.asyncio.Redis:
        if self._redis is None:
            self._redis = redis.asyncio.Redis(
                host=os.environ["DLOCK_TEST_HOST"], port=int(os.environ["DLOCK_TEST_PORT"]), protocol=3
            )
        return self._redis

    async def _arrived(self) -> int:
        """Returns how many requests are in the server's queue."""
        told = await self._client().execute_command("DLOCK.INFO", self._name)
        return int(told[b"waiters"]) if told else 0

    async def is_quiet(self) -> bool:
        """Returns whether no release is under way, and the requests of all waiting tasks are in the server's queue."""
        if not self._waiters and not running:
            return True
        return not running and await self._arrived() == len(self._waiters)

    async def _wait(self, acquire: Callable[[], Awaitable[Any]]) -> None:
        me = asyncio.current_task()
        self._waiters.append(me)

        async def others_have_arrived() -> bool:
            ahead = self._waiters.index(me)
            return not ahead or await self._arrived() >= ahead

        try:
            await self._begin()
            # Each request has a connection of its own, and the server serves them as they arrive.
            await until(others_have_arrived)
            await acquire()
        finally:
            self._waiters.remove(me)

    async def _begin(self) -> None:
        """Prepares an acquisition. The first call makes the lock or the semaphore of redis_dlock."""

    async def __aenter__(self) -> None:
        await self.acquire()  # type: ignore[attr-defined]

    async def __aexit__(self, *raised: object) -> None:
        self.release()  # type: ignore[attr-defined]


class Lock(Waiting):
    """As `asyncio.Lock`: any task may release it."""

    def __init__(self) -> None:
        super().__init__("lock")
        self._held = False
        self._lock: DLock | None = None

    async def _begin(self) -> None:
        if self._lock is None:
            self._lock = DLock(self._client(), self._name, timeout=LEASE)

    async def _acquire(self) -> None:
        assert self._lock is not None
        await self._lock.acquire()

    async def acquire(self) -> bool:
        await self._wait(self._acquire)
        self._held = True
        return True

    def release(self) -> None:
        if not self._held or self._lock is None:
            raise RuntimeError("nobody holds the lock")
        self._held = False
        goes_on(self._lock.release())

    def locked(self) -> bool:
        return self._held


class Semaphore(Waiting):
    """As `asyncio.Semaphore`, which may begin with no permits.

    The limit on the server is always `LIMIT`. All permits but `value` are taken before the first acquisition.
    """

    def __init__(self, value: int = 1) -> None:
        super().__init__("semaphore")
        if value < 0:
            raise ValueError("value is 0 or more")
        self._free = self._most = value
        self._semaphore: DSemaphore | None = None
        self._begun = asyncio.Event()

    async def _begin(self) -> None:
        if self._semaphore is None:
            self._semaphore = DSemaphore(self._client(), self._name, LIMIT, timeout=LEASE)
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
        """The permits that are free and that no waiting task is about to get."""
        return max(0, self._free - len(self._waiters))

    def locked(self) -> bool:
        return self._value == 0


class BoundedSemaphore(Semaphore):
    """As `asyncio.BoundedSemaphore`."""

    def __init__(self, value: int = 1) -> None:
        super().__init__(value)

    def release(self) -> None:
        if self._free >= self._most:
            raise ValueError("released more often than acquired")
        super().release()


class Condition(asyncio.Condition):
    """As `asyncio.Condition`, over a lock of dlock."""

    def __init__(self, lock: Any = None) -> None:
        super().__init__(lock or Lock())


# The tests find these classes under the names of asyncio.
theirs.asyncio = SimpleNamespace(**vars(asyncio) | {
    "Lock": Lock, "Semaphore": Semaphore, "BoundedSemaphore": BoundedSemaphore, "Condition": Condition, "sleep": sleep,
})


class Fresh:
    """Forgets the locks and tasks of the test before."""

    def setUp(self) -> None:
        Waiting.all.clear()
        running.clear()


class LockTests(Fresh, theirs.LockTests):
    # Left out: the test reads asyncio's private list of waiting futures.
    test_cancel_race = None
    # Left out: the test expects a released lock to have its next owner before the event loop runs.
    test_cancel_release_race = None


class ConditionTests(Fresh, theirs.ConditionTests):
    # Left out: the test gives a condition, or its lock, another event loop.
    test_ambiguous_loops = None


class SemaphoreTests(Fresh, theirs.SemaphoreTests):
    """Runs all tests of semaphores."""
