"""Locks of the dlock module of Redis and Valkey, with the interface of redis-py's own `Lock`.

    from dlock import DLock

    with redis.lock("job:1", timeout=30, lock_class=DLock) as lock:
        work(fence=lock.token)

For asyncio: `from dlock.asyncio import DLock`.
"""

from redis.exceptions import LockError, LockNotOwnedError

from .errors import DeadlockError
from .sync import DLock

__all__ = ["DLock", "DeadlockError", "LockError", "LockNotOwnedError"]
