"""The lock of asyncio: `redis.lock("name", lock_class=DLock)` with a client of `redis.asyncio`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Literal, TypeVar

from redis.asyncio.lock import Lock
from redis.exceptions import LockError, ResponseError

from . import redis_py
from .async_wire import Bound, Wire
from .attempt import Attempt
from .base import LockBase
from .commands import milliseconds
from .holds import Hold, PerTask, PerThread, Shared

L = TypeVar("L", bound="DLock")


class DLock(LockBase[Bound], Lock):
    """As `dlock.DLock`, for asyncio. A reentrant one belongs to the task that acquired it."""

    def _prepare(self) -> None:
        self._wire = Wire(self.redis, self.name)

    def _memory(self) -> Shared[Bound] | PerThread[Bound] | PerTask[Bound]:
        return PerTask() if self.reentrant else super()._memory()

    async def __aenter__(self: L) -> L:
        if await self.acquire():
            return self
        raise self._not_acquired()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except LockError as error:
            self._exit(error)

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Takes the lock, and says whether it did.

        The parameters are those of `dlock.DLock.acquire`, but for `sleep`. A wait that is cancelled has left the line, and holds
        nothing, by the time that `CancelledError` comes out of here.
        """
        if (hold := self._again()) is not None:
            return await self._enter(hold)
        attempt = self._attempt(blocking, blocking_timeout, token)
        while True:
            try:
                granted, connection = await self._wire.acquire(attempt)
                break
            except ResponseError as error:
                self._refused(error)
            if not (left := attempt.left()):
                return False
            await asyncio.sleep(min(self.sleep, left))
        if granted is None:
            return False
        self._keep(attempt, granted, connection)
        return True

    def _keep(self, attempt: Attempt, token: int, connection: Bound | None) -> None:
        before = self._hold
        self._hold = Hold(attempt.owner, token, connection)
        if before is not None and before.connection is not None:
            self._wire.discard(before.connection)

    async def _enter(self, hold: Hold[Bound]) -> bool:
        attempt = self._entry(hold)
        try:
            token, _ = await self._wire.acquire(attempt)
        except ResponseError as error:
            self._refused(error)
            token = None
        if token == hold.token:
            hold.entries += 1
            return True
        if token is not None:
            await self._wire.ask(*attempt.undo(token))
        if hold.connection is not None:
            await self._wire.close(hold.connection)
        raise self._lost_before_entry()

    async def locked(self) -> bool:
        """Whether anybody has the lock."""
        try:
            return await self._wire.ask("DLOCK.INFO", self.name) is not None
        except ResponseError as error:
            if redis_py.wrong_type(error):
                return True
            raise

    async def owned(self) -> bool:
        """Whether this lock object has it. It may be over by the time that you read the answer."""
        hold = self._hold
        return hold is not None and await self._left_now(hold) is not None

    async def _left_now(self, hold: Hold[Bound]) -> int | None:
        try:
            return self._left_of(hold, await self._wire.ask(*self._left(hold)))
        except ResponseError as error:
            if redis_py.wrong_type(error):
                return None
            raise

    async def release(self) -> None:
        """Gives the lock up, or one entry of a reentrant one.

        Raises `LockError` if it was not acquired, `LockNotOwnedError` if it has been lost since.
        """
        hold = self._to_release()
        try:
            reply, repeated = await self._wire.release(self._release(hold), hold)
        except ResponseError as error:
            hold.release_sent = False
            if not redis_py.wrong_type(error):
                raise
            reply, repeated = None, False
        except BaseException:
            # The end of its connection releases a session in any case.
            await self._let_go(hold, self._wire.close)
            raise
        if self._still_entered(hold, reply):
            return
        await self._let_go(hold, self._wire.give_back)
        if reply is None and not repeated:
            raise self._no_longer_owned("release")

    async def _let_go(self, hold: Hold[Bound], how: Callable[[Bound], Awaitable[None]]) -> None:
        bound, hold.connection = hold.connection, None
        if bound is not None:
            await how(bound)

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Adds seconds to what is left of the timeout, or makes these seconds what is left."""
        hold, _ = self._to_renew("extend")
        lease = milliseconds(additional_time)
        if not replace_ttl:
            left = await self._left_now(hold)
            if left is None:
                raise self._no_longer_owned("extend")
            lease += left
        return await self._renew(hold, lease, "extend")

    async def reacquire(self) -> Literal[True]:
        """Starts the timeout anew."""
        hold, timeout = self._to_renew("reacquire")
        return await self._renew(hold, milliseconds(timeout), "reacquire")

    async def _renew(self, hold: Hold[Bound], lease: int, doing: str) -> Literal[True]:
        try:
            renewed = await self._wire.ask(*self._renewal(hold, lease))
        except ResponseError as error:
            if not redis_py.wrong_type(error):
                raise
            renewed = None
        if not renewed:
            raise self._no_longer_owned(doing)
        return True

    # What redis-py's lock is made of, for those who call that.

    async def do_acquire(self, token: str | bytes) -> bool:
        """`acquire`, once, for this owner."""
        return await self.acquire(blocking=False, token=token)

    async def do_release(self, expected_token: str | bytes) -> None:
        """`release`, for this owner, whoever acquired it."""
        self._take_over(expected_token)
        await self.release()

    async def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """`extend`."""
        return await self.extend(additional_time, replace_ttl)

    async def do_reacquire(self) -> Literal[True]:
        """`reacquire`."""
        return await self.reacquire()
