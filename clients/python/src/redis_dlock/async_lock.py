"""The lock for programs with asyncio."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Literal, TypeVar

from redis.asyncio.lock import Lock
from redis.exceptions import LockNotOwnedError, ResponseError, TimeoutError

from .async_held import Held
from .async_talk import Line, in_background, start
from .async_watch import LeaseWatch, Watch
from .binding import Binding
from .holds import Hold, PerTask, PerThread, Shared, task

L = TypeVar("L", bound="DLock")


class DLock(Held, Lock):
    """The lock of `redis_dlock.DLock`, for asyncio. A reentrant lock belongs to the task that acquired it."""

    def _memory(self) -> Shared[Line] | PerThread[Line] | PerTask[Line]:
        """Returns where this object remembers its holds."""
        if self.reentrant:
            return PerTask()
        return PerThread(task) if self.thread_local else Shared(task)

    async def __aenter__(self: L) -> L:
        if await self.acquire():
            return self
        raise self._not_acquired()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        hold, entries = None, 0
        try:
            if self._is_of_parent():
                return
            hold = self._to_release()
            entries = hold.entries
            await self.release()
        except Exception as error:  # noqa: BLE001 - `_exit` raises it, adds it to the body's error, or logs it
            self._leaves_block(hold, entries)
            self._exit(value, error)
        except BaseException:
            await self._goes_on_releasing(hold, entries)
            raise

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Acquires the lock, and returns whether it did.

        The parameters are those of `redis_dlock.DLock.acquire`, without `sleep`. Before `CancelledError` comes out of a
        cancelled wait, the request leaves the queue, and a grant is given back. If the server takes longer than 50 ms
        for that, it goes on in the background.
        """
        if (hold := self._again()) is not None:
            attempt, entries = self._entry(hold), hold.entries
            if not await self._wire.undone(hold, attempt.limits.gives_up()):
                raise TimeoutError("no reply in time")
            if hold.releasing is not None:
                # The id of this re-entry replaces the id of the release on the server: a repeat of the release would be
                # executed as a new one.
                hold.doubts()
            try:
                return await self._enter(hold, attempt)
            except BaseException:
                # The server must not count an entry that the caller does not have.
                hold.entries, hold.undoing = entries, attempt
                self._copied(hold, attempt)
                if attempt.clearing is None:
                    attempt.clearing = start(self._wire.give_up(attempt))
                await in_background(attempt.clearing)
                raise
        attempt = self._attempt(blocking, blocking_timeout, token)
        try:
            while True:
                try:
                    await self._wire.acquire(attempt)
                    break
                except ResponseError as error:
                    # Raises the error, unless a string locks the key: redis-py's own lock, whose end is polled for.
                    self._refused(attempt, error)
                if not (left := attempt.left(time.monotonic())):
                    await in_background(self._wire.give_up(attempt))
                    break
                await asyncio.sleep(min(self.sleep, left))
            if attempt.token is None or attempt.abandoned:
                await self._over(attempt)
                return False
            await self._keep(attempt)
            return True
        except BaseException:
            await in_background(self._forget(attempt))
            raise

    # Losing

    @property
    def lost(self) -> asyncio.Future[LockNotOwnedError]:
        """A future that is done when the lock is lost, or must be assumed lost: its lease has passed since the last
        renewal that the server confirmed, or the server has no such hold, for example because the connection of its
        session has ended. The result of the future is the error. After a release, the future stays pending. Raises
        `LockError` if the lock is not held.

        All locks of a client that have a lease share a task and a connection that watch them; in a cluster, those of
        each node do. A lock with `replicas`, or with the session of a connection, has both of its own.
        """
        return asyncio.shield(self._watch(self._held()).lost)

    def _watch(self, hold: Hold[Line]) -> Watch | Binding:
        if hold.watch is None:
            if hold.token is None:
                raise self._error("The token is not known, because the owner was set by hand")
            if self._named is not None:
                # The hold has the binding before the session has it, so that the end of the hold ends the binding.
                hold.watch = self._binding(hold, hold.token)
                hold.watch.start()
            else:
                kind = LeaseWatch if hold.connection is None and self._replicas is None else Watch
                hold.watch = kind(self._wire, hold, self._terms(hold, hold.token), self.on_lost)
        watch: Watch | Binding = hold.watch
        return watch

    # The parts of redis-py's lock, for programs that call them.

    async def do_acquire(self, token: str | bytes) -> bool:
        """Tries once to acquire the lock for this owner."""
        return await self.acquire(blocking=False, token=token)

    async def do_release(self, expected_token: str | bytes) -> None:
        """Releases the lock of this owner, even if another object has acquired it."""
        self._take_over(expected_token)
        await self.release()

    async def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """Does the same as `extend`."""
        return await self.extend(additional_time, replace_ttl)

    async def do_reacquire(self) -> Literal[True]:
        """Does the same as `reacquire`."""
        return await self.reacquire()
