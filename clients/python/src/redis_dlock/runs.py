"""The common part of the decorators that run a function under a lock."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Union

from redis.exceptions import LockError

from .commands import Name
from .options import check_lease

# A name, or a function that makes a name from the arguments of the call.
Names = Union[Name, Callable[..., Name]]
# The lock under which the code runs.
RUNNING: ContextVar[Any] = ContextVar("redis_dlock")
# The shortest period, in seconds: a start takes a moment.
_SHORTEST = 1.0
# The part of the period for which the lock stays. The next start may come early by the rest of the period: clocks
# differ, the last start was late on a busy machine, or the day had 23 hours.
_KEPT = 0.9
# The lease of a run that is renewed, in seconds.
LEASE = 30.0
# The pause between two attempts to reach the server after a run, in seconds.
PAUSE = 0.2


class Refused:
    """The default of `otherwise`: a refusal raises an error."""


def name_of(name: Names, args: Any, kwargs: Any) -> Name:
    """Returns the name of the lock of a call."""
    return name(*args, **kwargs) if callable(name) else name


def client_of(redis: Any) -> Any:
    """Returns the client, or the one that a function returns."""
    return redis() if callable(redis) else redis


def kept(period: float, settings: dict[str, Any]) -> float:
    """Returns how many seconds the lock of a run stays."""
    check_lease("period", period)
    if period < _SHORTEST:
        raise ValueError(f"period must be 1 second or more, not {period}")
    if settings.get("session") or settings.get("at_least"):
        raise ValueError("once takes no at_least, and no session, whose end frees its locks")
    return period * _KEPT


def running() -> Any:
    """Returns the lock under which the code runs, of the innermost decorator."""
    lock = RUNNING.get(None)
    if lock is None:
        raise LockError("No lock of `locked` or `once` runs this code")
    return lock
