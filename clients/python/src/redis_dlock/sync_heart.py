"""The thread that renews the locks of a client with `auto_renewal`, and looks at those that are watched."""

from __future__ import annotations

import math
import os
import selectors
import socket
import threading
import time
import weakref
from typing import Any

from redis.exceptions import ConnectionError, ResponseError

from . import redis_py
from .beating import TOGETHER, Beating, alike
from .heartbeat import Look
from .limited import begin
from .talk import Line

# The thread ends when it had nothing to do for so long, in seconds.
_IDLE = 10.0

# The hearts of this process, for each pool. In a cluster each node has a pool.
_hearts: weakref.WeakKeyDictionary[Any, Heart] = weakref.WeakKeyDictionary()

if hasattr(os, "register_at_fork"):
    # Threads do not live on in a child.
    os.register_at_fork(after_in_child=_hearts.clear)


def of(source: Any) -> Heart:
    """Returns the heart for the connections of a pool."""
    heart = _hearts.get(source)
    return _hearts.setdefault(source, Heart(source)) if heart is None else heart


class Heart:
    """The thread for the connections of one pool, and the holds that it looks after.

    Sets and attributes change in one step of the interpreter, so that no lock is needed. An interrupt, or a `__del__`,
    may run at any moment, and would wait forever for a lock that the interrupted code has.
    """

    def __init__(self, source: Any) -> None:
        self._source = weakref.ref(source)
        self._watches: set[Beating] = set()
        self._thread: threading.Thread | None = None
        self._wakes, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._line: Line | None = None
        # When the thread goes on by itself.
        self._next = math.inf

    def join(self, watch: Beating) -> bool:
        """Looks after a hold from now on. Returns False if the interpreter ends, and begins no thread any more."""
        self._watches.add(watch)
        thread = self._thread
        # A thread without an identity was interrupted before it began.
        if thread is None or thread.ident is None or not thread.is_alive():
            thread = threading.Thread(target=self._run, name="redis_dlock", daemon=True)
            self._thread = thread
            try:
                begin(thread)
            except RuntimeError:
                self.leave(watch)
                return False
        if watch.due() < self._next:
            self.wake()
        return True

    def leave(self, watch: Beating) -> None:
        """Looks after a hold no more."""
        self._watches.discard(watch)

    def wake(self) -> None:
        """Something is due earlier than it was."""
        try:
            self._waker.send(b".")
        except OSError:
            pass  # The thread will wake in any case.

    def __del__(self) -> None:
        # An interrupt may have ended `__init__` before it made the sockets.
        for end in self.__dict__.get("_wakes"), self.__dict__.get("_waker"):
            if end is not None:
                end.close()

    def _run(self) -> None:
        try:
            self._beat()
        except Exception as error:  # noqa: BLE001 - nobody knows any more whether the locks are held
            for watch in list(self._watches):
                self.leave(watch)
                watch.lose(f"nothing watches it any more: {error!r}")
            raise
        finally:
            self._close()

    def _beat(self) -> None:
        idle = time.monotonic()
        me = threading.current_thread()
        # Only one of two threads that began at once goes on.
        while self._thread is me:
            now = time.monotonic()
            due = [watch for watch in list(self._watches) if watch.is_due(now + TOGETHER, now)]
            if self._watches:
                idle = now
            elif now > idle + _IDLE:
                self._thread = None
                if not self._watches or self._thread is not None:
                    break
                self._thread = me
            if due and min(watch.due() for watch in due) <= now:
                self._look(alike(due))
            else:
                self._sleep(now)

    def _sleep(self, now: float) -> None:
        # Set before the look at the watches: one that joins from now on wakes this thread.
        self._next = math.inf
        next_one = self._next = min((watch.due() for watch in list(self._watches)), default=now + _IDLE)
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakes, selectors.EVENT_READ)
            if selector.select(max(0.0, min(next_one, now + _IDLE) - time.monotonic())):
                self._wakes.recv(4096)

    def _look(self, watches: list[Beating]) -> None:
        """Looks at some holds in one exchange."""
        looks = [(watch, watch.begin(time.monotonic())) for watch in watches]
        until = time.monotonic() + min(watch.answer_within(time.monotonic()) for watch in watches)
        sent = False
        try:
            line = self._own(until)
            commands = [watch.commands(look) for watch, look in looks]
            sent = True
            line.send(*(command for each in commands for command in each))
            replies = [[line.read(until) for _ in each] for each in commands]
        except (*redis_py.LOST, redis_py.Unreachable) as error:
            self._close()
            for watch, look in looks:
                self._failed(watch, look, error, executed=sent)
            return
        except BaseException:
            self._close()
            raise
        for (watch, look), its in zip(looks, replies):
            self._took(watch, look, its)

    def _took(self, watch: Beating, look: Look, replies: list[Any]) -> None:
        errors = [reply for reply in replies if isinstance(reply, ResponseError)]
        if errors:
            # The connection may lead to a server that is no primary any more. If the server refused only some of the
            # commands, it executed the others, and a lease may have changed.
            self._close()
            self._failed(watch, look, errors[0], executed=len(errors) < len(replies))
        else:
            watch.took(look, replies)

    def _failed(self, watch: Beating, look: Look, error: Exception, *, executed: bool) -> None:
        watch.failed(look, error, executed=executed)
        if (there := watch.source()) is not self._source():
            # The slot of its key is on another node now.
            self.leave(watch)
            watch.moves(of(there))

    def _own(self, until: float) -> Line:
        if self._line is None:
            source = self._source()
            if source is None:
                raise redis_py.Unreachable(ConnectionError("the client is gone"))
            line = Line(source, until)
            line.connect(until)
            self._line = line
        return self._line

    def _close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()
