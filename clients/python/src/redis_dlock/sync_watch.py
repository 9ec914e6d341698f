"""Renews a hold, binds a session to a new connection, or notices the loss, in a thread."""

from __future__ import annotations

import functools
import math
import os
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from redis.exceptions import LockError, LockNotOwnedError, ResponseError

from . import redis_py, sync_heart
from .beating import Beating
from .errors import ReplicasError, logger
from .heartbeat import Heartbeat, Look, Terms
from .holds import ENDED_LATE, Hold
from .limited import Work, begin
from .sync_wire import Wire
from .talk import Line

# The errors that do not say whether the server has the hold: the look had no answer, or went to a node that has not the
# key, or too few replicas know of the renewal.
_UNDECIDED = (*redis_py.LOST, *redis_py.MOVING, redis_py.Unreachable, ReplicasError)
# After one of these, the server has not executed the look, and will not.
_UNSENT = (*redis_py.MOVING, redis_py.Unreachable)


# The descriptors of watches. A forked child closes them: as long as it had them open, the server would not notice the
# end of the parent. The lock keeps a fork from coming between the change of a descriptor and the change of the set.
_duplicates: set[int] = set()
_duplicates_change = threading.Lock()


def _forget_duplicates() -> None:
    for each in _duplicates:
        os.close(each)
    _duplicates.clear()
    _duplicates_change.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_duplicates_change.acquire,
        after_in_parent=_duplicates_change.release,
        after_in_child=_forget_duplicates,
    )


