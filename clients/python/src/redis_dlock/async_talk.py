"""Commands and replies on a connection of asyncio. Nothing else of this package sends or reads there."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

from . import profile, redis_py
from .commands import Command

# Stands for no time limit, in seconds: redis-py takes None for its own limit.
_ALWAYS = 31536000.0
# How long a reply that arrived while the event loop was busy has to reach its reader, in seconds. It still counts.
BUSY = 0.02
# Pause before work is cancelled once more, in seconds.
_CANCEL_AGAIN = 0.1

T = TypeVar("T")

# Work that goes on if its caller is cancelled or does not wait: the event loop itself keeps no task alive.
_background: set[asyncio.Task[Any]] = set()


class Talk:
    """A connection that counts the replies it owes. One that owes a reply is closed before anybody else uses it: the
    reply would be taken for that to another command. A cancellation does not disturb the reading."""

    def __init__(self, connection: Any, give_back: Callable[[Any], Awaitable[Any]] | None = None) -> None:
        """`give_back`: where the connection goes afterwards."""
        self.connection = connection
        self._give_back = give_back
        self._owed: deque[asyncio.Future[Any]] = deque()
        self._reader: asyncio.Task[None] | None = None
        # Whether the reader stays, to notice the end of the connection.
        self._stays = False
        self._broken = False

    @property
    def owes(self) -> bool:
        """Returns whether a reply is outstanding, or reading has failed. The end of a connection on which nobody reads
        is not noticed."""
        return self._broken or len(self._owed) > 0

    @property
    def is_unanswered(self) -> bool:
        """Returns whether the server may still execute a command that was sent."""
        return len(self._owed) > 0

    async def send(self, *commands: Command) -> list[asyncio.Future[Any]]:
        """Sends commands in one piece. Returns where their replies will be, even if they are errors."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in commands]
        packed = redis_py.packed(self.connection, commands)
        self._owed.extend(futures)
        await self.connection.send_packed_command(packed, check_health=False)
        self._read_on()
        return futures

    def _read_on(self) -> None:
        if self._reader is None or self._reader.done():
            self._reader = start(self._read())

    async def _read(self) -> None:
        error: Exception = ConnectionError("the connection ended")
        try:
            while self._owed or self._stays:
                try:
                    # Owners and names are bytes, whatever the client decodes.
                    reply = await self.connection.read_response(
                        disable_decoding=True, timeout=_ALWAYS, disconnect_on_error=False
                    )
                except ResponseError as answer:
                    reply = answer
                if self._owed and not (future := self._owed.popleft()).done():
                    future.set_result(reply)
        except Exception as lost:  # noqa: BLE001 - those who wait for a reply raise it
            self._broken, error = True, lost
        finally:
            for future in self._owed:
                if not future.done():
                    future.set_result(error)
            if not redis_py.may_be_executed(error):
                self._owed.clear()  # The server has answered.

    async def exchange(self, *commands: Command, within: float = redis_py.ANSWER) -> list[Any]:
        """Returns the replies, in order. Raises the first error, after all of them were read."""
        until = time.monotonic() + within
        return redis_py.results(await replies(await self.send(*commands), until))

    async def end(self, until: float) -> list[Any]:
        """Lets the server execute what was sent and close the connection. Returns the replies that still come."""
        futures = list(self._owed)
        _end_of_sending(self.connection)
        try:
            if futures and self._reader is not None:
                await asyncio.wait(futures, timeout=max(0.0, until - time.monotonic()))
        finally:
            self._broken = True
            await self.done()
        return [each.result() for each in futures if each.done() and not isinstance(each.result(), redis_py.LOST)]

    async def done(self) -> None:
        """Gives the connection back; closes it first if it owes a reply."""
        if self.owes:
            await self._disconnect()
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            await give_back(self.connection)

    async def leave(self) -> None:
        """Leaves a server that is no primary: the next user of the connection connects again."""
        await self._disconnect()

    async def _disconnect(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        await self.connection.disconnect(nowait=True)


class Line(Talk):
    """A connection outside of the pool."""

    # The open connections outside of the pool. The set keeps those of sessions alive. A forked child closes all of
    # them: as long as the child had them open, the server would not notice the end of the parent.
    _open: set[Line] = set()

    def __init__(self, source: Any, until: float) -> None:
        seconds = max(0.01, until - time.monotonic())
        settings = profile.own_settings(source, Retry(NoBackoff(), 0), seconds)
        super().__init__(source.connection_class(**settings))
        self.closed = False
        Line._open.add(self)

    async def connect(self, until: float) -> None:
        """Connects; raises `Unreachable` if that fails."""
        try:
            await within(max(0.0, until - time.monotonic()), self.connection.connect())
        except asyncio.TimeoutError:
            await self.close()
            raise redis_py.Unreachable(ConnectionError("no connection in time")) from None
        except redis_py.LOST as error:
            await self.close()
            raise redis_py.Unreachable(error) from error
        except BaseException:
            await self.close()
            raise

    def is_open(self) -> bool:
        """Returns whether the connection has not ended, as far as is known."""
        reader = getattr(self.connection, "_reader", None)
        ended = reader is not None and (reader.at_eof() or reader.exception() is not None)
        return bool(self.connection.is_connected) and not ended

    def has_ended(self) -> bool:
        """Returns whether the connection has ended, or nothing more can be read there."""
        return self._broken or not self.is_open()

    def ended(self) -> asyncio.Task[None]:
        """Returns a task that ends when the connection does."""
        self._stays = True
        self._read_on()
        assert self._reader is not None
        return self._reader

    async def exchange(self, *commands: Command, within: float = redis_py.ANSWER) -> list[Any]:
        """Returns the replies, in order."""
        if self._broken:
            raise ConnectionError("the connection of the session ended")
        return await super().exchange(*commands, within=within)

    async def done(self) -> None:
        """Closes it."""
        await self.close()

    async def close(self) -> None:
        """Closes the connection, and so ends what is bound to it."""
        self.closed = True
        Line._open.discard(self)
        await self._disconnect()

    @classmethod
    def forget(cls) -> None:
        """Closes the connections that a forked child inherited. The parent's stay open."""
        for line in cls._open:
            writer = getattr(line.connection, "_writer", None)
            sock = writer.get_extra_info("socket") if writer is not None else None
            if sock is not None:
                # A later close of this descriptor must close no other file.
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, sock.fileno())
                os.close(nothing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Line.forget)


