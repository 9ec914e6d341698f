"""Sends the commands of a lock, and waits for replies that may take long.

Commands that do not wait use the client's pool. A wait and a session use a connection of their own outside of it, so
that they cannot exhaust it.
"""

from __future__ import annotations

import copy
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, ResponseError, TimeoutError
from redis.retry import Retry

from . import redis_py
from .attempt import Attempt, Replicas
from .commands import Command
from .errors import ReplicasError
from .holds import Hold

# The longest single look at the socket of a connection that waits, in seconds.
_LOOK = 3600.0


class Line:
    """A connection outside of the pool."""

    # Keeps the connections of sessions alive, and closes all of them in a forked child: as long as the child had them
    # open, the server would not notice the end of the parent.
    _open: set[Line] = set()

    def __init__(self, source: Any, connect_within: float | None = None) -> None:
        settings = redis_py.own_settings(source, Retry(NoBackoff(), 0), connect_within)
        self.connection = source.connection_class(**settings)
        # Held during an exchange: the watch of a session and its release share the connection.
        self.busy = threading.RLock()
        Line._open.add(self)

    def connect(self) -> None:
        """Connects; raises `Unreachable` if that fails."""
        try:
            self.connection.connect()
        except redis_py.LOST as error:
            raise redis_py.Unreachable(error) from error

    def exchange(self, *commands: Command, within: float | None = None) -> list[Any]:
        """Returns the replies, in order."""
        with self.busy:
            return _exchange(self.connection, *commands, within=within)

    def is_open(self) -> bool:
        """Returns whether the connection has not ended, as far as is known."""
        try:
            with self.busy:
                if getattr(self.connection, "_sock", None) is None:
                    return False
                self.connection.can_read(timeout=0)
                return True
        except redis_py.LOST:
            return False

    def close(self) -> None:
        """Closes the connection, and so ends what is bound to it."""
        Line._open.discard(self)
        self.connection.disconnect()

    @classmethod
    def forget(cls) -> None:
        """Closes what a forked child inherited. That does not end the parent's connections."""
        for line in list(cls._open):
            line.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Line.forget)


