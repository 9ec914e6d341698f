"""Sends commands of a lock on connections of the client's pool, and waits for replies that may take long."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ConnectionError, ResponseError, TimeoutError
from redis.retry import Retry

from . import redis_py
from .attempt import Attempt
from .commands import Command
from .holds import Hold

# One look at the socket of a connection that waits long, in seconds.
_LOOK = 3600.0


@dataclass
class Bound:
    """A connection that a hold is bound to, and the pool it was taken from."""

    connection: Any
    pool: Any


class Wire:
    """The way to the server that has a key."""

    def __init__(self, client: Any, name: Any) -> None:
        self._client = client
        self._name = name

    def acquire(self, attempt: Attempt) -> tuple[int | None, Bound | None]:
        """The token, or None; for a session with the connection that it is bound to, which is then the caller's."""
        answer: tuple[int | None, Bound | None] = self._repeat(lambda: self._try_to_acquire(attempt))
        return answer

    def release(self, command: Command, hold: Hold[Bound]) -> tuple[int | None, bool]:
        """The reply, and whether an earlier copy of the command may have been executed."""

        def once() -> tuple[int | None, bool]:
            with self._connection() as connection:
                repeated, hold.release_sent = hold.release_sent, True
                return _exchange(connection, command), repeated

        answer: tuple[int | None, bool] = self._repeat(once)
        return answer

    def ask(self, *command: Any) -> Any:
        """A command that may be sent any number of times, on the client's own ways."""
        return self._client.execute_command(*command)

    def give_back(self, bound: Bound) -> None:
        """A connection that nothing is bound to any more."""
        bound.pool.release(bound.connection)

    def close(self, bound: Bound) -> None:
        """Ends what is bound to a connection, and the connection."""
        bound.connection.disconnect()
        self.give_back(bound)

    def _pool(self) -> Any:
        if not redis_py.in_cluster(self._client):
            return self._client.connection_pool
        node = self._client.get_node_from_key(self._name)
        return self._client.get_redis_connection(node).connection_pool

    def _repeat(self, once: Callable[[], Any]) -> Any:
        """Again after a lost connection, the first time at once, then as the client was told to repeat."""
        try:
            try:
                return self._follow(once)
            except redis_py.LOST:
                policy = copy.deepcopy(redis_py.policy(self._client, Retry))
                return policy.call_with_retry(lambda: self._follow(once), lambda error: None)
        except redis_py.Unreachable as error:
            raise error.reason from None

    def _follow(self, once: Callable[[], Any]) -> Any:
        """In a cluster: where the key goes."""
        ends = time.monotonic() + redis_py.SLOT_PATIENCE
        while True:
            try:
                return once()
            except (*redis_py.MOVING, redis_py.Unreachable):
                if not redis_py.in_cluster(self._client) or time.monotonic() > ends:
                    raise
            time.sleep(redis_py.SLOT_PAUSE)
            # The client's own command finds the node and remembers it.
            self._client.execute_command("EXISTS", self._name)

    def _take(self) -> Bound:
        pool = self._pool()
        try:
            return Bound(pool.get_connection(), pool)
        except redis_py.LOST as error:
            raise redis_py.Unreachable(error) from error

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """One of the pool; closed if it breaks."""
        bound = self._take()
        try:
            yield bound.connection
        except ResponseError:
            raise
        except BaseException:
            bound.connection.disconnect()
            raise
        finally:
            self.give_back(bound)

    def _try_to_acquire(self, attempt: Attempt) -> tuple[int | None, Bound | None]:
        # Where it waits is the first; while it moves on, where it waited is behind it.
        at, kept = [self._take()], False
        try:
            token = self._wait(at, attempt)
            kept = attempt.session and token is not None
            return token, at[0] if kept else None
        except redis_py.LOST:
            for bound in at:
                bound.connection.disconnect()
            raise
        finally:
            for bound in () if kept else at:
                if len(at) > 1:
                    bound.connection.disconnect()
                self.give_back(bound)

    def _wait(self, at: list[Bound], attempt: Attempt) -> int | None:
        try:
            while True:
                at[0].connection.send_command(*attempt.command())
                while (pause := attempt.moves_on()) and not _answers(at[0].connection, pause):
                    self._move_on(at, attempt)
                token: int | None = _read(at[0].connection, attempt.patience())
                if token is not None or not attempt.goes_on():
                    return token
        except redis_py.LOST:
            raise
        except ResponseError as error:
            if redis_py.lost(error):
                raise ConnectionError(str(error)) from error
            raise
        except BaseException:
            self._give_up(at, attempt)
            raise

    def _move_on(self, at: list[Bound], attempt: Attempt) -> None:
        """The next slice, on another connection, takes over the place in line. This one gets nil, or the token that
        the other gets as well."""
        at.insert(0, self._take())
        at[0].connection.send_command(*attempt.command())
        at[1].connection.read_response()
        self.give_back(at.pop())

    def _give_up(self, at: list[Bound], attempt: Attempt) -> None:
        """The caller was interrupted. Leaves no place in line and no hold."""
        try:
            token = None
            for bound in at:
                token = _end(bound.connection) or token
            with self._connection() as other:
                if token is None and not attempt.session:
                    token = _exchange(other, attempt.once_more())
                if token is not None:
                    _exchange(other, attempt.undo(token))
        except (*redis_py.LOST, redis_py.Unreachable, ResponseError):
            pass  # What cannot be undone ends with its lease.


def _exchange(connection: Any, command: Command) -> Any:
    connection.send_command(*command)
    return connection.read_response()


def _read(connection: Any, patience: float | None) -> Any:
    """A reply, within this many seconds. None: within the client's own time limit."""
    if patience is not None and not _answers(connection, patience):
        raise TimeoutError("no reply to a wait that is over")
    return connection.read_response()


def _answers(connection: Any, patience: float) -> bool:
    """Whether a reply begins within this many seconds."""
    ends = time.monotonic() + patience
    while not connection.can_read(timeout=max(0.0, min(_LOOK, ends - time.monotonic()))):
        if time.monotonic() >= ends:
            return False
    return True


def _end(connection: Any) -> int | None:
    """Closes a connection, when the server has executed what was sent on it: the reply, or None if the server closed
    it first."""
    token: int | None = None
    sock = getattr(connection, "_sock", None)
    if sock is not None:
        redis_py.end_of_sending(sock)
        try:
            if connection.can_read(timeout=redis_py.CLOSING):
                token = connection.read_response()
        except (*redis_py.LOST, ResponseError):
            pass
    connection.disconnect()
    return token
