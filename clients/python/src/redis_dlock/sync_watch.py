"""Renews a hold, or notices its loss, in a thread."""

from __future__ import annotations

import selectors
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from redis.exceptions import LockNotOwnedError, ResponseError

from . import redis_py
from .base import logger
from .errors import ReplicasError
from .holds import Hold
from .sync_wire import Line, Wire
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
        self.lost = threading.Event()
        self._wire = wire
        self._terms = terms
        self._on_lost = on_lost
        self._session = hold.connection
        self._line: Line | None = None
        self._validity = Validity(hold.since, terms.lease, ask_first=hold.queued)
        self._stopped = False
        self._wakes, self._waker = socket.socketpair()
        # Keeps no reference to the hold, so that it can go.
        weakref.finalize(hold, self.stop).atexit = False
        threading.Thread(target=self._run, name="redis_dlock", daemon=True).start()

    def stop(self) -> None:
        """Ends the watch, without waiting for it."""
        self._stopped = True
        self._wake()

    def renewed(self, sent: float, lease: float) -> None:
        """The caller has renewed the hold."""
        self._validity.set_to(sent, lease)
        self._wake()

    def _wake(self) -> None:
        try:
            self._waker.send(b".")
        except OSError:
            pass  # The watch has ended.

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._wakes, selectors.EVENT_READ)
                self._watch(selector)
        finally:
            self._wakes.close()
            self._waker.close()
            if self._line is not None:
                self._line.close()

    def _watch(self, selector: selectors.BaseSelector) -> None:
        watched = self._socket_of_session()
        if watched is not None:
            selector.register(watched, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select(max(0.0, self._validity.due - time.monotonic()))]
            if self._wakes in ready:
                self._wakes.recv(64)
            if self._stopped:
                return
            now = time.monotonic()
            if self._session is not None and not self._session.is_open():
                return self._lose("the connection of its session ended")
            if now >= self._validity.until:
                return self._lose("its lease ended")
            if now < self._validity.due:
                continue
            try:
                left = self._look()
            except (*redis_py.LOST, *redis_py.MOVING, redis_py.Unreachable, ReplicasError):
                self._validity.failed(time.monotonic())
                continue
            except ResponseError as error:
                return self._lose(f"the server refused: {error}")
            if self._stopped:
                return
            if left is None:
                return self._lose("the server has no such hold")
            self._validity.confirmed(now, left)

    def _socket_of_session(self) -> Any:
        return getattr(self._session.connection, "_sock", None) if self._session is not None else None

    def _look(self) -> float | None:
        """Returns the seconds left, or None if the hold is gone."""
        within = max(0.1, self._validity.until - time.monotonic())
        line = self._session or self._own(within)
        try:
            return self._terms.left(line.exchange(*self._terms.commands(), within=within))
        except BaseException:
            if line is self._line:
                self._line = None
                line.close()
            raise

    def _own(self, within: float) -> Line:
        """Returns a connection on which no look takes longer than the lock is certainly held."""
        if self._line is None:
            line = self._wire.line(within)
            try:
                line.connect()
            except BaseException:
                line.close()
                raise
            self._line = line
        return self._line

    def _lose(self, why: str) -> None:
        self.lost.set()
        if self._on_lost is not None:
            try:
                self._on_lost(self._terms.error(f"The lock is lost: {why}"))
            except Exception:  # noqa: BLE001 - the callback is the caller's
                logger.exception("on_lost failed")
