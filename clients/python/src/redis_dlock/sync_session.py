"""The session for programs with threads, on one server and in a cluster."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from redis.exceptions import ConnectionError, LockError, LockNotOwnedError, ResponseError

from . import redis_py
from .binding import Round
from .commands import Command, Name
from .errors import attach, logger
from .homes import NO_NODE, Homes, move, strays
from .limited import Work, begin, limited
from .limits import LATE, TRY
from .session import SessionBase
from .sync_wire import Wire

S = TypeVar("S", bound="Session")

# The errors of an exchange that has no answer: no server was reached, or a server may have executed the commands.
_NO_ANSWER = (*redis_py.LOST, redis_py.Unreachable)


class Session(SessionBase):
    """Keeps all locks that are acquired with it by one heartbeat, over any connection of the client's pool.

        with Session(redis, timeout=10) as session:
            with DLock(redis, "job:1", session=session) as lock:
                work(fence=lock.token)

    Open it once, and use it in all threads. When the heartbeats end, the server frees all of its locks together. In a
    cluster, each server on which it has locks gets a heartbeat.
    """

    def __new__(cls, redis: Any, *args: Any, **kwargs: Any) -> Session:
        """Makes the session of a cluster if `redis` is the client of one."""
        if cls is Session and redis_py.in_cluster(redis):
            return super().__new__(ClusterSession)
        return super().__new__(cls)

    def open(self: S) -> S:
        """Opens the session on the server, and starts the thread that sends the heartbeats. Returns the session itself.

        Raises redis-py's `ConnectionError` or `TimeoutError` if no server answers within a second.
        """
        ends = time.monotonic() + TRY
        self._begin_opening()
        try:
            self._repeat(lambda: self._begin(ends + LATE), ends)
        except BaseException:
            if self._not_open is None:
                # An interrupt came after the first heartbeat. The server forgets a session without heartbeats.
                self._mark_closed()
            raise
        return self

    def _begin(self, until: float) -> None:
        """Tries once to open the session."""
        self._heartbeat(until)
        self._thread = threading.Thread(target=self._run, name="redis_dlock", daemon=True)
        begin(self._thread)

    def home(self, name: Name, until: float) -> Session:
        """Returns the session on the server of a key."""
        return self

    def close(self) -> None:
        """Ends the session, and frees all of its locks with one command. A lock that was still held is lost.

        Raises redis-py's `ConnectionError` or `TimeoutError` if no server answers within a second. The server
        then frees the locks `timeout` seconds after the last heartbeat, or after `dlock.session-grace` more.
        """
        if not self._mark_closed():
            return
        ends = time.monotonic() + TRY
        if not sys.is_finalizing():
            self._wake()
            # A heartbeat may be under way. The wait, of a second at most, keeps its commands from following `CLOSE`.
            self._thread.join(TRY)
        self._lose_some(list(self._bindings), "its session was closed")
        self._repeat(lambda: self._exchange([self._close_command()], ends + LATE), ends)

    @property
    def lost(self) -> threading.Event:
        """Set when the session is lost, or must be assumed lost: for its timeout, no heartbeat was confirmed. All of
        its locks are lost with it, and it cannot be opened again. The event stays unset when the session is closed, and
        always in a cluster: use the `lost` of each lock there."""
        event: threading.Event = self._loss()
        return event

    def __enter__(self: S) -> S:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as error:
            if value is None:
                raise
            attach(value, error, "The session was not closed")

    def _prepare(self) -> None:
        redis_py.check_client(self.redis, asyncio=False)
        self._wakes = threading.Event()
        # The name, which finds the node of a cluster, has no use here: the client is that of one server.
        self._wire = Wire(self.redis, "")

    def _signal(self) -> threading.Event:
        return threading.Event()

    def _wake(self) -> None:
        self._wakes.set()

    def _run(self) -> None:
        try:
            self._keep()
        except Exception as error:  # noqa: BLE001 - nothing keeps the locks any more
            self._lose(f"its heartbeats failed: {error!r}")
            raise

    def _keep(self) -> None:
        while self._not_open is None:
            self._wakes.wait(self._pause())
            self._wakes.clear()
            if self._not_open is not None or not self._is_due():
                continue
            try:
                self._heartbeat()
                self._went(None)
            except (*_NO_ANSWER, ResponseError, LockError) as error:
                self._went(error)
            if self._failed is not None or self._strayed:
                self._strayed = False
                self._follow()

    def _follow(self) -> None:
        """Does nothing, because the locks of one server stay there. A session in a cluster overrides this."""

    def _heartbeat(self, until: float | None = None) -> None:
        work: Round = self._round()
        try:
            commands = next(work)
            while True:
                commands = work.send(self._exchange(commands, self._limit() if until is None else until))
        except StopIteration:
            pass

    def _exchange(self, commands: list[Command], until: float) -> list[Any]:
        return self._wire.exchange(commands, until, fresh=self._failed is not None)

    def _repeat(self, work: Callable[[], Any], ends: float) -> None:
        """Repeats work until a server answers, or until `ends`; then raises the last error."""
        outage = redis_py.Outage()
        while True:
            try:
                work()
                return
            except _NO_ANSWER as error:
                self._failed = error
                time.sleep(outage.pause(ends - time.monotonic(), error))

    def _tell(self, losses: list[tuple[Any, Callable[..., Any] | None, LockNotOwnedError]]) -> None:
        for lost, _, _ in losses:
            lost.set()
        calls = [(on_lost, error) for _, on_lost, error in losses if on_lost is not None]
        if calls:
            # Heartbeats do not wait for callbacks.
            Work(functools.partial(_call, calls)).start()


def _call(calls: list[tuple[Callable[..., Any], LockNotOwnedError]]) -> None:
    for on_lost, error in calls:
        try:
            on_lost(error)
        except BaseException:  # noqa: BLE001 - sys.exit() in one callback must not keep the others from their calls
            logger.exception("on_lost failed")


class ClusterSession(Session):
    """The session of a cluster: one session on each server that has its locks. Each of them is lost by itself, with the
    locks on its server."""

    def open(self) -> ClusterSession:
        """Begins the session, and sends nothing. The session is opened on a server with the first lock there."""
        self._begin_opening()
        self._homes = Homes(self)
        self._gates: dict[str, threading.RLock] = {}
        self._not_open = None
        return self

    def close(self) -> None:
        """Ends the session, and frees its locks with one command for each server.

        Raises redis-py's `ConnectionError` or `TimeoutError` if a server on which it has locks does not answer within a
        second. The session is closed on the servers that answer.
        """
        if not self._mark_closed():
            return
        homes = self._homes.everything()
        had_locks = [home.has_locks for home in homes]
        # All are closed at the same time, and each takes `TRY` and `LATE` at most. The threads get `LATE` once more.
        until = time.monotonic() + TRY + 2 * LATE
        closings = [Work(home.close) for home in homes]
        for closing in closings:
            closing.start()
        failed: Exception | None = None
        for closing, has_locks in zip(closings, had_locks):
            try:
                if not closing.wait(until):
                    raise ConnectionError("the session was not closed in time")
                closing.outcome()
            except redis_py.LOST as error:
                failed = error if has_locks else failed
        if failed is not None:
            raise failed

    def beat(self) -> None:
        """Calls `Session.beat` of the session on each server."""
        for home in self._homes.everything():
            home.beat()

    def home(self, name: Name, until: float) -> Session:
        """Returns the session on the server of a key, which it opens with its first lock."""
        self.check()
        node = self.redis.get_node_from_key(name)
        gate = self._gates.setdefault(node.name, threading.RLock())
        try:
            # The gate is acquired inside of `try`, because an interrupt may come right after the acquisition.
            if not gate.acquire(timeout=max(0.0, until - time.monotonic())):
                raise redis_py.Unreachable(ConnectionError("the session was not opened in time"))
            home = self._homes.found(node.name) or self._opened(node, until)
        except redis_py.LOST as error:
            raise redis_py.Unreachable(error) from error
        finally:
            with suppress(RuntimeError):  # The gate was not acquired.
                gate.release()
        return home

    def _opened(self, node: Any, until: float) -> Session:
        home = _Home(self, node, self.redis.get_redis_connection(node))
        home._begin_opening()
        # An error of `_begin` goes to the acquisition. The node may no longer be the primary, so the acquisition asks
        # which node has the key before it tries again.
        home._begin(min(until, time.monotonic() + TRY + LATE))
        self._homes.keep(node.name, home)
        if self._is_closed():
            home.close()
        return home


class _Home(Session):
    """The session on one server of a cluster."""

    def __init__(self, whole: ClusterSession, node: Any, client: Any) -> None:
        super().__init__(client, whole.timeout, manual=whole._manual)
        self.id = whole._homes.next_id()
        self._whole = whole
        self._server: str = node.name

    def _follow(self) -> None:
        """Moves locks to the sessions of the servers that have their keys now."""
        cluster, until = self._whole.redis, self._limit()
        try:
            limited(lambda: redis_py.refresh(cluster, self._server), until)
            for each in strays(self):
                if cluster.get_node_from_key(each.key).name != self._server:
                    move(each, self, self._whole.home(each.key, until))
        except (*NO_NODE, redis_py.Unreachable):
            pass  # The next heartbeat tries again.
