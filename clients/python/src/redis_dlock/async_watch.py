"""Renews a hold, binds a session to a new connection, or notices the loss, in a task: `sync_watch` for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
import weakref
from collections.abc import Callable
from typing import Any

from redis.exceptions import LockError, LockNotOwnedError, ResponseError

from . import async_heart, redis_py
from .async_talk import Line, start, within
from .async_wire import Wire
from .beating import Beating
from .errors import ReplicasError, logger
from .heartbeat import Heartbeat, Look, Terms
from .holds import ENDED_LATE, Hold

# The errors that do not say whether the server has the hold: the look had no answer, or went to a node that has not the
# key, or too few replicas know of the renewal.
_UNDECIDED = (*redis_py.LOST, *redis_py.MOVING, redis_py.Unreachable, ReplicasError, asyncio.TimeoutError)
# After one of these, the server has not executed the look, and will not.
_UNSENT = (*redis_py.MOVING, redis_py.Unreachable)


class Watch:
    """Watches a hold until its release, its loss, or until nothing refers to the hold any more."""

    def __init__(
        self,
        wire: Wire,
        hold: Hold[Line],
        terms: Terms,
        on_lost: Callable[[LockNotOwnedError], Any] | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[LockNotOwnedError] = self._loop.create_future()
        self._changed = self._loop.create_future()
        self._wire = wire
        self._terms = terms
        self._on_lost = on_lost
        # Keeps no reference to the hold, so that a hold which nothing else refers to ends its watch.
        self._hold = weakref.ref(hold)
        self._session = hold.connection
        # `_binds`: the session must be bound to another connection. `_is_binding`: a command that binds it was sent,
        # and none has succeeded since.
        self._binds = self._is_binding = False
        self._stopped = False
        # Why the server refused the last look, if it did.
        self._refused: Exception | None = None
        self._line: Line | None = None
        self._beats = Heartbeat(hold.validity, time.monotonic(), terms)
        self._start()
        weakref.finalize(hold, self.stop).atexit = False

    def _start(self) -> None:
        self._task = start(self._run())

    @property
    def is_lost(self) -> bool:
        """Returns whether the lock is lost, or must be assumed lost."""
        return self.lost.done()

    def until(self) -> float:
        """Returns until when the hold is certain."""
        return -math.inf if self.is_lost else self._beats.validity.until

    def claims(self) -> float:
        """Returns what `until` returns, but nothing while the session has no open connection or is being bound."""
        session = self._session
        unbound = session is not None and (self._is_binding or not session.is_open() or self._may_end_late())
        return -math.inf if unbound else self.until()

    def stop(self) -> None:
        """Ends the watch, without waiting for it. The session keeps its connection from now on."""
        self._stopped = True
        if not self._loop.is_closed():
            self._task.cancel()

    def changed(self) -> None:
        """The caller renews the hold, so that less is certain until the server answers."""
        self._beats.changed(time.monotonic())
        self._wake()

    def renewed(self, sent: float, lease: float) -> None:
        """The caller has renewed the hold."""
        self._beats.renewed(time.monotonic())
        self._wake()

    def look_now(self) -> None:
        """The server said that it has no such hold."""
        self._beats.hurry()
        self._wake()

    def _wake(self) -> None:
        if not self._changed.done():
            self._changed.set_result(None)

    async def _run(self) -> None:
        try:
            await self._watch()
        except Exception as error:  # noqa: BLE001 - nobody knows any more whether it is held
            await self._lose(f"nothing watches it any more: {error!r}")
            raise
        finally:
            if self._line is not None:
                await self._line.close()

    async def _watch(self) -> None:
        while True:
            session = self._session
            if self._may_end_late() and not self._stopped:
                return await self._lose(ENDED_LATE)
            ended = session.ended() if session is not None and not self._binds else None
            await self._sleep(ended)
            if session is not None and session.closed:
                return
            now = time.monotonic()
            if now >= self._beats.validity.until:
                why = "its lease ended"
                return await self._lose(why if self._refused is None else f"{why}: {self._refused}")
            if ended is not None and ended.done():
                self._binds = True
                self._beats.hurry()
            if now < self._beats.due():
                continue
            bound = self._binds
            look = self._beats.begin(now, binds=bound)
            try:
                looking = self._bind(look) if bound else self._look(look)
                replies = await within(max(0.0, self._beats.validity.until - now), looking)
                held = self._beats.took(time.monotonic(), look, replies)
            except _UNDECIDED as error:
                executed = not isinstance(error, _UNSENT)
                if isinstance(error, redis_py.NotPrimary):
                    self._refused = error
                self._beats.failed(time.monotonic(), look, binds=self._binds and not bound, executed=executed)
                continue
            except (ResponseError, LockError) as error:
                if isinstance(error, ResponseError) and redis_py.wrong_type(error):
                    return await self._lose("the key is no lock any more")
                # The server refuses, for example because it cannot write: the hold may last until its lease ends.
                self._refused = error
                self._beats.failed(time.monotonic(), look, binds=self._binds and not bound, executed=False)
                continue
            if not held:
                why = "the connection of its session ended" if self._binds else "the server has no such hold"
                return await self._lose(why)
            self._binds, self._is_binding, self._refused = False, False, None

    async def _sleep(self, ended: asyncio.Task[None] | None) -> None:
        if self._changed.done():
            self._changed = self._loop.create_future()
        hold = self._hold()
        late = [] if hold is None else hold.late
        events: set[asyncio.Future[None]] = {self._changed, *(line.ended() for line in late)}
        del hold, late
        if ended is not None:
            events.add(ended)
        pause = max(0.0, self._beats.due() - time.monotonic())
        await asyncio.wait(events, timeout=pause, return_when=asyncio.FIRST_COMPLETED)

    def _may_end_late(self) -> bool:
        hold = self._hold()
        return hold is not None and hold.may_end_late()

    async def _look(self, look: Look) -> list[Any]:
        """Returns the replies to a look."""
        commands, seconds = self._terms.commands(look), self._beats.answer_within(time.monotonic())
        if self._session is not None:
            try:
                return await self._session.exchange(*commands, within=seconds)
            except redis_py.LOST:
                # The connection may lead to a server that hangs, or is no primary any more. It stays open until another
                # is bound.
                self._binds = True
                raise
        line = await self._own(seconds)
        try:
            return await line.exchange(*commands, within=seconds)
        except BaseException:
            self._line = None
            await line.close()
            raise

    async def _own(self, seconds: float) -> Line:
        """Returns a connection for looks at a lock without a session."""
        if self._line is None:
            self._line = await self._wire.open(time.monotonic() + seconds)
        return self._line

    async def _bind(self, look: Look) -> list[Any]:
        """Binds the session to a new connection. Returns the replies."""
        seconds = self._beats.answer_within(time.monotonic())
        line = await self._wire.open(time.monotonic() + seconds)
        before: Line | None = None
        self._is_binding = True
        try:
            replies = await line.exchange(*self._terms.commands(look), within=seconds)
            hold = self._hold()
            if None not in replies and hold is not None and hold.connection is not None:
                before, hold.connection, self._session = hold.connection, line, line
            return replies
        finally:
            if before is not None:
                await before.close()
            else:
                await self._leave(line)

    async def _leave(self, line: Line) -> None:
        """Closes a connection on which binding failed. If the command that binds was not answered, the server may still
        execute it, and the end of the connection would then release the hold. Such a connection stays open, in `late`
        of the hold, unless the watch has ended. If it has ended itself, the hold is lost."""
        hold = self._hold()
        if hold is not None and hold.connection is not None and line.is_unanswered:
            hold.late.append(line)
            if not self._stopped:
                return
        await line.close()

    async def _lose(self, why: str) -> None:
        await self._tell(self._set(why))

    def _set(self, why: str) -> LockNotOwnedError:
        error = self._terms.error(f"The lock is lost: {why}")
        if not self.lost.done():
            self.lost.set_result(error)
        return error

    async def _tell(self, error: LockNotOwnedError) -> None:
        if self._on_lost is not None:
            try:
                result = self._on_lost(error)
                if inspect.isawaitable(result):
                    await result
            except Exception:  # noqa: BLE001 - the callback is the caller's
                logger.exception("on_lost failed")


class LeaseWatch(Beating, Watch):
    """A watch of a hold with a lease. One heart looks at all such holds of a client."""

    def _start(self) -> None:
        self._heart = async_heart.of(self.source())
        self._heart.join(self)

    def source(self) -> Any:
        """Returns what makes the connections to the server of its key."""
        return self._wire._source()

    def moves(self, heart: async_heart.Heart) -> None:
        """Goes on with the heart of another server, where the key is now."""
        self._heart = heart
        heart.join(self)

    def stop(self) -> None:
        """Ends the watch, without waiting for a look that is under way."""
        self._stopped = True
        self._heart.leave(self)

    def _wake(self) -> None:
        self._heart.wake()

    def lose(self, why: str) -> None:
        """The lock is lost. The heart does not wait for the callback."""
        self._heart.leave(self)
        if not self._stopped and not self.lost.done():
            start(self._tell(self._set(why)))
