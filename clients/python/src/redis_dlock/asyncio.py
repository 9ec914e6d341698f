"""Locks for asyncio: `DLock(redis, "name")` with a client of `redis.asyncio`."""

from .async_lock import DLock
from .async_several import DSemaphore, acquire_all

__all__ = ["DLock", "DSemaphore", "acquire_all"]
