"""What this package uses of redis-py, and how it reads redis-py's errors."""

from __future__ import annotations

import selectors
import socket
import time
import weakref
from typing import Any, Protocol

from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    LockError,
    MaxConnectionsError,
    MovedError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from . import commands

# After one of these it is unknown whether the command was executed.
LOST = (ConnectionError, TimeoutError, OSError)
# A cluster's slot is moving to another node.
MOVING = (MovedError, AskError, TryAgainError, ClusterDownError)
# How long a slot may take to move, and the pause between two attempts, in seconds.
SLOT_PATIENCE = 10.0
SLOT_PAUSE = 0.05
# The first and the longest pause between two attempts to reach a server during a wait with a time limit, in seconds.
OUTAGE_PAUSE = 0.05
OUTAGE_LONGEST_PAUSE = 1.0
# However little time of a wait is left: how long a connection may take, in seconds.
CONNECTING = 0.5
# How long the server gets to close a connection that was given up, in seconds.
CLOSING = 2.0


class Unreachable(Exception):
    """No connection could be made, although the client tried as often as it is configured to."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Encoder(Protocol):
    """Turns a value from the caller into bytes, in the client's encoding."""

    def encode(self, value: Any) -> Any:
        """Returns its bytes."""


class Outage:
    """The time between two attempts while the server is away and the wait has a time limit."""

    def __init__(self) -> None:
        self._pause = 0.0

    def pause(self, left: float, error: Exception) -> float:
        """Returns the seconds to wait before the next attempt. Raises the error if not enough time is left."""
        pause = self._pause
        if left <= pause:
            raise error.reason if isinstance(error, Unreachable) else error
        self._pause = min(max(pause * 2, OUTAGE_PAUSE), OUTAGE_LONGEST_PAUSE)
        return pause


class Crowd:
    """Counts the acquisitions that use a pool at this moment. They take at most half of it, so that a burst of them
    leaves connections to the rest of the program. One that finds no room waits on its own connection from the start."""

    _sizes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @classmethod
    def room(cls, pool: Any) -> bool:
        """Returns whether another one may use the pool."""
        return not lends(pool) or cls._sizes.get(pool, 0) < max(1, pool.max_connections // 2)

    def __enter__(self) -> None:
        if lends(self._pool):
            self._sizes[self._pool] = self._sizes.get(self._pool, 0) + 1

    def __exit__(self, *failure: object) -> None:
        if lends(self._pool):
            self._sizes[self._pool] = max(0, self._sizes.get(self._pool, 0) - 1)


def encoder(client: Any) -> Encoder:
    """Returns the client's encoder; that of asyncio clients is in their pool."""
    owner = client if hasattr(client, "get_encoder") else client.connection_pool
    found: Encoder = owner.get_encoder()
    return found


def policy(client: Any, otherwise: type[Any]) -> Any:
    """Returns how often and when the client repeats commands. If it has no setting: once, immediately."""
    told = client.get_retry() if hasattr(client, "get_retry") else getattr(client, "retry", None)
    return told or otherwise(NoBackoff(), 1)


def in_cluster(client: Any) -> bool:
    """Returns whether each key has a node of its own."""
    return not hasattr(client, "connection_pool")


def lends(source: Any) -> bool:
    """Returns whether it is a pool. The nodes of asyncio's cluster client lend no connections."""
    return hasattr(source, "get_connection")


def has_open_connection(pool: Any) -> bool:
    """Returns whether the next connection that the pool lends is open. True also for a pool that does not show it."""
    idle = getattr(pool, "_available_connections", None)
    if not isinstance(idle, list):
        return True
    try:
        sock = getattr(idle[-1], "_sock", None)
        # Readable while nobody waits for a reply: the server has closed it.
        return sock is not None and not _readable(sock)
    except (IndexError, OSError, ValueError):
        return False


def _readable(sock: Any) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def own_settings(source: Any, retry: Any, connect_within: float | None) -> dict[str, Any]:
    """Returns the settings for a connection outside of the pool: those of the pool, but it does not retry by itself."""
    settings = dict(source.connection_kwargs)
    settings["retry"] = retry
    settings.pop("retry_on_error", None)
    settings.pop("retry_on_timeout", None)
    if connect_within is not None and "path" not in settings:
        told = settings.get("socket_connect_timeout") or settings.get("socket_timeout")
        settings["socket_connect_timeout"] = max(CONNECTING, min(told or connect_within, connect_within))
    return settings


def pool_is_full(error: Exception) -> bool:
    """Returns whether the pool has no connection left. redis-py 6 has no error of its own for that."""
    return isinstance(error, MaxConnectionsError) or str(error) == "Too many connections"


def lost(error: ResponseError) -> bool:
    """Returns whether the error leaves the outcome unknown: `UNBLOCKED` (a failover, or an operator)."""
    return commands.code(error) == "UNBLOCKED"


def wrong_type(error: ResponseError) -> bool:
    """Returns whether the key is not a dlock lock: a program locks the same name with `SET NX`."""
    return commands.code(error) == "WRONGTYPE"


def explained(error: ResponseError) -> Exception:
    """Returns the error to raise for an error reply."""
    if str(error).lower().startswith("unknown command") and "dlock." in str(error).lower():
        return LockError(f"{error} (is the dlock module loaded on this server?)")
    return error


def end_of_sending(sock: Any) -> None:
    """Closes the sending direction: the server executes what it has received, and then closes."""
    try:
        sock.shutdown(socket.SHUT_WR)
    except (OSError, TypeError):
        pass


def now() -> float:
    """Returns the time by which deadlines are kept, in seconds."""
    return time.monotonic()