async def replies(futures: list[asyncio.Future[Any]], until: float) -> list[Any]:
    """Returns replies that come until then by `time.monotonic()`, even if they are errors."""
    _, missing = await asyncio.wait(futures, timeout=max(0.0, until - time.monotonic()))
    if missing:
        _, missing = await asyncio.wait(missing, timeout=BUSY)
    if missing:
        raise TimeoutError("no reply in time")
    return [each.result() for each in futures]


def start(work: Coroutine[Any, Any, Any] | asyncio.Task[Any]) -> asyncio.Task[Any]:
    """Returns a task that goes on if nobody keeps it."""
    task: asyncio.Task[Any] = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_forget)
    return task


def _forget(task: asyncio.Task[Any]) -> None:
    _background.discard(task)
    # If nobody asks for its error any more, that is no reason for a message.
    if not task.cancelled():
        task.exception()


async def in_background(work: Coroutine[Any, Any, Any] | asyncio.Task[Any], seen: float = redis_py.CLEANING_SEEN) -> None:
    """Starts work, and waits for its end or `seen` seconds. The work goes on afterwards, even if the caller is
    cancelled. An event loop that ends gives the work a little more time."""
    task = start(work)
    keeper = _keeps(task)
    await keeper.__anext__()
    task.add_done_callback(lambda _: start(_closed(keeper)))
    await asyncio.wait({task}, timeout=seen)


async def _keeps(task: asyncio.Task[Any]) -> AsyncGenerator[None, None]:
    """Tasks do not keep an event loop from its end, but it waits for the end of asynchronous generators."""
    try:
        yield
    finally:
        await asyncio.wait({task}, timeout=redis_py.CLEANING_AT_END)


async def _closed(keeper: AsyncGenerator[None, None]) -> None:
    await keeper.aclose()


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancels a task, and waits for its end."""
    while not task.done():
        # Again, because the work may forget it.
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_AGAIN)


async def within(
    seconds: float | None, work: Coroutine[Any, Any, T], late: Callable[[T], Awaitable[Any]] | None = None
) -> T:
    """Returns the result of work that may take this time, or raises `asyncio.TimeoutError`. No cancellation gets lost.
    `late` gets a result that came all the same, when the time was over or the caller was cancelled.

    Up to Python 3.11, `asyncio.wait_for` drops a cancellation that arrives with the result, and redis-py calls it to
    send. Here the work has a task of its own, and the caller is cancelled in `asyncio.wait`, which forgets none.
    """
    task: asyncio.Task[T] = asyncio.ensure_future(work)
    # If nobody asks for its error any more, that is no reason for a message.
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise asyncio.TimeoutError
        return task.result()
    except BaseException:
        await cancel(task)
        if late is not None and not task.cancelled() and task.exception() is None:
            await late(task.result())
        raise


def _end_of_sending(connection: Any) -> None:
    writer = getattr(connection, "_writer", None)
    if writer is None:
        return
    if writer.can_write_eof():
        writer.write_eof()
    else:
        redis_py.end_of_sending(writer.get_extra_info("socket"))
