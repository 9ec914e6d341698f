"""As `sync_wire`, for asyncio."""

from __future__ import annotations

import asyncio
import copy
import math
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, ResponseError

from . import redis_py
from .attempt import Attempt, Replicas
from .commands import Command
from .errors import ReplicasError
from .holds import Hold

# No time limit, in seconds: redis-py takes none from us.
_ALWAYS = 31536000.0

# Pause before work is cancelled once more, in seconds.
_CANCEL_AGAIN = 0.1

T = TypeVar("T")

# Work that goes on if its caller is cancelled or does not wait: the event loop itself keeps no task alive.
_background: set[asyncio.Task[Any]] = set()


class Line:
    """A connection outside of the pool."""

    # Keeps the connections of sessions alive, and closes all of them in a forked child: as long as the child had them
    # open, the server would not notice the end of the parent.
    _open: set[Line] = set()

    def __init__(self, source: Any, connect_within: float | None = None) -> None:
        settings = redis_py.own_settings(source, Retry(NoBackoff(), 0), connect_within)
        self.connection = source.connection_class(**settings)
        self._reader: asyncio.Task[None] | None = None
        self._replies: deque[asyncio.Future[Any]] = deque()
        Line._open.add(self)

    async def connect(self) -> None:
        """Connects; raises `Unreachable` if that fails."""
        try:
            await self.connection.connect()
        except redis_py.LOST as error:
            raise redis_py.Unreachable(error) from error

    def is_open(self) -> bool:
        """Returns whether the connection has not ended, as far as is known."""
        reader = getattr(self.connection, "_reader", None)
        return bool(self.connection.is_connected) and not (reader is not None and reader.at_eof())

    def ended(self) -> asyncio.Task[None]:
        """Returns a task that ends when the connection does. From then on all replies are read by it."""
        if self._reader is None:
            self._reader = start(self._read())
        return self._reader

    async def _read(self) -> None:
        try:
            while True:
                try:
                    reply = await self.connection.read_response(timeout=_ALWAYS)
                except ResponseError as error:
                    reply = error
                if self._replies and not (future := self._replies.popleft()).done():
                    future.set_result(reply)
        except redis_py.LOST:
            pass
        finally:
            for future in self._replies:
                if not future.done():
                    future.set_result(ConnectionError("the connection of the session ended"))

    async def exchange(self, *commands: Command, within: float | None = None) -> list[Any]:
        """Returns the replies, in order."""
        if self._reader is None:
            return await _exchange(self.connection, *commands, within=within)
        if self._reader.done():
            raise ConnectionError("the connection of the session ended")
        futures = [asyncio.get_running_loop().create_future() for _ in commands]
        self._replies.extend(futures)
        await self.connection.send_packed_command(self.connection.pack_commands(commands))
        replies = [await future for future in futures]
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise reply if isinstance(reply, redis_py.MOVING) else redis_py.explained(reply)
            if isinstance(reply, Exception):
                raise reply
        return replies

    async def close(self) -> None:
        """Closes the connection, and so ends what is bound to it."""
        Line._open.discard(self)
        if self._reader is not None:
            self._reader.cancel()
        await self.connection.disconnect(nowait=True)

    @classmethod
    def forget(cls) -> None:
        """Closes what a forked child inherited. That does not end the parent's connections."""
        for line in cls._open:
            writer = getattr(line.connection, "_writer", None)
            sock = writer.get_extra_info("socket") if writer is not None else None
            if sock is not None:
                # Whatever closes this descriptor later closes no other file.
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, sock.fileno())
                os.close(nothing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Line.forget)


