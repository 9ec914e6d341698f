"""Errors that redis-py's `LockError` and `LockNotOwnedError` do not cover."""

from __future__ import annotations

from redis.exceptions import LockError


class DeadlockError(LockError):
    """The server refused to queue the request, because the owner would wait for itself.

    Release what the owner holds and start again. The message names the cycle. Only an owner that holds more than one
    lock can get this error: `acquire(token=…)` with the same token.
    """


class ReplicasError(LockError):
    """Too few replicas acknowledged the grant or the renewal in time.

    A grant is released before this error is raised. After a renewal the lock is still held.
    """
