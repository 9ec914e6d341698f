"""Decorators for functions: one run at a time (`locked`), or once in each period (`once`)."""

# Written by scripts/python-threads from async_tasks.py.

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from . import redis_py, runs
from .sync import DLock
from .errors import logger
from .runs import Names, Refused

F = TypeVar("F", bound=Callable[..., Any])

# The errors of a release after which the server may still have the lock, until the lease ends.
_NOT_RELEASED = (*redis_py.LOST, ResponseError)


def current_lock() -> DLock:
    """Returns the lock of the `locked` or `once` that runs this code: for its `token`, `lost` and `remaining`."""
    lock: DLock = runs.running()
    return lock


def locked(
    redis: Any, name: Names, *, timeout: float = runs.LEASE, otherwise: Any = Refused, **settings: Any
) -> Callable[[F], F]:
    """Runs the decorated function while it holds the lock: one call at a time, on all machines together.

        @locked(redis, "import", blocking=False, otherwise=None)
        def import_all(): ...

    `redis` is a client, or a function that returns one. `name` may be a function, which gets the arguments of the call.
    The settings are those of `DLock`; the lock is renewed while the function runs. `otherwise` is returned if the lock
    was not granted; without it, `LockError` is raised. `LockNotOwnedError` is raised if the lock was lost while the
    function ran. If no server answers the release, or one refuses it, the lease ends the lock, and a warning is logged.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            lock = _lock(redis, runs.name_of(name, args, kwargs), timeout, settings)
            began, result = _run(lock, lock.acquire, functools.partial(function, *args, **kwargs))
            if began is not None:
                _done(lock, lock.release)
                return result
            if otherwise is Refused:
                raise lock._not_acquired()
            return otherwise

        return run  # type: ignore[return-value]

    return decorate


def once(
    redis: Any,
    name: Names,
    period: float,
    *,
    retry_failed: bool = False,
    timeout: float = runs.LEASE,
    blocking_timeout: float | None = None,
    otherwise: Any = None,
    **settings: Any,
) -> Callable[[F], F]:
    """Runs the decorated function at most once in each period (in seconds), on all machines together.

        @once(redis, "report", period=86400)
        def report(): ...

    The lock remembers the run: it stays for nine tenths of the period, counted from the start by the server's clock. A
    call in that time, or while the function runs, returns `otherwise`; with a `blocking_timeout`, it first waits that
    long for the lock. A run that fails, or whose process dies, counts. With `retry_failed` it does not: the lock is
    free at once if the function fails, and after `timeout` if the process dies. A run that takes longer than the period
    keeps the lock until the run ends.

    Raises `LockNotOwnedError` if the lock was lost while the function ran. The other parameters are those of `locked`.
    """
    stays = runs.kept(period, settings)

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            keeps = {} if retry_failed else {"at_least": stays}
            lock = _lock(redis, runs.name_of(name, args, kwargs), timeout, {**settings, **keeps})
            # The first lease lasts until the end of `stays`: see `_shorten`.
            lock._begins_with = stays
            acquire = functools.partial(lock.acquire, blocking=blocking_timeout is not None, blocking_timeout=blocking_timeout)
            began, result = _run(lock, acquire, functools.partial(function, *args, **kwargs), shortens=retry_failed)
            if began is None:
                return otherwise
            _done(lock, functools.partial(_stay, lock, began + stays) if retry_failed else lock.release)
            return result

        return run  # type: ignore[return-value]

    return decorate


def _lock(redis: Any, name: Any, timeout: float, settings: dict[str, Any]) -> DLock:
    told = {"auto_renewal": True, "thread_local": False, **settings}
    return DLock(runs.client_of(redis), name, timeout=timeout, **told)


def _run(
    lock: DLock, acquire: Callable[[], bool], function: Callable[[], Any], *, shortens: bool = False
) -> tuple[float | None, Any]:
    """Returns the time of the grant and the result of the function, or None for both if the lock was not granted. After
    a failure, releases the lock."""
    outer = runs.RUNNING.get(None)
    try:
        if not acquire():
            return None, None
        began = time.monotonic()
        if shortens:
            _shorten(lock)
        runs.RUNNING.set(lock)
        result = function()
        runs.RUNNING.set(outer)
        return began, result
    except BaseException as failure:
        try:
            _undo(lock, outer, failure)
        except BaseException:  # An interrupt ended the cleanup.
            _undo(lock, outer, failure)
        raise


def _undo(lock: DLock, outer: DLock | None, failure: BaseException) -> None:
    runs.RUNNING.set(outer)
    lock._ends_with(failure)


def _done(lock: DLock, release: Callable[[], None]) -> None:
    """Releases the lock after a success."""
    try:
        release()
    except _NOT_RELEASED as error:
        logger.warning("%s was not released: %s", lock._printed(), error)


def _shorten(lock: DLock) -> None:
    """Sets the lease to `timeout` until the run has succeeded. The lock was acquired with the long lease first, so that
    a server that does not allow the long one refuses before the run."""
    try:
        lock.reacquire()
    except redis_py.LOST:
        pass  # The next renewal shortens the lease.


def _stay(lock: DLock, ends: float) -> None:
    """Leaves the lock to a lease that ends at `ends`, after a success. Tries again while no server answers, because a
    lock that ends earlier lets another run follow in this period."""
    # A copy of the renewal that is executed late must not end the lock earlier, either.
    lock._to_release().stays_until = ends
    while True:
        try:
            lock.reacquire()
            break
        except redis_py.LOST as error:
            if lock.remaining == 0:
                logger.warning("%s does not stay, so another run may follow in this period: %s", lock._printed(), error)
                return
            time.sleep(runs.PAUSE)
    lock.release_after(max(0.0, ends - time.monotonic()))
