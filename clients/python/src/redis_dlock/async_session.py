"""The session for asyncio, on one server and in a cluster."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace, TracebackType
from typing import Any, TypeVar

from redis.exceptions import ConnectionError, LockError, LockNotOwnedError, ResponseError

from . import redis_py
from .async_talk import start, within
from .async_wire import Wire
from .binding import Round
from .commands import Command, Name
from .errors import attach, logger
from .homes import NO_NODE, Homes, move, strays
from .limits import LATE, TRY
from .session import SessionBase

S = TypeVar("S", bound="Session")

# The errors of an exchange that has no answer: no server was reached, or a server may have executed the commands.
_NO_ANSWER = (*redis_py.LOST, redis_py.Unreachable, asyncio.TimeoutError)


class Session(SessionBase):
    """As `redis_dlock.Session`, for asyncio: the heartbeats come from a task, so the locks of a process whose event
    loop hangs are freed."""

    def __new__(cls, redis: Any, *args: Any, **kwargs: Any) -> Session:
        """Makes the session of a cluster if `redis` is the client of one."""
        if cls is Session and redis_py.in_cluster(redis):
            return super().__new__(ClusterSession)
        return super().__new__(cls)

    async def open(self: S) -> S:
        """Opens the session at the server, and starts the task that sends the heartbeats. Returns the session itself.

        Raises redis-py's `ConnectionError` or `TimeoutError` if no server answers within a second.
        """
        ends = time.monotonic() + TRY
        self._begin_opening()
        await self._repeat(lambda: self._begin(ends + LATE), ends)
        return self

    async def _begin(self, until: float) -> None:
        """Tries once to open the session."""
        await self._heartbeat(until)
        self._task = start(self._run())

    async def home(self, name: Name, until: float) -> Session:
        """Returns the session on the server of a key."""
        return self

    async def close(self) -> None:
        """Ends the session, and frees all of its locks with one command. A lock that was still held is lost.

        Raises redis-py's `ConnectionError` or `TimeoutError` if no server answers within a second. The server
        then frees the locks `timeout` seconds after the last heartbeat, or after `dlock.session-grace` more.
        """
        if not self._mark_closed():
            return
        ends = time.monotonic() + TRY
        self._wake()
        # A heartbeat under way gets a second, so that none of its commands arrives after the session is closed.
        await asyncio.wait({self._task}, timeout=TRY)
        self._lose_some(list(self._bindings), "its session was closed")
        await self._repeat(lambda: self._exchange([self._close_command()], ends + LATE), ends)

    @property
    def lost(self) -> asyncio.Future[LockNotOwnedError]:
        """A future that is done when the session is lost, or must be assumed lost: no heartbeat was confirmed for its
        timeout. The result is the error. All locks of the session are lost with it, and it cannot be opened again. The
        future stays pending when the session is closed, and always in a cluster: use the `lost` of each lock there."""
        return asyncio.shield(self._loss())

    async def __aenter__(self: S) -> S:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception as error:
            if value is None:
                raise
            attach(value, error, "The session was not closed")

    def _prepare(self) -> None:
        redis_py.check_client(self.redis, asyncio=True)
        self._wakes = asyncio.Event()
        self._wire = Wire(self.redis, "")

    def _signal(self) -> asyncio.Future[LockNotOwnedError]:
        return asyncio.get_running_loop().create_future()

    def _wake(self) -> None:
        self._wakes.set()

    async def _run(self) -> None:
        try:
            await self._keep()
        except Exception as error:  # noqa: BLE001 - nothing keeps the locks any more
            self._lose(f"its heartbeats failed: {error!r}")
            raise

    async def _keep(self) -> None:
        """Sends the heartbeats while the session is open."""
        while self._not_open is None:
            waking = asyncio.ensure_future(self._wakes.wait())
            await asyncio.wait({waking}, timeout=self._pause())
            waking.cancel()
            self._wakes.clear()
            if self._not_open is not None or not self._is_due():
                continue
            try:
                await self._heartbeat()
                self._went(None)
            except (*_NO_ANSWER, ResponseError, LockError) as error:
                self._went(error)
            if self._failed is not None or self._strayed:
                self._strayed = False
                await self._follow()

    async def _follow(self) -> None:
        """Does nothing: the locks of one server stay there. In a cluster, they may be on another server now."""

    async def _heartbeat(self, until: float | None = None) -> None:
        """Sends a heartbeat, and the commands that follow from its replies."""
        work: Round = self._round()
        try:
            commands = next(work)
            while True:
                commands = work.send(await self._exchange(commands, self._limit() if until is None else until))
        except StopIteration:
            pass

    async def _exchange(self, commands: list[Command], until: float) -> list[Any]:
        return await self._wire.exchange(commands, until, fresh=self._failed is not None)

    async def _repeat(self, work: Callable[[], Awaitable[Any]], ends: float) -> None:
        """Repeats `work` until a server answers. At `ends`, raises the last error."""
        outage = redis_py.Outage()
        while True:
            try:
                await work()
                return
            except _NO_ANSWER as error:
                self._failed = error
                await asyncio.sleep(outage.pause(ends - time.monotonic(), error))

    def _tell(self, losses: list[tuple[Any, Callable[..., Any] | None, LockNotOwnedError]]) -> None:
        """Tells that locks are lost: sets all their futures before the first `on_lost` is called."""
        for lost, _, error in losses:
            if not lost.done():
                lost.set_result(error)
        for _, on_lost, error in losses:
            if on_lost is not None:
                start(_call(on_lost, error))


async def _call(on_lost: Callable[..., Any], error: LockNotOwnedError) -> None:
    try:
        result = on_lost(error)
        if inspect.isawaitable(result):
            await result
    except Exception:  # noqa: BLE001 - the callback is the caller's
        logger.exception("on_lost failed")


class ClusterSession(Session):
    """As the `ClusterSession` of threads, for asyncio: a session on each server that has locks of the program."""

    async def open(self) -> ClusterSession:
        """Begins the session. A server gets its session with the first lock there."""
        self._begin_opening()
        self._homes = Homes(self)
        # Held for a node while the session there is looked up or opened, so that it is opened once.
        self._gates: dict[str, asyncio.Lock] = {}
        self._not_open = None
        return self

    async def close(self) -> None:
        """Ends the session, and frees its locks with one command for each server.

        Raises redis-py's `ConnectionError` or `TimeoutError` if a server that has locks of the session does not answer
        within a second. The session is closed on the servers that answer.
        """
        if not self._mark_closed():
            return
        homes = self._homes.everything()
        had_locks = [home.has_locks for home in homes]
        errors = await asyncio.gather(*(home.close() for home in homes), return_exceptions=True)
        for error, has_locks in zip(errors, had_locks):
            if isinstance(error, BaseException) and (has_locks or not isinstance(error, redis_py.LOST)):
                raise error

    def beat(self) -> None:
        """As `Session.beat`, for the session on each server."""
        for home in self._homes.everything():
            home.beat()

    async def home(self, name: Name, until: float) -> Session:
        """Returns the session on the server of a key. Opens it if there is none yet."""
        self.check()
        node = self.redis.get_node_from_key(name)
        gate = self._gates.setdefault(node.name, asyncio.Lock())
        async with gate:
            try:
                return self._homes.found(node.name) or await self._opened(node, until)
            except redis_py.LOST as error:
                raise redis_py.Unreachable(error) from error

    async def _opened(self, node: Any, until: float) -> Session:
        if time.monotonic() >= until:
            raise ConnectionError("the session was not opened in time")
        home = _Home(self, node)
        home._begin_opening()
        # An error of `_begin` goes to the acquisition. The node may no longer be the primary, so the acquisition asks
        # which node has the key before it tries again.
        await home._begin(min(until, time.monotonic() + TRY + LATE))
        self._homes.keep(node.name, home)
        # The whole session may have been closed meanwhile.
        if self._is_closed():
            await home.close()
        return home


class _Home(Session):
    """The session on one server."""

    def __init__(self, whole: ClusterSession, node: Any) -> None:
        # A node makes connections as a pool does.
        super().__init__(SimpleNamespace(connection_pool=node), whole.timeout, manual=whole._manual)
        self.id = whole._homes.next_id()
        self._whole = whole
        self._server: str = node.name

    async def _follow(self) -> None:
        """Moves locks to the sessions of the servers that have their keys now."""
        cluster, until = self._whole.redis, self._limit()
        try:
            await within(max(0.0, until - time.monotonic()), redis_py.refresh(cluster, self._server))
            for each in strays(self):
                if cluster.get_node_from_key(each.key).name != self._server:
                    move(each, self, await self._whole.home(each.key, until))
        except (*NO_NODE, redis_py.Unreachable, asyncio.TimeoutError):
            pass  # After the next heartbeat, this is tried again.
