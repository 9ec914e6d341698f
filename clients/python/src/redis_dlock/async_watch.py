"""As `sync_watch`, for asyncio: in a task."""

from __future__ import annotations

import asyncio
import inspect
import time
import weakref
from collections.abc import Callable
from typing import Any

from redis.exceptions import LockNotOwnedError, ResponseError

from . import redis_py
from .async_wire import Line, Wire, start, within
from .base import logger
from .errors import ReplicasError
from .holds import Hold
from .watch import Terms, Validity


class Watch:
    """Ends with the release of the hold, with its loss, and when the hold is gone."""

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
        self._session = hold.connection
        self._line: Line | None = None
        self._validity = Validity(hold.since, terms.lease, ask_first=hold.queued)
        self._task = start(self._run())
        # Keeps no reference to the hold, so that it can go.
        weakref.finalize(hold, self.stop).atexit = False

    def stop(self) -> None:
        """Ends the watch, without waiting for it."""
        if not self._loop.is_closed():
            self._task.cancel()

    def renewed(self, sent: float, lease: float) -> None:
        """The caller has renewed the hold."""
        self._validity.set_to(sent, lease)
        if not self._changed.done():
            self._changed.set_result(None)

    async def _run(self) -> None:
        try:
            await self._watch()
        finally:
            if self._line is not None:
                await self._line.close()

    async def _watch(self) -> None:
        ended = self._session.ended() if self._session is not None else None
        while True:
            await self._sleep(ended)
            now = time.monotonic()
            if ended is not None and ended.done():
                return await self._lose("the connection of its session ended")
            if now >= self._validity.until:
                return await self._lose("its lease ended")
            if now < self._validity.due:
                continue
            try:
                left = await within(max(0.0, self._validity.until - now), self._look())
            except (*redis_py.LOST, *redis_py.MOVING, redis_py.Unreachable, ReplicasError, asyncio.TimeoutError):
                self._validity.failed(time.monotonic())
                continue
            except ResponseError as error:
                return await self._lose(f"the server refused: {error}")
            if left is None:
                return await self._lose("the server has no such hold")
            self._validity.confirmed(now, left)

    async def _sleep(self, ended: asyncio.Task[None] | None) -> None:
        if self._changed.done():
            self._changed = self._loop.create_future()
        events: set[asyncio.Future[None]] = {self._changed}
        if ended is not None:
            events.add(ended)
        pause = max(0.0, self._validity.due - time.monotonic())
        await asyncio.wait(events, timeout=pause, return_when=asyncio.FIRST_COMPLETED)

    async def _look(self) -> float | None:
        """Returns the seconds left, or None if the hold is gone."""
        line = self._session or await self._own()
        try:
            return self._terms.left(await line.exchange(*self._terms.commands(), within=self._terms.lease))
        except BaseException:
            if line is self._line:
                self._line = None
                await line.close()
            raise

    async def _own(self) -> Line:
        if self._line is None:
            line = self._wire.line(max(0.1, self._validity.until - time.monotonic()))
            try:
                await line.connect()
            except BaseException:
                await line.close()
                raise
            self._line = line
        return self._line

    async def _lose(self, why: str) -> None:
        error = self._terms.error(f"The lock is lost: {why}")
        self.lost.set_result(error)
        if self._on_lost is not None:
            try:
                result = self._on_lost(error)
                if inspect.isawaitable(result):
                    await result
            except Exception:  # noqa: BLE001 - the callback is the caller's
                logger.exception("on_lost failed")