class Watch:
    """Watches a hold until its release, its loss, or until nothing refers to the hold any more."""

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
        # Keeps no reference to the hold, so that it can go.
        self._hold = weakref.ref(hold)
        self._session = hold.connection
        # `_binds`: the session must be bound to another connection. `_is_binding`: a command that binds it was sent,
        # and none has succeeded since.
        self._binds = self._is_binding = False
        # Why the server refused the last look, if it did.
        self._refused: Exception | None = None
        self._line: Line | None = None
        self._beats = Heartbeat(hold.validity, time.monotonic(), terms)
        self._stopped = False
        self._waker: socket.socket | None = None
        self._thread: threading.Thread | None = None
        weakref.finalize(hold, self.stop).atexit = False

    def start(self) -> None:
        """Starts the thread, unless it has been started. If the interpreter starts no threads any more, nothing renews
        the hold: it ends with its lease, or with the connection of its session."""
        # A thread without an identity was interrupted before it began.
        if self._thread is None or self._thread.ident is None:
            self._thread = threading.Thread(target=self._run, name="redis_dlock", daemon=True)
            try:
                begin(self._thread)
            except RuntimeError:
                self._thread = None

    @property
    def is_lost(self) -> bool:
        """Returns whether the lock is lost, or must be assumed lost."""
        return self.lost.is_set()

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
        self._wake()

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
        try:
            if self._waker is not None:
                self._waker.send(b".")
        except OSError:
            pass  # The watch has ended.

    def _run(self) -> None:
        if self._thread is not threading.current_thread():
            return  # Only one of two threads that began at once goes on.
        wakes, self._waker = socket.socketpair()
        try:
            self._watch(wakes)
        except Exception as error:  # noqa: BLE001 - nobody knows any more whether it is held
            self._lose(f"nothing watches it any more: {error!r}")
            raise
        finally:
            wakes.close()
            self._waker.close()
            if self._line is not None:
                self._line.close()

    def _watch(self, wakes: socket.socket) -> None:
        while not self._stopped:
            if self._may_end_late() and not self._stopped:
                return self._lose(ENDED_LATE)
            self._sleep(wakes)
            session = self._session
            if self._stopped or session is not None and session.closed:
                return
            now = time.monotonic()
            if now >= self._beats.validity.until:
                why = "its lease ended"
                return self._lose(why if self._refused is None else f"{why}: {self._refused}")
            if session is not None and not self._binds and not session.is_open():
                self._binds = True
                self._beats.hurry()
            if now < self._beats.due():
                continue
            bound = self._binds
            look = self._beats.begin(now, binds=bound)
            try:
                replies = self._bind(look) if bound else self._look(look)
                held = self._beats.took(time.monotonic(), look, replies)
            except _UNDECIDED as error:
                executed = not isinstance(error, _UNSENT)
                if isinstance(error, redis_py.NotPrimary):
                    self._refused = error
                self._beats.failed(time.monotonic(), look, binds=self._binds and not bound, executed=executed)
                continue
            except (ResponseError, LockError) as error:
                if isinstance(error, ResponseError) and redis_py.wrong_type(error):
                    return self._lose("the key is no lock any more")
                # The server refuses, for example because it cannot write: the hold may last until its lease ends.
                self._refused = error
                self._beats.failed(time.monotonic(), look, binds=self._binds and not bound, executed=False)
                continue
            if self._stopped:
                return
            if not held:
                return self._lose("the connection of its session ended" if self._binds else "the server has no such hold")
            self._binds, self._is_binding, self._refused = False, False, None

    def _sleep(self, wakes: socket.socket) -> None:
        """Waits until something is due, or the watch is woken, or a connection of the hold has something."""
        lines = [] if self._session is None or self._binds else [self._session]
        found = [self._descriptor(line) for line in [*lines, *self._late()]]
        seen = [each for each in found if each is not None]
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(wakes, selectors.EVENT_READ)
                for each in seen:
                    selector.register(each, selectors.EVENT_READ)
                ready = [key.fileobj for key, _ in selector.select(max(0.0, self._beats.due() - time.monotonic()))]
        finally:
            with _duplicates_change:
                for each in seen:
                    _duplicates.discard(each)
                    os.close(each)
        if wakes in ready:
            wakes.recv(64)

    def _late(self) -> list[Line]:
        """Returns the connections on which a command that binds the hold was not answered."""
        hold = self._hold()
        return [] if hold is None else list(hold.late)

    def _may_end_late(self) -> bool:
        hold = self._hold()
        return hold is not None and hold.may_end_late()

    def _descriptor(self, line: Line) -> int | None:
        """Returns a descriptor of its own for a connection of the hold: a release reads on the connection at the same
        time, and eventlet lets only one look at a descriptor."""
        sock = getattr(line.connection, "_sock", None)
        if sock is None:
            return None
        try:
            with _duplicates_change:
                seen = os.dup(sock.fileno())
                _duplicates.add(seen)
                return seen
        except OSError:
            return None  # A different thread closes it at this moment.

    def _look(self, look: Look) -> list[Any]:
        """Returns the replies to a look."""
        commands, seconds = self._terms.commands(look), self._beats.answer_within(time.monotonic())
        if self._session is not None:
            try:
                return self._session.exchange(*commands, within=seconds)
            except redis_py.LOST:
                # The connection may lead to a server that hangs, or is no primary any more. It stays open until another
                # is bound.
                self._binds = True
                raise
        line = self._own(seconds)
        try:
            return line.exchange(*commands, within=seconds)
        except BaseException:
            self._line = None
            line.close()
            raise

    def _own(self, seconds: float) -> Line:
        """Returns a connection for looks at a lock without a session."""
        if self._line is None:
            self._line = self._wire.open(time.monotonic() + seconds)
        return self._line

    def _bind(self, look: Look) -> list[Any]:
        """Binds the session to a new connection. Returns the replies."""
        seconds = self._beats.answer_within(time.monotonic())
        line = self._wire.open(time.monotonic() + seconds)
        adopted = False
        self._is_binding = True
        try:
            replies = line.exchange(*self._terms.commands(look), within=seconds)
            adopted = None not in replies and self._adopt(line)
            return replies
        finally:
            if not adopted:
                self._leave(line)

    def _leave(self, line: Line) -> None:
        """Closes a connection on which binding failed. If the command that binds was not answered, the server may still
        execute it, and the end of the connection would then release the hold. Such a connection stays open, in `late`
        of the hold, unless the watch has ended. If it has ended itself, the hold is lost."""
        hold = self._hold()
        if hold is not None and hold.connection is not None and line.is_unanswered:
            hold.late.append(line)
            if not self._stopped:
                return
        line.close()

    def _adopt(self, line: Line) -> bool:
        hold = self._hold()
        if self._stopped or hold is None or hold.connection is None:
            return False
        before, hold.connection, self._session = hold.connection, line, line
        before.close()
        # If the watch was stopped meanwhile, the release of the hold may have closed only the old connection.
        return not self._stopped

    def _lose(self, why: str) -> None:
        self.lost.set()
        if self._on_lost is not None:
            self._call(self._on_lost, self._terms.error(f"The lock is lost: {why}"))

    def _call(self, on_lost: Callable[[LockNotOwnedError], Any], error: LockNotOwnedError) -> None:
        try:
            on_lost(error)
        except Exception:  # noqa: BLE001 - the callback is the caller's
            logger.exception("on_lost failed")


class LeaseWatch(Beating, Watch):
    """A watch of a hold with a lease. One heart looks at all such holds of a client; in a cluster, of a node."""

    _heart: sync_heart.Heart | None = None

    def start(self) -> None:
        """Begins, unless it has begun."""
        if self._heart is None:
            heart = sync_heart.of(self.source())
            # The heart is known before it begins, so that a release always finds it.
            self._heart = heart
            if not heart.join(self):
                self._heart = None

    def source(self) -> Any:
        """Returns what makes the connections to the server of its key."""
        return self._wire._source()

    def moves(self, heart: sync_heart.Heart) -> None:
        """Goes on with the heart of another server, where the key is now."""
        self._heart = heart
        heart.join(self)
        if self._stopped:
            heart.leave(self)

    def stop(self) -> None:
        """Ends the watch, without waiting for a look that is under way."""
        self._stopped = True
        if self._heart is not None:
            self._heart.leave(self)

    def _wake(self) -> None:
        if self._heart is not None:
            self._heart.wake()

    def lose(self, why: str) -> None:
        """The lock is lost. The heart does not wait for the callback."""
        if self._heart is not None:
            self._heart.leave(self)
        if not self._stopped and not self.lost.is_set():
            self._lose(why)

    def _call(self, on_lost: Callable[[LockNotOwnedError], Any], error: LockNotOwnedError) -> None:
        calling = functools.partial(super()._call, on_lost, error)
        Work(calling).start()
