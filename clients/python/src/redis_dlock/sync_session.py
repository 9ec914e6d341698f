"""The session of threads."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from redis.exceptions import LockError, LockNotOwnedError, ResponseError

from . import redis_py
from .binding import Round
from .commands import Command, Name
from .errors import attach, logger
from .limited import Work, begin
from .limits import LATE, TRY
from .session import SessionBase
from .sync_wire import Wire

S = TypeVar("S", bound="Session")

_UNKNOWN = (*redis_py.LOST, redis_py.Unreachable)


class Session(SessionBase):
    """Keeps all locks that are acquired with it by one heartbeat, over any connection of the client's pool.

        with Session(redis, timeout=10) as session:
            with DLock(redis, "job:1", session=session) as lock:
                work(fence=lock.token)

    Open it once, and use it in all threads. When the heartbeats end, the server frees all of its locks together. In a
    cluster, each server on which it has locks gets a heartbeat.
    """

    # Set by the module that has it.
    _of_cluster: type[Session]

    def __new__(cls, redis: Any, *args: Any, **kwargs: Any) -> Session:
        """Makes that of a cluster if it is the client of one."""
        if cls is Session and redis_py.in_cluster(redis):
            return super().__new__(cls._of_cluster)
        return super().__new__(cls)

    def open(self: S) -> S:
        """Opens it at the server, and starts the thread that sends the heartbeats. Returns the session itself.

        Raises redis-py's `ConnectionError` or `TimeoutError` if no server answers within a second.
        """
        ends = time.monotonic() + TRY
        self._may_open()
        self._repeat(lambda: self._begin(ends + LATE), ends)
        return self

    def _begin(self, until: float) -> None:
        """Tries once."""
        self._heartbeat(until)
        self._thread = threading.Thread(target=self._run, name="redis_dlock", daemon=True)
        begin(self._thread)

    def home(self, name: Name, until: float) -> Session:
        """Returns the session on the server of a key."""
        return self

    def close(self) -> None:
        """Ends it, and frees all of its locks with one command. A lock that was still held is lost.

        Raises redis-py's `ConnectionError` or `TimeoutError` if no server answers within a second. The server frees the
        locks within `timeout` seconds then.
        """
        if not self._closed():
            return
        ends = time.monotonic() + TRY
        if not sys.is_finalizing():
            self._wake()
            # Nothing of a heartbeat comes after the end.
            self._thread.join(TRY)
        self._lose_some(list(self._bindings), "its session was closed")
        self._repeat(lambda: self._exchange([self._close_command()], ends + LATE), ends)

    @property
    def lost(self) -> threading.Event:
        """Set when the session is lost, or must be assumed lost: for its timeout, no heartbeat was confirmed. All of
        its locks are lost with it, and it cannot be opened again. It stays unset when the session is closed."""
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
            except (*_UNKNOWN, ResponseError, LockError) as error:
                self._went(error)
            if self._failed is not None or self._strayed:
                self._strayed = False
                self._follow()

    def _follow(self) -> None:
        """Locks may be on another server now."""

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
        """Repeats work until a server answers."""
        outage = redis_py.Outage()
        while True:
            try:
                work()
                return
            except _UNKNOWN as error:
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
        except Exception:  # noqa: BLE001 - the callback is the caller's
            logger.exception("on_lost failed")
