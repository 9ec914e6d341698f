"""Reaches the server that has a key, as `sync_way` does, for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from redis.asyncio.retry import Retry
from redis.exceptions import ConnectionError, NoPermissionError, ResponseError, TimeoutError

from . import profile, redis_py
from .acquisition import Acquisition, Replicas
from .async_talk import BUSY, Line, Talk, replies, within
from .commands import Command
from .errors import ReplicasError
from .holds import Hold
from .limits import STEP


class Way:
    """The way to the server that has a key."""

    def __init__(self, client: Any, name: Any) -> None:
        redis_py.check_client(client, asyncio=True)
        self._client = client
        self._name = name
        # The source of connections for a client with a single connection, as its last acquisition found it.
        self._own_source: Any = None

    async def open(self, until: float) -> Line:
        """Returns a new connection of its own to the server that has the key. Raises `Unreachable` at that time."""
        line = Line(self._source(), until)
        await line.connect(until)
        return line

    async def renew(
        self, commands: list[Command], replicas: Replicas | None, until: float, refused: Callable[[], None]
    ) -> tuple[list[Any], bool]:
        """Returns the replies to renewals, and whether an earlier copy of them was not answered. With replicas, raises
        `ReplicasError` if too few acknowledge them. `refused`: called if certainly no server executes them."""
        if replicas is not None:
            return await self._renew_with(commands, replicas, until + replicas.timeout, None), False
        copies = 0

        async def on(talk: Talk, until: float) -> list[Any]:
            nonlocal copies
            copies += 1
            return await talk.exchange(*commands, within=until - time.monotonic())

        try:
            return await self._repeat(on, until), copies > 1
        except ResponseError:
            if copies == 1 and len(commands) == 1:
                refused()
            raise

    async def _renew_with(
        self, commands: list[Command], replicas: Replicas, until: float, line: Line | None
    ) -> list[Any]:
        """Sends renewals and the `WAIT` for the replicas, on `line` or a new connection."""
        own = line is None
        try:
            line = line or await self.open(until)
        except redis_py.Unreachable as error:
            raise error.reason from None
        try:
            seconds = until - time.monotonic()
            *renewed, acknowledged = await line.exchange(*commands, replicas.wait(), within=seconds)
        finally:
            if own:
                await line.close()
        if acknowledged < replicas.count and None not in renewed:
            raise ReplicasError(replicas.too_few(acknowledged))
        return renewed

    async def release(self, commands: list[Command], hold: Hold[Line], until: float) -> tuple[list[Any], bool]:
        """Returns the replies, and whether an earlier copy of the commands may have been executed."""
        repeated = False

        async def on(talk: Talk, until: float) -> list[Any]:
            nonlocal repeated
            repeated, hold.release_sent = hold.release_sent, True
            try:
                return await talk.exchange(*commands, within=until - time.monotonic())
            except Exception as error:
                # If one of several commands fails, the others may be executed.
                hold.release_sent = repeated or len(commands) > 1 or redis_py.may_be_executed(error)
                raise

        if hold.connection is not None and hold.connection.is_open():
            try:
                step = min(until, time.monotonic() + STEP)
                return await in_time(on(hold.connection, step), step), repeated
            except redis_py.LOST:
                pass  # A second copy of the commands follows on another connection.
        return await self._repeat(on, until), repeated

    async def ask(self, commands: list[Command], until: float) -> list[Any]:
        """Returns the replies to commands that may be repeated."""

        async def on(talk: Talk, until: float) -> list[Any]:
            return await talk.exchange(*commands, within=until - time.monotonic())

        return await self._repeat(on, until)

    async def exchange(self, sent: list[Command], until: float, *, fresh: bool) -> list[Any]:
        """Returns the replies of a primary, even errors. Does not wait for the pool: if that has no open connection to
        spare, makes one beside it. `fresh`: makes one even if the pool has some."""
        if self._own_source is None:
            await self._look(until)
        source = self._source()
        if not fresh and redis_py.has_open_connection(source):
            lent = await within(until - time.monotonic(), source.get_connection(), source.release)
            talk = Talk(lent, source.release)
        else:
            talk = await self.open(until)
        try:
            futures = await within(until - time.monotonic(), talk.send(*sent))
            return redis_py.of_primary(await replies(futures, until))
        except BaseException:
            await talk.connection.disconnect(nowait=True)
            raise
        finally:
            await talk.done()

    def _source(self) -> Any:
        """Returns what knows how to connect to the server of the key: the pool, or the node of the cluster."""
        if self._own_source is not None:
            return self._own_source
        if not redis_py.in_cluster(self._client):
            return self._client.connection_pool
        return self._client.get_node_from_key(self._name)

    async def _look(self, until: float) -> None:
        """Asks a client with a single connection for its state, which the program may have changed."""
        if not redis_py.is_single(self._client):
            return
        try:
            told = await within(until - time.monotonic(), self._client.execute_command("CLIENT", "INFO"))
        except NoPermissionError as error:
            raise profile.unknown(error) from error
        except asyncio.TimeoutError:
            raise redis_py.Unreachable(ConnectionError("no answer in time")) from None
        except redis_py.LOST as error:
            raise redis_py.Unreachable(error) from error
        self._own_source = profile.source_of(self._client.connection_pool, told)

    async def _repeat(self, on: Callable[[Talk, float], Awaitable[list[Any]]], until: float) -> list[Any]:
        """Returns what an exchange returns. Repeats it after a lost connection, as often as the policy of the client
        allows and until that time; then raises its last error."""
        repeats = redis_py.Repeats(redis_py.policy(self._client, Retry), until)

        async def once() -> list[Any]:
            step = repeats.step()
            if self._own_source is None:
                await self._look(step)

            async def exchanged() -> list[Any]:
                async with self._talk(step, fresh=repeats.fresh) as talk:
                    return await on(talk, step)

            return await in_time(exchanged(), step)

        while True:
            try:
                answer: list[Any] = await self._follow(once, lambda: until)
                return answer
            except (*redis_py.LOST, redis_py.Unreachable) as error:
                pause = repeats.pause(error)
            await asyncio.sleep(pause)

    async def _follow(self, once: Callable[[], Awaitable[Any]], gives_up: Callable[[], float]) -> Any:
        """Returns what `once` returns. In a cluster, follows the key to its node until `gives_up`, but not for longer
        than `SLOT_PATIENCE`."""
        if not redis_py.in_cluster(self._client):
            return await once()
        ends = time.monotonic() + redis_py.SLOT_PATIENCE
        try:
            await within(min(ends, gives_up()) - time.monotonic(), self._client.initialize())
            while True:
                try:
                    return await once()
                except (*redis_py.MOVING, redis_py.Unreachable, redis_py.NotPrimary) as error:
                    if time.monotonic() > min(ends, gives_up()):
                        raise redis_py.unreachable(error) from error
                await asyncio.sleep(redis_py.SLOT_PAUSE)
                # A command of the user's client finds the node, which the client remembers, unless the cluster is down.
                with suppress(*redis_py.MOVING):
                    asking = self._client.execute_command("EXISTS", self._name)
                    await within(min(ends, gives_up()) - time.monotonic(), asking)
        except asyncio.TimeoutError:
            raise TimeoutError("the cluster does not answer in time") from None

    @asynccontextmanager
    async def _talk(
        self, until: float, attempt: Acquisition | None = None, *, fresh: bool = False
    ) -> AsyncIterator[Talk]:
        """Yields a connection of the pool, or a new one beside it if the pool is full or `fresh` is set. A connection
        on which the attempt is not answered is left to the attempt."""
        talk = await self.open(until) if fresh else await self._lend(until, attempt)
        try:
            yield talk
        except (redis_py.NotPrimary, redis_py.Unreachable):
            await talk.leave()
            raise
        finally:
            if attempt is None or not attempt.keeps(talk):
                await talk.done()

    async def _lend(self, until: float, attempt: Acquisition | None) -> Talk:
        """Borrows a connection of the pool, or makes one beside it. An attempt waits for the pool only once."""
        source = self._source()
        asked = False
        if attempt is not None:
            asked, attempt.lent = attempt.lent, True
        try:
            if redis_py.has_open_connection(source):
                return Talk(await source.get_connection(), source.release)
            if not asked and redis_py.lends(source):
                seconds = min(until - time.monotonic(), redis_py.LENDING)
                return Talk(await within(seconds, source.get_connection(), source.release), source.release)
        except asyncio.TimeoutError:
            raise redis_py.Unreachable(ConnectionError("no connection in time")) from None
        except redis_py.LOST as error:
            if not redis_py.pool_is_full(error):
                raise redis_py.Unreachable(error) from error
        return await self.open(until)


async def in_time(work: Coroutine[Any, Any, list[Any]], until: float) -> list[Any]:
    """Returns the result of an exchange. The limit is for the whole of it, since even the wait for the lock of a pool
    may be long: another task may keep that lock while it waits for a server. Limits of single steps, and late replies
    (`BUSY`), come before this limit."""
    try:
        return await within(until + 2 * BUSY - time.monotonic(), work)
    except asyncio.TimeoutError:
        raise TimeoutError("no connection in time") from None
