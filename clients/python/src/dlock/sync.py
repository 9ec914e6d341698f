"""The lock of threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, TypeVar

from redis.exceptions import LockError, ResponseError
from redis.lock import Lock

from . import redis_py
from .attempt import Attempt
from .base import LockBase
from .commands import milliseconds
from .holds import Hold
from .sync_wire import Bound, Wire

L = TypeVar("L", bound="DLock")


class DLock(LockBase[Bound], Lock):
    """A lock with the interface of redis-py's `Lock`: `redis.lock("name", lock_class=DLock)`.

    Waiting is done in the server, first come first served. Every acquisition has a fencing token (`token`).
    """

    def _prepare(self) -> None:
        self._wire = Wire(self.redis, self.name)

    def __enter__(self: L) -> L:
        if self.acquire():
            return self
        raise self._not_acquired()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.release()
        except LockError as error:
            self._exit(error)

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Takes the lock, and says whether it did.

        `blocking=False` does not wait. `blocking_timeout` is how many seconds to wait at most; None: as long as it
        takes. `token` names the owner, instead of a new one for every acquisition. An interrupted wait
        (`KeyboardInterrupt`, say) leaves no hold.

        Raises `DeadlockError` where waiting would never end. Costs one command.
        """
        if (hold := self._again()) is not None:
            return self._enter(hold)
        attempt = self._attempt(blocking, blocking_timeout, token)
        pause = self.sleep if sleep is None else sleep
        while True:
            try:
                granted, connection = self._wire.acquire(attempt)
                break
            except ResponseError as error:
                self._refused(error)
            if not (left := attempt.left()):
                return False
            time.sleep(min(pause, left))
        if granted is None:
            return False
        self._keep(attempt, granted, connection)
        return True

    def _keep(self, attempt: Attempt, token: int, connection: Bound | None) -> None:
        before = self._hold
        self._hold = Hold(attempt.owner, token, connection)
        if before is not None and before.connection is not None:
            self._wire.close(before.connection)

    def _enter(self, hold: Hold[Bound]) -> bool:
        attempt = self._entry(hold)
        try:
            token, _ = self._wire.acquire(attempt)
        except ResponseError as error:
            self._refused(error)
            token = None
        if token == hold.token:
            hold.entries += 1
            return True
        if token is not None:
            self._wire.ask(*attempt.undo(token))
        if hold.connection is not None:
            self._wire.close(hold.connection)
        raise self._lost_before_entry()

    def locked(self) -> bool:
        """Whether anybody has the lock."""
        try:
            return self._wire.ask("DLOCK.INFO", self.name) is not None
        except ResponseError as error:
            if redis_py.wrong_type(error):
                return True
            raise

    def owned(self) -> bool:
        """Whether this lock object has it. It may be over by the time that you read the answer."""
        hold = self._hold
        return hold is not None and self._left_now(hold) is not None

    def _left_now(self, hold: Hold[Bound]) -> int | None:
        try:
            return self._left_of(hold, self._wire.ask(*self._left(hold)))
        except ResponseError as error:
            if redis_py.wrong_type(error):
                return None
            raise

    def release(self) -> None:
        """Gives the lock up, or one entry of a reentrant one.

        Raises `LockError` if it was not acquired, `LockNotOwnedError` if it has been lost since.
        """
        hold = self._to_release()
        try:
            reply, repeated = self._wire.release(self._release(hold), hold)
        except ResponseError as error:
            hold.release_sent = False
            if not redis_py.wrong_type(error):
                raise
            reply, repeated = None, False
        except BaseException:
            # The end of its connection releases a session in any case.
            self._let_go(hold, self._wire.close)
            raise
        if self._still_entered(hold, reply):
            return
        self._let_go(hold, self._wire.give_back)
        if reply is None and not repeated:
            raise self._no_longer_owned("release")

    def _let_go(self, hold: Hold[Bound], how: Callable[[Bound], None]) -> None:
        bound, hold.connection = hold.connection, None
        if bound is not None:
            how(bound)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Adds seconds to what is left of the timeout, or makes these seconds what is left."""
        hold, _ = self._to_renew("extend")
        lease = milliseconds(additional_time)
        if not replace_ttl:
            left = self._left_now(hold)
            if left is None:
                raise self._no_longer_owned("extend")
            lease += left
        return self._renew(hold, lease, "extend")

    def reacquire(self) -> Literal[True]:
        """Starts the timeout anew."""
        hold, timeout = self._to_renew("reacquire")
        return self._renew(hold, milliseconds(timeout), "reacquire")

    def _renew(self, hold: Hold[Bound], lease: int, doing: str) -> Literal[True]:
        try:
            renewed = self._wire.ask(*self._renewal(hold, lease))
        except ResponseError as error:
            if not redis_py.wrong_type(error):
                raise
            renewed = None
        if not renewed:
            raise self._no_longer_owned(doing)
        return True

    # What redis-py's lock is made of, for those who call that.

    def do_acquire(self, token: str | bytes) -> bool:
        """`acquire`, once, for this owner."""
        return self.acquire(blocking=False, token=token)

    def do_release(self, expected_token: str | bytes) -> None:
        """`release`, for this owner, whoever acquired it."""
        self._take_over(expected_token)
        self.release()

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """`extend`."""
        return self.extend(additional_time, replace_ttl)

    def do_reacquire(self) -> Literal[True]:
        """`reacquire`."""
        return self.reacquire()
