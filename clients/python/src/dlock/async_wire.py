"""As `sync_wire`, for asyncio."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redis.asyncio.retry import Retry
from redis.exceptions import ConnectionError, ResponseError

from . import redis_py
from .attempt import Attempt
from .commands import Command
from .holds import Hold

# What goes on when its caller is cancelled, or does not wait: the event loop itself keeps no task alive.
_background: set[asyncio.Task[Any]] = set()


@dataclass
class Bound:
    """A connection that a hold is bound to, and the pool it was taken from."""

    connection: Any
    pool: Any


class _NodePool:
    """The connections to a node of a cluster, whose client has none to lend."""

    def __init__(self, node: Any) -> None:
        self._node = node

    async def get_connection(self) -> Any:
        connection = self._node.connection_class(**self._node.connection_kwargs)
        await connection.connect()
        return connection

    async def release(self, connection: Any) -> None:
        await connection.disconnect()


class Wire:
    """The way to the server that has a key."""

    def __init__(self, client: Any, name: Any) -> None:
        self._client = client
        self._name = name

    async def acquire(self, attempt: Attempt) -> tuple[int | None, Bound | None]:
        """The token, or None; for a session with the connection that it is bound to, which is then the caller's."""
        answer: tuple[int | None, Bound | None] = await self._repeat(lambda: self._try_to_acquire(attempt))
        return answer

    async def release(self, command: Command, hold: Hold[Bound]) -> tuple[int | None, bool]:
        """The reply, and whether an earlier copy of the command may have been executed."""

        async def once() -> tuple[int | None, bool]:
            async with self._connection() as connection:
                repeated, hold.release_sent = hold.release_sent, True
                return await _exchange(connection, command), repeated

        answer: tuple[int | None, bool] = await self._repeat(once)
        return answer

    async def ask(self, *command: Any) -> Any:
        """A command that may be sent any number of times, on the client's own ways."""
        return await self._client.execute_command(*command)

    async def give_back(self, bound: Bound) -> None:
        """A connection that nothing is bound to any more."""
        await bound.pool.release(bound.connection)

    async def close(self, bound: Bound) -> None:
        """Ends what is bound to a connection, and the connection."""
        await bound.connection.disconnect(nowait=True)
        await self.give_back(bound)

    def discard(self, bound: Bound) -> None:
        """`close`, without waiting for it."""
        _start(self.close(bound))

    async def _pool(self) -> Any:
        if not redis_py.in_cluster(self._client):
            return self._client.connection_pool
        await self._client.initialize()
        return _NodePool(self._client.get_node_from_key(self._name))

    async def _repeat(self, once: Callable[[], Awaitable[Any]]) -> Any:
        """Again after a lost connection, the first time at once, then as the client was told to repeat."""

        async def failed(error: Exception) -> None:
            pass

        try:
            try:
                return await self._follow(once)
            except redis_py.LOST:
                policy = copy.deepcopy(redis_py.policy(self._client, Retry))
                return await policy.call_with_retry(lambda: self._follow(once), failed)
        except redis_py.Unreachable as error:
            raise error.reason from None

    async def _follow(self, once: Callable[[], Awaitable[Any]]) -> Any:
        """In a cluster: where the key goes."""
        ends = time.monotonic() + redis_py.SLOT_PATIENCE
        while True:
            try:
                return await once()
            except (*redis_py.MOVING, redis_py.Unreachable):
                if not redis_py.in_cluster(self._client) or time.monotonic() > ends:
                    raise
            await asyncio.sleep(redis_py.SLOT_PAUSE)
            # The client's own command finds the node and remembers it.
            await self._client.execute_command("EXISTS", self._name)

    async def _take(self) -> Bound:
        pool = await self._pool()
        try:
            return Bound(await pool.get_connection(), pool)
        except redis_py.LOST as error:
            raise redis_py.Unreachable(error) from error

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """One of the pool; closed if it breaks, or if the reply is not waited for."""
        bound = await self._take()
        try:
            yield bound.connection
        except ResponseError:
            raise
        except BaseException:
            await bound.connection.disconnect(nowait=True)
            raise
        finally:
            await self.give_back(bound)

    async def _try_to_acquire(self, attempt: Attempt) -> tuple[int | None, Bound | None]:
        # Where it waits is the first; while it moves on, where it waited is behind it.
        at = [await self._take()]
        exchange = asyncio.ensure_future(self._wait(at, attempt))
        try:
            token = await asyncio.shield(exchange)
        except asyncio.CancelledError:
            await _in_background(self._give_up(at, exchange, attempt))
            raise
        except ResponseError:
            await (self.give_back(at[0]) if len(at) == 1 else self._close_all(at))
            raise
        except BaseException:
            await self._close_all(at)
            raise
        if attempt.session and token is not None:
            return token, at[0]
        await self._give_back_granted(at[0], attempt, token)
        return token, None

    async def _wait(self, at: list[Bound], attempt: Attempt) -> int | None:
        try:
            while True:
                connection = at[0].connection
                await connection.send_command(*attempt.command())
                reply: asyncio.Future[int | None] = _start(connection.read_response(timeout=attempt.patience()))
                while (pause := attempt.moves_on()) and not (await asyncio.wait([reply], timeout=pause))[0]:
                    reply = await self._move_on(at, reply, attempt)
                token: int | None = await reply
                if token is not None or not attempt.goes_on():
                    return token
        except ResponseError as error:
            if redis_py.lost(error):
                raise ConnectionError(str(error)) from error
            raise

    async def _move_on(
        self, at: list[Bound], reply: asyncio.Future[int | None], attempt: Attempt
    ) -> asyncio.Future[int | None]:
        """The next slice, on another connection, takes over the place in line. This one gets nil, or the token that
        the other gets as well."""
        at.insert(0, await self._take())
        connection = at[0].connection
        await connection.send_command(*attempt.command())
        await reply
        await self.give_back(at.pop())
        return _start(connection.read_response(timeout=attempt.patience()))

    async def _close_all(self, at: list[Bound]) -> None:
        for bound in at:
            await self.close(bound)

    async def _give_back_granted(self, bound: Bound, attempt: Attempt, token: int | None) -> None:
        try:
            await self.give_back(bound)
        except asyncio.CancelledError:
            if token is not None:
                await _in_background(self.ask(*attempt.undo(token)))
            raise

    async def _give_up(self, at: list[Bound], exchange: asyncio.Future[int | None], attempt: Attempt) -> None:
        """The caller was cancelled. Leaves no place in line and no hold."""
        try:
            token = await _end([bound.connection for bound in at], exchange)
            await self._close_all(at)
            async with self._connection() as other:
                if token is None and not attempt.session:
                    token = await _exchange(other, attempt.once_more())
                if token is not None:
                    await _exchange(other, attempt.undo(token))
        except (*redis_py.LOST, redis_py.Unreachable, ResponseError):
            pass  # What cannot be undone ends with its lease.


def _start(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


async def _in_background(work: Coroutine[Any, Any, Any]) -> None:
    """Waits for work that goes on if the caller is cancelled once more."""
    await asyncio.shield(_start(work))


async def _exchange(connection: Any, command: Command) -> Any:
    await connection.send_command(*command)
    return await connection.read_response()


async def _end(connections: list[Any], exchange: asyncio.Future[int | None]) -> int | None:
    """Waits until the server has executed what was sent: the reply, or None if the server closed the connection
    first."""
    for connection in connections:
        writer = getattr(connection, "_writer", None)
        if writer is not None:
            redis_py.end_of_sending(writer.get_extra_info("socket"))
    try:
        return await asyncio.wait_for(exchange, redis_py.CLOSING)
    except (*redis_py.LOST, ResponseError, redis_py.Unreachable, asyncio.TimeoutError):
        return None