class Wire:
    """The way to the server that has a key."""

    def __init__(self, client: Any, name: Any) -> None:
        self._client = client
        self._name = name

    # Acquiring

    def acquire(self, attempt: Attempt) -> None:
        """Sets the attempt's token if the lock was granted, and for a session the connection it is bound to."""
        try:
            self._repeat(lambda: self._once(attempt), attempt)
            if attempt.token is not None and attempt.replicas is not None:
                self._confirm(attempt, attempt.replicas)
        except BaseException:
            self.give_up(attempt)
            raise

    def give_up(self, attempt: Attempt) -> None:
        """Leaves no hold behind, as far as the server can be reached."""
        line, attempt.connection = attempt.connection, None
        if line is not None:
            line.close()
        if attempt.token is None and not attempt.unanswered:
            return
        try:
            line = self.line(redis_py.CLOSING)
            try:
                token = attempt.token
                if token is None:
                    token = line.exchange(attempt.once_more())[0]
                if token is not None:
                    line.exchange(*attempt.undo(token))
            finally:
                line.close()
        except (*redis_py.LOST, redis_py.Unreachable, ResponseError):
            pass  # What cannot be undone ends with its lease.
        attempt.token, attempt.unanswered = None, False

    def _once(self, attempt: Attempt) -> None:
        if not attempt.session and (not attempt.waits or self._lends_at_once(attempt)):
            with redis_py.Crowd(self._source()), self._connection() as connection:
                _try(connection, attempt)
            if attempt.token is not None or attempt.left() == 0:
                return
        self._wait(attempt)

    def _lends_at_once(self, attempt: Attempt) -> bool:
        """Returns whether the pool is worth asking before a wait. While the server is away, a pool that has to connect
        would take as long as the client's own retries, whatever limit the wait has."""
        pool = self._source()
        return redis_py.Crowd.room(pool) and (attempt.ends is None or redis_py.has_open_connection(pool))

    def _wait(self, attempt: Attempt) -> None:
        """Waits on a connection of its own; when it moves on, the one where it waited before comes second."""
        lines: list[Line] = []
        try:
            lines.append(self._open(attempt))
            attempt.queued = True
            while True:
                attempt.unanswered = True
                lines[0].connection.send_command(*attempt.command())
                while (pause := attempt.moves_on()) and not _answers(lines[0].connection, pause):
                    lines.insert(0, self._open(attempt))
                    # This takes over the place in the queue. The first gets nil, or the same token.
                    lines[0].connection.send_command(*attempt.command())
                    lines[1].connection.read_response()
                    lines.pop().close()
                if _read(lines[0].connection, attempt, attempt.patience()) is not None or not attempt.goes_on():
                    break
            if attempt.session and attempt.token is not None:
                attempt.connection = lines[0]
        finally:
            for line in () if attempt.connection is not None else lines:
                if attempt.unanswered:
                    _end(line.connection, attempt)
                line.close()

    def _open(self, attempt: Attempt) -> Line:
        line = self.line(attempt.left() if attempt.ends is not None else None)
        try:
            line.connect()
        except BaseException:
            line.close()
            raise
        return line

    def _confirm(self, attempt: Attempt, replicas: Replicas) -> None:
        """Raises `ReplicasError` unless enough replicas have the grant."""
        assert attempt.token is not None
        if attempt.acknowledged is None:
            # The grant came to a blocked connection. Redis before 7.0.12 does not count that as a write of this
            # connection, so that `WAIT` would not wait for it. A renewal is such a write.
            renewals = attempt.target.renew(attempt.owner, attempt.token, attempt.lease)
            self.renew(renewals, replicas, attempt.connection)
        elif attempt.acknowledged < replicas.count:
            raise ReplicasError(replicas.too_few(attempt.acknowledged))

    # Everything else

    def line(self, connect_within: float | None = None) -> Line:
        """Returns a new connection of its own to the server that has the key."""
        return Line(self._source(), connect_within)

    def renew(self, commands: list[Command], replicas: Replicas | None, line: Line | None = None) -> list[Any]:
        """Returns the replies to renewals. With replicas, raises `ReplicasError` if too few acknowledge them."""
        if replicas is None:
            return [self.ask(*command) for command in commands]
        own = line is None
        line = line or self.line()
        try:
            within = replicas.timeout + redis_py.CLOSING
            *replies, acknowledged = line.exchange(*commands, replicas.wait(), within=within)
        finally:
            if own:
                line.close()
        if acknowledged < replicas.count and None not in replies:
            raise ReplicasError(replicas.too_few(acknowledged))
        return replies

    def release(self, commands: list[Command], hold: Hold[Line]) -> tuple[list[Any], bool]:
        """Returns the replies, and whether an earlier copy of the commands may have been executed."""

        def on(exchange: Callable[..., list[Any]]) -> tuple[list[Any], bool]:
            repeated, hold.release_sent = hold.release_sent, True
            return exchange(*commands), repeated

        def once() -> tuple[list[Any], bool]:
            with self._connection() as connection:
                return on(lambda *each: _exchange(connection, *each))

        if hold.connection is not None and hold.connection.is_open():
            try:
                return on(hold.connection.exchange)
            except redis_py.LOST:
                pass  # A second copy of the commands follows on another connection.
        answer: tuple[list[Any], bool] = self._repeat(once)
        return answer

    def ask(self, *command: Any) -> Any:
        """Returns the reply to a command that may be repeated, sent by the client itself."""
        try:
            return self._client.execute_command(*command)
        except ResponseError as error:
            raise redis_py.explained(error) from error

    def _source(self) -> Any:
        """Returns the pool that knows how to connect to the server of the key."""
        if not redis_py.in_cluster(self._client):
            return self._client.connection_pool
        node = self._client.get_node_from_key(self._name)
        return self._client.get_redis_connection(node).connection_pool

    def _repeat(self, once: Callable[[], Any], attempt: Attempt | None = None) -> Any:
        """Repeats after a lost connection: the first time immediately, then as the client is configured to. A wait with
        a time limit goes on for as long as it has time left."""
        outage = redis_py.Outage()
        while attempt is not None and attempt.waits and attempt.ends is not None:
            try:
                return self._follow(once, attempt.ends)
            except (*redis_py.LOST, redis_py.Unreachable) as error:
                time.sleep(outage.pause(attempt.left(), error))
        try:
            try:
                return self._follow(once)
            except redis_py.LOST:
                policy = copy.deepcopy(redis_py.policy(self._client, Retry))
                return policy.call_with_retry(lambda: self._follow(once), lambda error: None)
        except redis_py.Unreachable as error:
            raise error.reason from None

    def _follow(self, once: Callable[[], Any], ends: float = math.inf) -> Any:
        """In a cluster, follows the key to its node."""
        ends = min(ends, time.monotonic() + redis_py.SLOT_PATIENCE)
        while True:
            try:
                return once()
            except (*redis_py.MOVING, redis_py.Unreachable):
                if not redis_py.in_cluster(self._client) or time.monotonic() > ends:
                    raise
            time.sleep(redis_py.SLOT_PAUSE)
            # The client's own command finds the node and remembers it.
            self._client.execute_command("EXISTS", self._name)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """Yields a connection of the pool, or one beside it if the pool is full. Closes it if it breaks."""
        pool = self._source()
        line: Line | None = None
        try:
            connection = pool.get_connection()
        except redis_py.LOST as error:
            if not redis_py.pool_is_full(error):
                raise redis_py.Unreachable(error) from error
            line = self.line()
            connection = line.connection
        try:
            yield connection
        except (ResponseError, ReplicasError):
            raise
        except BaseException:
            connection.disconnect()
            raise
        finally:
            if line is None:
                pool.release(connection)
            else:
                line.close()


