"""Locks for asyncio: `DLock(redis, "name")` with a client of `redis.asyncio`."""

from .async_lock import DLock
from .async_observe import Election, Term, holder, watch
from .async_session import Session
from .async_several import DSemaphore, acquire_all
from .async_tasks import current_lock, locked, once
from .observed import Holder

__all__ = [
    "DLock",
    "DSemaphore",
    "Election",
    "Holder",
    "Session",
    "Term",
    "acquire_all",
    "current_lock",
    "holder",
    "locked",
    "once",
    "watch",
]
