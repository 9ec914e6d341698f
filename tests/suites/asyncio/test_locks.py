"""CPython's tests of asyncio's locks, semaphores and conditions, with those of redis_dlock.

The tests call `release()` and `locked()` without `await`, and take one round of the event loop for the time that a
waiting task needs. Here a release goes on in a task, and a round takes as long as a server may need for it.
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
    """Runs it in a task."""
    task = asyncio.ensure_future(work)
    running.add(task)
    task.add_done_callback(running.discard)


async def until(ready: Callable[[], Awaitable[bool]], times: int = 1) -> None:
    """Waits until it is ready, several times in a row: a canceled request may leave the queue late."""
    end, seen = time.monotonic() + PATIENCE, 0
    while seen < times:
        seen = seen + 1 if await ready() else 0
        assert time.monotonic() < end, "not ready in time"
        await asyncio.sleep(STEP)


async def sleep(delay: float, result: Any = None) -> Any:
    """Takes a round: until every release is done, and every request is granted or in the server's queue."""
    await asyncio.sleep(max(delay, STEP))
    for each in tuple(Waiting.all):
        await until(each.is_quiet, times=3)
    return result


class Waiting:
    """A base for both kinds: the tasks that are waiting, in order, and `async with`."""

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
        """Returns whether nothing is on the way."""
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
        """Is called before each acquisition. The first call makes what the server needs."""

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
    """As `asyncio.Semaphore`, which may begin with no permits. The limit on the server is `LIMIT`: all permits but
    `value` are taken before the first acquisition."""

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
            raise ValueError("released more often than acquired")
        super().release()


class Condition(asyncio.Condition):
    """As `asyncio.Condition`, over a lock of dlock."""

    def __init__(self, lock: Any = None) -> None:
        super().__init__(lock or Lock())


# The names that the tests look up.
theirs.asyncio = SimpleNamespace(**vars(asyncio) | {
    "Lock": Lock, "Semaphore": Semaphore, "BoundedSemaphore": BoundedSemaphore, "Condition": Condition, "sleep": sleep,
})


class Fresh:
    """Forgets the locks of the test before."""

    def setUp(self) -> None:
        Waiting.all.clear()
        running.clear()


class LockTests(Fresh, theirs.LockTests):
    # The test looks into the list of waiting futures.
    test_cancel_race = None
    # The lock is expected to have another owner before the event loop has gone on.
    test_cancel_release_race = None


class ConditionTests(Fresh, theirs.ConditionTests):
    # The test gives a condition the loop of another thread.
    test_ambiguous_loops = None


class SemaphoreTests(Fresh, theirs.SemaphoreTests):
    """All of them."""
