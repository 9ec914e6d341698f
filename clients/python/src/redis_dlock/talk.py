"""Commands and replies on a connection, for threads. Nothing else of this package sends or reads there."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, ResponseError, TimeoutError
from redis.retry import Retry

from . import profile, redis_py
from .commands import Command
from .limited import limited

# The longest single look at the socket of a connection that waits, in seconds.
_LOOK = 3600.0
# The least time for the rest of a reply whose beginning came in time, in seconds.
_PART = 0.02


class Talk:
    """A connection that counts the replies it owes. A connection that owes a reply is closed before it is used again:
    the next command would take that reply for its own."""

    def __init__(self, connection: Any, give_back: Callable[[Any], Any] | None = None) -> None:
        """`give_back`: called with the connection at the end."""
        self.connection = connection
        self._give_back = give_back
        self._owed = 0
        self._ended = False

    @property
    def owes(self) -> bool:
        """Returns whether a reply has not been read, or not in full."""
        return self._owed > 0

    @property
    def is_unanswered(self) -> bool:
        """Returns whether the server may still execute a command that was sent."""
        return self.owes

    def send(self, *commands: Command) -> None:
        """Sends commands in one piece."""
        packed = redis_py.packed(self.connection, commands)
        self._owed += len(commands)
        self.connection.send_packed_command(packed, check_health=False)

    def answers(self, until: float) -> bool:
        """Waits for the beginning of a reply until this time, by `time.monotonic()`. Returns whether it came."""
        try:
            while not self.connection.can_read(timeout=max(0.0, min(_LOOK, until - time.monotonic()))):
                if time.monotonic() >= until:
                    return False
            return True
        except ValueError as error:
            raise ConnectionError("another thread has closed the connection") from error

    def read(self, until: float) -> Any:
        """Returns the next reply, even if it is an error."""
        if not self.answers(until):
            raise TimeoutError("no reply in time")
        # The rest of a reply must not take longer, either.
        within = max(_PART, until - time.monotonic())
        try:
            # Owners and names are bytes, whatever the client decodes.
            if redis_py.limits_reading(self.connection.__class__):
                reply = self.connection.read_response(disable_decoding=True, timeout=within)
            else:
                reply = self._read_by(within)
        except ResponseError as error:
            reply = error
        except ConnectionError as error:
            if not redis_py.may_be_executed(error):
                self._owed = 0  # The server has answered, and redis-py has disconnected.
            raise
        self._owed -= 1
        return reply

    def _read_by(self, within: float) -> Any:
        """Reads a reply from a connection of an older redis-py, whose `read_response` takes no limit."""
        sock = getattr(self.connection, "_sock", None)
        told = None if sock is None else sock.gettimeout()
        try:
            if sock is not None:
                sock.settimeout(within)
            return self.connection.read_response(disable_decoding=True)
        finally:
            if sock is not None and sock.fileno() >= 0:
                sock.settimeout(told)

    def exchange(self, *commands: Command, within: float = redis_py.ANSWER) -> list[Any]:
        """Returns the replies, in order. Raises the first error, after all of them were read."""
        until = time.monotonic() + within
        self.send(*commands)
        return redis_py.results([self.read(until) for _ in commands])

    def end(self, until: float) -> list[Any]:
        """Lets the server execute what was sent and close the connection. Returns the replies that still come."""
        self._ended = True
        replies: list[Any] = []
        sock = getattr(self.connection, "_sock", None)
        if sock is not None:
            redis_py.end_of_sending(sock)
            try:
                while self.owes:
                    replies.append(self.read(until))
            except Exception:  # noqa: BLE001 - the connection is closed now, whatever the error is
                pass
        self.done()
        return replies

    def leave(self) -> None:
        """Disconnects from a server that is no primary. The next use of the connection connects again."""
        self.connection.disconnect()

    def done(self) -> None:
        """Gives the connection back. Disconnects it first if it owes a reply."""
        if self.owes or self._ended:
            self.connection.disconnect()
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back(self.connection)


class Line(Talk):
    """A connection outside of the pool."""

    # The open connections outside of the pool. The set keeps those of sessions alive. A forked child closes all of
    # them: as long as the child had them open, the server would not notice the end of the parent.
    _open: set[Line] = set()

    def __init__(self, source: Any, until: float) -> None:
        within = max(0.01, until - time.monotonic())
        settings = profile.own_settings(source, Retry(NoBackoff(), 0), within)
        super().__init__(source.connection_class(**settings))
        # Held during an exchange, because the watch of a session and the release share the connection.
        self.busy = threading.RLock()
        self.closed = False
        Line._open.add(self)

    def connect(self, until: float, *, exactly: bool = True) -> None:
        """Connects; raises `Unreachable` if that fails. With `exactly`, all steps together end by `until`;
        without it, each step may take that long."""
        try:
            if exactly:
                limited(self.connection.connect, until, lambda _: self.close())
            else:
                self.connection.connect()
        except redis_py.LOST as error:
            self.close()
            raise redis_py.Unreachable(error) from error
        except BaseException:
            self.close()
            raise

    def exchange(self, *commands: Command, within: float = redis_py.ANSWER) -> list[Any]:
        """Returns the replies, in order."""
        until = time.monotonic() + within
        try:
            # The lock is acquired in the block, because an interrupt may come right after that.
            if not self.busy.acquire(timeout=max(0.0, within)):
                raise TimeoutError("an earlier reply has not come")
            if self.closed:  # redis-py would connect again.
                raise ConnectionError("the connection was closed")
            if self.owes:
                raise TimeoutError("an earlier reply has not come")
            return super().exchange(*commands, within=until - time.monotonic())
        finally:
            with suppress(RuntimeError):  # The lock is not ours: it was not acquired.
                self.busy.release()

    def is_open(self) -> bool:
        """Returns whether the connection has not ended, as far as is known."""
        try:
            if not self.busy.acquire(blocking=False):
                return True  # A different thread waits for a reply.
            if getattr(self.connection, "_sock", None) is None:
                return False
            self.connection.can_read(timeout=0)
            return True
        except (*redis_py.LOST, ValueError):  # A socket that another thread has closed has no file descriptor.
            return False
        finally:
            with suppress(RuntimeError):  # The lock is not ours: it was not acquired.
                self.busy.release()

    def has_ended(self) -> bool:
        """Returns whether the connection has ended, as far as is known. Reads replies that came late, because redis-py
        notices no end behind them."""
        try:
            if not self.busy.acquire(blocking=False):
                return False  # A different thread reads.
            while self.owes and self.is_open() and self.answers(time.monotonic()):
                self.read(time.monotonic())
            return not self.is_open()
        except redis_py.LOST:
            return True
        finally:
            with suppress(RuntimeError):  # The lock is not ours: it was not acquired.
                self.busy.release()

    def done(self) -> None:
        """Closes the connection, which belongs to no pool."""
        self.close()

    def close(self) -> None:
        """Closes the connection, and so ends what is bound to it."""
        self.closed = True
        Line._open.discard(self)
        self.connection.disconnect()

    @classmethod
    def forget(cls) -> None:
        """Closes the connections that a forked child inherited. The parent's stay open."""
        for line in list(cls._open):
            line.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Line.forget)
