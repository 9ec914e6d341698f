"""Locks of the dlock module of Redis and Valkey, with the interface of redis-py's own `Lock`.

    with DLock(redis, "job:1", timeout=30) as lock:
        work(fence=lock.token)

For asyncio: `from redis_dlock.asyncio import DLock`.
"""

from redis.exceptions import LockError, LockNotOwnedError

from .errors import DeadlockError, ReplicasError
from .observe import Election, Term, holder, watch
from .observed import Holder
from .several import DSemaphore, acquire_all
from .sync import DLock
from .sync_session import Session
from .tasks import current_lock, locked, once

__all__ = [
    "DLock",
    "DSemaphore",
    "DeadlockError",
    "Election",
    "Holder",
    "LockError",
    "LockNotOwnedError",
    "ReplicasError",
    "Session",
    "Term",
    "acquire_all",
    "current_lock",
    "holder",
    "locked",
    "once",
    "watch",
]
