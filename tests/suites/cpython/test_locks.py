"""CPython's tests of locks, with classes of redis_dlock that have the names and the errors of `threading`."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

import redis
from redis.exceptions import LockError
from redis_dlock import DLock, DSemaphore
from test import lock_tests

LEASE = 60
client = redis.Redis(host=os.environ["DLOCK_TEST_HOST"], port=int(os.environ["DLOCK_TEST_PORT"]))
numbers = itertools.count()


def patience(timeout: float | None) -> float | None:
    """`threading` says -1 for a wait without a limit."""
    return None if timeout == -1 else timeout


class Lock(DLock):
    """As `threading.Lock`: any thread may release it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(client, f"lock:{next(numbers)}", **{"timeout": LEASE, "thread_local": False, **settings})

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # type: ignore[override]
        return super().acquire(blocking=blocking, blocking_timeout=patience(timeout))

    def release(self) -> None:
        try:
            super().release()
        except LockError as error:
            raise RuntimeError(str(error)) from error


class RLock(Lock):
    """As `threading.RLock`, with the private methods that a condition calls."""

    def __init__(self) -> None:
        super().__init__(thread_local=True, reentrant=True)

    def _is_owned(self) -> bool:
        return self.owned()

    def _release_save(self) -> int:
        self.release()
        entries = 1
        while self.owned():
            self.release()
            entries += 1
        return entries

    def _acquire_restore(self, entries: int) -> None:
        for _ in range(entries):
            self.acquire()


class Session(Lock):
    """A lock of a connection, in place of one with a lease."""

    def __init__(self) -> None:
        super().__init__(timeout=None)


class Renewed(Lock):
    """A lock that renews itself."""

    def __init__(self) -> None:
        super().__init__(timeout=1, auto_renewal=True)


class Semaphore(DSemaphore):
    """As `threading.Semaphore`, and `BoundedSemaphore`."""

    def __init__(self, value: int = 1) -> None:
        super().__init__(client, f"semaphore:{next(numbers)}", value, timeout=LEASE)


def condition(lock: Any = None) -> threading.Condition:
    """Returns a condition over a lock of dlock, unless the test brings one of its own."""
    return threading.Condition(RLock() if lock is None else lock)


class LockTests(lock_tests.LockTests):
    locktype = Lock


class SessionTests(lock_tests.LockTests):
    locktype = Session


class RenewedTests(lock_tests.LockTests):
    locktype = Renewed


class RLockTests(lock_tests.RLockTests):
    locktype = RLock


class SemaphoreTests(lock_tests.SemaphoreTests):
    semtype = Semaphore


class BoundedSemaphoreTests(lock_tests.BoundedSemaphoreTests):
    semtype = Semaphore


class ConditionTests(lock_tests.ConditionTests):
    condtype = staticmethod(condition)


class ConditionOverLockTests(lock_tests.ConditionTests):
    """Over a lock that is not reentrant."""

    # The test acquires the lock twice in one thread.
    test_acquire = None
    condtype = staticmethod(lambda lock=None: threading.Condition(Lock() if lock is None else lock))
