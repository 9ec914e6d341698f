"""What can go wrong beside redis-py's own `LockError` and `LockNotOwnedError`."""

from __future__ import annotations

from redis.exceptions import LockError


class DeadlockError(LockError):
    """The server refused to wait: this owner would wait for itself, perhaps through others.

    Release what is held and begin anew. The message names the circle. It needs owners that hold more than one
    lock: `acquire(token=…)` with the same token.
    """