class Wire:
    """The way to the server that has a key."""

    def __init__(self, client: Any, name: Any) -> None:
        self._client = client
        self._name = name

    # Acquiring

    async def acquire(self, attempt: Attempt) -> None:
        """Sets the attempt's token if the lock was granted, and for a session the connection it is bound to."""
        at: list[Any] = []
        work = start(self._acquire(attempt, at))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await in_background(self._abandon(attempt, at, work))
            raise

    async def _acquire(self, attempt: Attempt, at: list[Any]) -> None:
        """`at` gets the connections on which the attempt is under way."""
        try:
            await self._repeat(lambda: self._once_unless_abandoned(attempt, at), attempt)
            if attempt.token is not None and attempt.replicas is not None:
                await self._confirm(attempt, attempt.replicas)
        except Exception:
            await self.give_up(attempt)
            raise

    async def _abandon(self, attempt: Attempt, at: list[Any], work: asyncio.Task[None]) -> None:
        """The caller was cancelled. Leaves no place in the queue and no hold."""
        attempt.abandoned = True
        if attempt.unanswered:
            # The server executes what it has received, and the work reads the reply.
            for connection in at:
                _end_of_sending(connection)
            await asyncio.wait([work], timeout=redis_py.CLOSING)
        work.cancel()
        try:
            await work
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - the caller's cancellation is what is raised
            pass
        await self.give_up(attempt)

    async def give_up(self, attempt: Attempt) -> None:
        """Leaves no hold behind, as far as the server can be reached."""
        line, attempt.connection = attempt.connection, None
        if line is not None:
            await line.close()
        if attempt.token is None and not attempt.unanswered:
            return
        try:
            line = self.line(redis_py.CLOSING)
            try:
                token = attempt.token
                if token is None:
                    token = (await line.exchange(attempt.once_more()))[0]
                if token is not None:
                    await line.exchange(*attempt.undo(token))
            finally:
                await line.close()
        except (*redis_py.LOST, redis_py.Unreachable, ResponseError):
            pass  # What cannot be undone ends with its lease.
        attempt.token, attempt.unanswered = None, False

    async def _once_unless_abandoned(self, attempt: Attempt, at: list[Any]) -> None:
        try:
            await self._once(attempt, at)
        except (*redis_py.LOST, *redis_py.MOVING, redis_py.Unreachable) as error:
            if attempt.abandoned:
                raise asyncio.CancelledError from error
            raise

    async def _once(self, attempt: Attempt, at: list[Any]) -> None:
        if not attempt.session and (not attempt.waits or redis_py.Crowd.room(self._source())):
            with redis_py.Crowd(self._source()):
                within = max(attempt.left(), redis_py.CONNECTING) if attempt.ends is not None else None
                async with self._connection(within) as connection:
                    at.append(connection)
                    try:
                        await _try(connection, attempt)
                    finally:
                        at.remove(connection)
            if attempt.token is not None or attempt.left() == 0:
                return
        await self._wait(attempt, at)

    async def _wait(self, attempt: Attempt, at: list[Any]) -> None:
        """Waits on a connection of its own; when it moves on, the one where it waited before comes second."""
        lines: list[Line] = []
        reply: asyncio.Task[Any] | None = None
        try:
            lines.append(await self._open(attempt))
            attempt.queued = True
            while True:
                at[:] = [lines[0].connection]
                reply = await self._ask_to_wait(lines[0], attempt)
                while (pause := attempt.moves_on()) and not (await asyncio.wait([reply], timeout=pause))[0]:
                    lines.insert(0, await self._open(attempt))
                    at.insert(0, lines[0].connection)
                    # This takes over the place in the queue. The first gets nil, or the same token.
                    following = await self._ask_to_wait(lines[0], attempt)
                    await reply
                    reply = following
                    at.pop()
                    await lines.pop().close()
                _judge(attempt, await reply)
                if attempt.token is not None or not attempt.goes_on():
                    break
            if attempt.session and attempt.token is not None:
                attempt.connection = lines[0]
        finally:
            del at[:]
            if reply is not None:
                reply.cancel()
            for line in () if attempt.connection is not None else lines:
                await line.close()

    async def _ask_to_wait(self, line: Line, attempt: Attempt) -> asyncio.Task[Any]:
        attempt.unanswered = True
        patience = attempt.patience()
        await line.connection.send_command(*attempt.command())
        return start(_reply(line.connection, patience))

    async def _open(self, attempt: Attempt) -> Line:
        line = self.line(attempt.left() if attempt.ends is not None else None)
        try:
            await line.connect()
        except BaseException:
            await line.close()
            raise
        return line

    async def _confirm(self, attempt: Attempt, replicas: Replicas) -> None:
        """Raises `ReplicasError` unless enough replicas have the grant."""
        assert attempt.token is not None
        if attempt.acknowledged is None:
            # The grant came to a blocked connection. Redis before 7.0.12 does not count that as a write of this
            # connection, so that `WAIT` would not wait for it. A renewal is such a write.
            renewals = attempt.target.renew(attempt.owner, attempt.token, attempt.lease)
            await self.renew(renewals, replicas, attempt.connection)
        elif attempt.acknowledged < replicas.count:
            raise ReplicasError(replicas.too_few(attempt.acknowledged))

    # Everything else

    def line(self, connect_within: float | None = None) -> Line:
        """Returns a new connection of its own to the server that has the key."""
        return Line(self._source(), connect_within)

    async def renew(self, commands: list[Command], replicas: Replicas | None, line: Line | None = None) -> list[Any]:
        """Returns the replies to renewals. With replicas, raises `ReplicasError` if too few acknowledge them."""
        if replicas is None:
            return [await self.ask(*command) for command in commands]
        own = line is None
        line = line or self.line()
        try:
            within = replicas.timeout + redis_py.CLOSING
            *replies, acknowledged = await line.exchange(*commands, replicas.wait(), within=within)
        finally:
            if own:
                await line.close()
        if acknowledged < replicas.count and None not in replies:
            raise ReplicasError(replicas.too_few(acknowledged))
        return replies

    async def release(self, commands: list[Command], hold: Hold[Line]) -> tuple[list[Any], bool]:
        """Returns the replies, and whether an earlier copy of the commands may have been executed."""

        async def on(exchange: Callable[..., Awaitable[list[Any]]]) -> tuple[list[Any], bool]:
            repeated, hold.release_sent = hold.release_sent, True
            return await exchange(*commands), repeated

        async def once() -> tuple[list[Any], bool]:
            async with self._connection() as connection:
                return await on(lambda *each: _exchange(connection, *each))

        if hold.connection is not None and hold.connection.is_open():
            try:
                return await on(hold.connection.exchange)
            except redis_py.LOST:
                pass  # A second copy of the commands follows on another connection.
        answer: tuple[list[Any], bool] = await self._repeat(once)
        return answer

    async def ask(self, *command: Any) -> Any:
        """Returns the reply to a command that may be repeated, sent by the client itself."""
        try:
            return await self._client.execute_command(*command)
        except ResponseError as error:
            raise redis_py.explained(error) from error

    def _source(self) -> Any:
        """Returns what knows how to connect to the server of the key: the pool, or the node of the cluster."""
        if not redis_py.in_cluster(self._client):
            return self._client.connection_pool
        return self._client.get_node_from_key(self._name)

    async def _repeat(self, once: Callable[[], Awaitable[Any]], attempt: Attempt | None = None) -> Any:
        """Repeats after a lost connection: the first time immediately, then as the client is configured to. A wait with
        a time limit goes on for as long as it has time left."""

        async def failed(error: Exception) -> None:
            pass

        outage = redis_py.Outage()
        while attempt is not None and attempt.waits and attempt.ends is not None:
            try:
                return await self._follow(once, attempt.ends)
            except (*redis_py.LOST, redis_py.Unreachable) as error:
                await asyncio.sleep(outage.pause(attempt.left(), error))
        try:
            try:
                return await self._follow(once)
            except redis_py.LOST:
                policy = copy.deepcopy(redis_py.policy(self._client, Retry))
                return await policy.call_with_retry(lambda: self._follow(once), failed)
        except redis_py.Unreachable as error:
            raise error.reason from None

    async def _follow(self, once: Callable[[], Awaitable[Any]], ends: float = math.inf) -> Any:
        """In a cluster, follows the key to its node."""
        if redis_py.in_cluster(self._client):
            await self._client.initialize()
        ends = min(ends, time.monotonic() + redis_py.SLOT_PATIENCE)
        while True:
            try:
                return await once()
            except (*redis_py.MOVING, redis_py.Unreachable):
                if not redis_py.in_cluster(self._client) or time.monotonic() > ends:
                    raise
            await asyncio.sleep(redis_py.SLOT_PAUSE)
            # The client's own command finds the node and remembers it.
            await self._client.execute_command("EXISTS", self._name)

    @asynccontextmanager
    async def _connection(self, within: float | None = None) -> AsyncIterator[Any]:
        """Yields a connection of the pool, or one beside it if the pool is full. Closes it if it breaks, or if the
        reply is not waited for."""
        source = self._source()
        line: Line | None = None
        try:
            lent = source.get_connection() if redis_py.lends(source) else None
            connection = await asyncio.wait_for(lent, within) if lent is not None else None
        except asyncio.TimeoutError:
            raise redis_py.Unreachable(ConnectionError("no connection in the time to wait")) from None
        except redis_py.LOST as error:
            if not redis_py.pool_is_full(error):
                raise redis_py.Unreachable(error) from error
            connection = None
        if connection is None:
            line = self.line()
            connection = line.connection
        try:
            if line is not None:
                await line.connect()
            yield connection
        except (ResponseError, ReplicasError):
            raise
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await (source.release(connection) if line is None else line.close())


