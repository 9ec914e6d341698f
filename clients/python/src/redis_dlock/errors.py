"""Errors that redis-py's `LockError` and `LockNotOwnedError` do not cover."""

from __future__ import annotations

import logging

from redis.exceptions import LockError

logger = logging.getLogger("redis_dlock")


class DeadlockError(LockError):
    """The server refused to queue the request, because the owner would wait for itself.

    Release what the owner holds and start again. The message names the cycle, if there is one. Only an owner that holds
    a lock already can get this error: `acquire(token=…)` with the same token.
    """


class ReplicasError(LockError):
    """Too few replicas acknowledged the grant or the renewal in time.

    A grant is released before this error is raised. After a renewal the lock is still held.
    """


def attach(body: BaseException, error: Exception, what: str) -> None:
    """Logs the error at the end of a `with` block, and from Python 3.11 on adds it as a note to the error of the body,
    which is the one that counts.
    """
    note = f"{what}: {type(error).__name__}: {error}"
    logger.warning("%s", note)
    if hasattr(body, "add_note"):
        body.add_note(note)