def _try(connection: Any, attempt: Attempt) -> None:
    """Sends the command that does not wait, with `WAIT` behind it if replicas must have the grant."""
    commands = [attempt.first()]
    if attempt.replicas is not None:
        commands.append(attempt.replicas.wait())
    attempt.unanswered = True
    try:
        connection.send_packed_command(connection.pack_commands(commands))
        # An interrupted look leaves the connection open, so that `_end` can read the reply.
        _read(connection, attempt, _LOOK if connection.socket_timeout is None else connection.socket_timeout)
        if attempt.replicas is not None:
            _answers(connection, attempt.replicas.timeout + redis_py.CLOSING)
            attempt.acknowledged = connection.read_response()
    except BaseException:
        if attempt.unanswered:
            _end(connection, attempt)
        raise


def _read(connection: Any, attempt: Attempt, patience: float | None) -> int | None:
    """Reads the reply to an acquiring command into the attempt."""
    if patience is not None and not _answers(connection, patience):
        raise TimeoutError("no reply in time")
    try:
        attempt.token = connection.read_response()
    except ResponseError as error:
        if redis_py.lost(error):
            raise ConnectionError(str(error)) from error
        attempt.unanswered = False
        if isinstance(error, redis_py.MOVING):
            raise
        raise redis_py.explained(error) from error
    attempt.unanswered = False
    return attempt.token


def _exchange(connection: Any, *commands: Command, within: float | None = None) -> list[Any]:
    """Returns the replies. Raises the first error, after all of them were read."""
    ends = time.monotonic() + (within or 0.0)
    connection.send_packed_command(connection.pack_commands(commands))
    replies: list[Any] = []
    failed: ResponseError | None = None
    for _ in commands:
        if within is not None and not _answers(connection, ends - time.monotonic()):
            connection.disconnect()
            raise TimeoutError("no reply in time")
        try:
            replies.append(connection.read_response())
        except ResponseError as error:
            failed = failed or error
    if failed is not None:
        raise failed if isinstance(failed, redis_py.MOVING) else redis_py.explained(failed)
    return replies


def _answers(connection: Any, patience: float) -> bool:
    """Returns whether a reply begins within this many seconds."""
    ends = time.monotonic() + patience
    while not connection.can_read(timeout=max(0.0, min(_LOOK, ends - time.monotonic()))):
        if time.monotonic() >= ends:
            return False
    return True


def _end(connection: Any, attempt: Attempt) -> None:
    """Closes a connection when the server has executed what was sent on it. A grant is read into the attempt."""
    sock = getattr(connection, "_sock", None)
    if sock is not None:
        redis_py.end_of_sending(sock)
        try:
            if connection.can_read(timeout=redis_py.CLOSING):
                token = connection.read_response()
                if isinstance(token, int):
                    attempt.token = token
                attempt.unanswered = False
        except Exception:  # noqa: BLE001 - whatever was on its way, the connection is closed now
            pass
    connection.disconnect()