def start(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Returns a task that goes on if nobody keeps it."""
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


async def in_background(work: Coroutine[Any, Any, Any]) -> None:
    """Waits for work that goes on if the caller is cancelled once more."""
    await asyncio.shield(start(work))


async def within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of work that may take this time, or raises `asyncio.TimeoutError`. No cancellation gets lost.

    Up to Python 3.11, `asyncio.wait_for` drops a cancellation that arrives with the result, and redis-py sends
    by it. Here the work has a task of its own, and the caller is cancelled in `asyncio.wait`, which forgets none.
    """
    task = asyncio.ensure_future(work)
    # If nobody asks for its error any more, that is no reason for a message.
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise asyncio.TimeoutError
        return task.result()
    finally:
        while not task.done():
            # Again, because the work may forget it.
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCEL_AGAIN)


async def _try(connection: Any, attempt: Attempt) -> None:
    """Sends the command that does not wait, with `WAIT` behind it if replicas must have the grant."""
    commands = [attempt.first()]
    if attempt.replicas is not None:
        commands.append(attempt.replicas.wait())
    attempt.unanswered = True
    await connection.send_packed_command(connection.pack_commands(commands))
    _judge(attempt, await _reply(connection, None))
    if attempt.replicas is not None:
        attempt.acknowledged = await connection.read_response(timeout=attempt.replicas.timeout + redis_py.CLOSING)


