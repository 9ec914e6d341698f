"""The lock of threads and processes."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Literal, TypeVar

from redis.exceptions import ResponseError, TimeoutError
from redis.lock import Lock

from .binding import Binding
from .held import Held
from .holds import Hold
from .sync_watch import LeaseWatch, Watch
from .talk import Line

L = TypeVar("L", bound="DLock")


class DLock(Held, Lock):
    """A lock with the interface of redis-py's `Lock`: `redis.lock("name", lock_class=DLock)`.

    Waiting happens in the server, first come, first served. Every acquisition has a fencing token (`token`).
    """

    def __enter__(self: L) -> L:
        if self.acquire():
            return self
        raise self._not_acquired()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        hold, entries = None, 0
        try:
            if self._is_of_parent():
                return
            hold = self._to_release()
            entries = hold.entries
            self.release()
        except Exception as error:  # noqa: BLE001 - `_exit` raises it, adds it to the body's error, or logs it
            self._leaves_block(hold, entries)
            self._exit(value, error)
        except BaseException:
            self._goes_on_releasing(hold, entries)
            raise

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Acquires the lock, and returns whether it did.

        `blocking=False` does not wait. `blocking_timeout` is the number of seconds to wait at most; None: no limit.
        `token` names the owner, instead of a new one for every acquisition. After an interrupted wait
        (`KeyboardInterrupt`, for example) the lock is not held.

        If the connection breaks, the lock is asked for again. A lock that is bound to its connection then gets another
        owner; if `token` has named the owner, raises redis-py's `ConnectionError` or `TimeoutError`.

        Raises `DeadlockError` if waiting would never end. Costs one command if the lock is free; a wait costs a
        connection and another command, and an owner that may have the lock already another round trip.
        """
        if (hold := self._again()) is not None:
            attempt, entries = self._entry(hold), hold.entries
            if not self._wire.undone(hold, attempt.limits.gives_up()):
                raise TimeoutError("no reply in time")
            if hold.releasing is not None:
                # The id of this re-entry replaces the id of the release on the server: a repeat of the release would be
                # executed as a new one.
                hold.doubts()
            try:
                return self._enter(hold, attempt)
            except BaseException:
                # The server must not count an entry that the caller does not have.
                hold.entries, hold.undoing = entries, attempt
                try:
                    self._wire.give_up(attempt)
                    self._copied(hold, attempt)
                except BaseException:  # A second interrupt ended the cleanup.
                    self._wire.give_up(attempt)
                    self._copied(hold, attempt)
                raise
        attempt = self._attempt(blocking, blocking_timeout, token)
        pause = self.sleep if sleep is None else sleep
        try:
            while True:
                try:
                    self._wire.acquire(attempt)
                    break
                except ResponseError as error:
                    self._refused(attempt, error)
                if not (left := attempt.left(time.monotonic())):
                    self._wire.give_up(attempt)
                    break
                time.sleep(min(pause, left))
            if attempt.token is None or attempt.abandoned:
                self._over(attempt)
                return False
            self._keep(attempt)
            return True
        except BaseException:
            try:
                self._forget(attempt)
            except BaseException:  # A second interrupt ended the cleanup.
                self._forget(attempt)
            raise

    # The loss of the lock

    @property
    def lost(self) -> threading.Event:
        """Set when the lock that is held is lost, or must be assumed lost: its lease has passed since the last renewal
        that the server confirmed, or the server has no such hold, for example because the connection of its session has
        ended. It stays unset after a release. One thread watches all locks of a client that have a lease, over one
        connection; in a cluster, each node has its own thread and connection. So has a lock with `replicas`, and a lock
        that is bound to its connection. Raises `LockError` if the lock is not held.
        """
        return self._watch(self._held()).lost

    def _watch(self, hold: Hold[Line]) -> Watch | Binding:
        if hold.watch is None:
            if hold.token is None:
                raise self._error("The token is not known, because the owner was set by hand")
            # The hold has the watch before the watch starts, so that the end of the hold stops the watch.
            if self._named is not None:
                hold.watch = self._binding(hold, hold.token)
            else:
                kind = LeaseWatch if hold.connection is None and self._replicas is None else Watch
                hold.watch = kind(self._wire, hold, self._terms(hold, hold.token), self.on_lost)
        watch: Watch | Binding = hold.watch
        watch.start()
        return watch

    # The parts of redis-py's lock, for programs that call them.

    def do_acquire(self, token: str | bytes) -> bool:
        """Calls `acquire` for this owner, without waiting."""
        return self.acquire(blocking=False, token=token)

    def do_release(self, expected_token: str | bytes) -> None:
        """Calls `release` for this owner, even if another object acquired the lock."""
        self._take_over(expected_token)
        self.release()

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """Calls `extend`."""
        return self.extend(additional_time, replace_ttl)

    def do_reacquire(self) -> Literal[True]:
        """Calls `reacquire`."""
        return self.reacquire()