async def _reply(connection: Any, patience: float | None) -> Any:
    """Returns the reply, also if it is an error."""
    try:
        return await connection.read_response(timeout=patience)
    except ResponseError as error:
        return error


def _judge(attempt: Attempt, reply: Any) -> None:
    """Takes the reply to an acquiring command into the attempt."""
    if isinstance(reply, ResponseError) and redis_py.lost(reply):
        raise ConnectionError(str(reply)) from reply
    attempt.unanswered = False
    if isinstance(reply, ResponseError):
        raise reply if isinstance(reply, redis_py.MOVING) else redis_py.explained(reply)
    attempt.token = reply


async def _exchange(connection: Any, *commands: Command, within: float | None = None) -> list[Any]:
    """Returns the replies. Raises the first error, after all of them were read."""
    await connection.send_packed_command(connection.pack_commands(commands))
    replies: list[Any] = [await _reply(connection, within) for _ in commands]
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise reply if isinstance(reply, redis_py.MOVING) else redis_py.explained(reply)
    return replies


def _end_of_sending(connection: Any) -> None:
    writer = getattr(connection, "_writer", None)
    if writer is None:
        return
    if writer.can_write_eof():
        writer.write_eof()
    else:
        redis_py.end_of_sending(writer.get_extra_info("socket"))
