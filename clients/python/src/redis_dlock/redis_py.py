"""The parts of redis-py that this package uses, and how it reads redis-py's errors."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import queue
import re
import select
import selectors
import socket
import time
import weakref
from collections.abc import Iterable
from typing import Any, Protocol

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.connection import BlockingConnectionPool, ConnectionPool, PythonRespSerializer
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    LockError,
    MaxConnectionsError,
    MovedError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

try:
    from redis.observability import attributes, providers, recorder
except ImportError:  # redis-py before 7.1 counts nothing
    attributes = providers = recorder = None  # type: ignore[assignment]

from . import commands
from .commands import Command
from .limits import STEP

# The errors after which a command may have been executed. `may_be_executed` decides it for one error.
LOST = (ConnectionError, TimeoutError, OSError)
# The errors of a cluster if the slot of the key is on another node, moves to one, or has no node.
MOVING = (MovedError, AskError, TryAgainError, ClusterDownError)
# The text of the error for a command that the demotion of its server ended, or that a replica cannot execute.
_DEMOTED = re.compile(r"(UNBLOCKED .*state changed|WAIT cannot be used with replica)", re.DOTALL)
# The texts of the errors of a server that still loads its data, and of one that takes no more clients.
_STARTS = re.compile(r"\S+ is loading ")
_FULL = "max number of clients reached"
# How long a slot may take to move, and the pause between two attempts, in seconds.
SLOT_PATIENCE = 10.0
SLOT_PAUSE = 0.05
# The first and the longest pause between two attempts to reach a server, in seconds.
OUTAGE_PAUSE = 0.05
OUTAGE_LONGEST_PAUSE = 1.0
# How long a pool may take to connect, in seconds. After that, a connection is made without the pool: the pool repeats
# failed attempts as the client is configured to, and its pauses may be longer than the caller waits.
LENDING = 0.5
# How long a call that does not wait for a lock may take, in seconds, with all repeats of its commands.
ANSWER = 5.0
# How long the cleanup of an acquisition that was given up may take, in seconds, and how much of that time the caller
# waits if the server may answer.
CLEANING = 5.0
CLEANING_SEEN = 0.05
# How long after the end of its connection a command may be executed, in seconds: on the same machine, and at most.
SEES_AN_END = (0.02, 1.0)
# How long an interpreter or event loop that ends waits for the cleanup, in seconds.
CLEANING_AT_END = 2.0


class Unreachable(Exception):
    """No server that can grant the lock was reached: no connection could be made, the server is no primary, or the slot
    of the key keeps moving."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class NotPrimary(ConnectionError):
    """The server is no primary now, or its cluster is down. The server may have executed the commands that were sent
    before the refused one."""


class Encoder(Protocol):
    """Turns a value from the caller into bytes, in the client's encoding."""

    def encode(self, value: Any) -> Any:
        """Returns the bytes of the value."""


class Outage:
    """The pauses between the attempts to reach a server that is away."""

    def __init__(self) -> None:
        self._pause = 0.0
        # The last error that is not a timeout.
        self._refusal: Exception | None = None

    def pause(self, left: float, error: Exception) -> float:
        """Returns the seconds to wait before the next attempt. Raises the error if it is final. If no time is left, raises
        the last error that is not a timeout: the limit may have cut the last attempt short."""
        reason = error.reason if isinstance(error, Unreachable) else error
        self._refusal = self._refusal if isinstance(reason, TimeoutError) else reason
        if left <= 0 or isinstance(reason, (AuthenticationError, AuthorizationError)):
            raise self._refusal or reason
        pause = min(self._pause, left)
        self._pause = min(max(self._pause * 2, OUTAGE_PAUSE), OUTAGE_LONGEST_PAUSE)
        return pause


class Repeats:
    """The pauses between the attempts at a call that does not wait for a lock. The first repeat comes at once, on a new
    connection. The `retry` of the client says how many more follow, and when. No repeat begins after the limit of the
    call."""

    def __init__(self, policy: Any, until: float) -> None:
        self._retries: int = policy.get_retries()
        # `_backoff` becomes a copy of the client's when a repeat needs it, not here: an interpreter that ends cannot
        # copy any more.
        self._clients_backoff: Any = policy._backoff
        self._backoff: Any = None
        self._until = until
        self._failures = 0

    @property
    def fresh(self) -> bool:
        """Returns whether the next attempt needs a new connection. The connections of the pool may lead to a server
        that hangs, or was replaced."""
        return self._failures > 0

    def step(self) -> float:
        """Returns the time by which the next attempt has to end."""
        return min(self._until, time.monotonic() + STEP)

    def pause(self, error: Exception) -> float:
        """Returns the seconds to wait before the next attempt. Raises the error if none follows."""
        reason = error.reason if isinstance(error, Unreachable) else error
        repeats, self._failures = self._failures, self._failures + 1
        if 0 <= self._retries < repeats or isinstance(reason, (AuthenticationError, AuthorizationError)):
            raise reason
        pause = self._compute(repeats) if repeats else 0.0
        if time.monotonic() + pause >= self._until:
            raise reason
        return pause

    def _compute(self, repeats: int) -> float:
        if self._backoff is None:
            self._backoff = copy.deepcopy(self._clients_backoff)
            self._backoff.reset()
        return float(self._backoff.compute(repeats))


class Crowd:
    """Counts the acquisitions that use a pool at this moment. They take at most half of its connections, or its only
    one, so that a burst of acquisitions leaves connections to the rest of the program. An acquisition that finds no
    room uses a connection of its own from the start."""

    # Each set grows and shrinks in single steps of the interpreter, so it needs no mutex, which an interrupt could
    # leave locked. The sets are weak, because nothing removes an acquisition that an interrupt ends between `__enter__`
    # and the block.
    _present: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Crowd]] = weakref.WeakKeyDictionary()

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @classmethod
    def room(cls, pool: Any) -> bool:
        """Returns whether another acquisition may use the pool."""
        return not lends(pool) or len(cls._present.get(pool, ())) < max(1, pool.max_connections // 2)

    def __enter__(self) -> None:
        if lends(self._pool):
            self._present.setdefault(self._pool, weakref.WeakSet()).add(self)

    def __exit__(self, *failure: object) -> None:
        if lends(self._pool):
            self._present.get(self._pool, weakref.WeakSet()).discard(self)


if hasattr(os, "register_at_fork"):
    # A forked child has only the thread that forked it: the acquisitions of the others do not go on there.
    os.register_at_fork(after_in_child=Crowd._present.clear)


def check_client(client: Any, *, asyncio: bool) -> None:
    """Raises `TypeError` for a client of threads where one of asyncio is needed, or the other way round."""
    if type(client) is (redis.asyncio.Redis if asyncio else redis.Redis):
        return
    of_asyncio = isinstance(client, (redis.asyncio.Redis, redis.asyncio.RedisCluster))
    if of_asyncio and not asyncio:
        raise TypeError("a client of redis.asyncio: use the classes of redis_dlock.asyncio with it")
    if asyncio and isinstance(client, (redis.Redis, redis.RedisCluster)):
        raise TypeError("not a client of redis.asyncio: use the classes of redis_dlock with it")


def encoder(client: Any) -> Encoder:
    """Returns the client's encoder, or that of its pool if it has none."""
    owner = client if hasattr(client, "get_encoder") else client.connection_pool
    found: Encoder = owner.get_encoder()
    return found


def policy(client: Any, otherwise: type[Any]) -> Any:
    """Returns the client's setting of how often and when it repeats commands. A client without one gets an object of
    the class `otherwise`, which repeats a command once, immediately."""
    told = client.get_retry() if hasattr(client, "get_retry") else getattr(client, "retry", None)
    return told or otherwise(NoBackoff(), 1)


def in_cluster(client: Any) -> bool:
    """Returns whether `client` is the client of a cluster, where the key determines the node."""
    return not hasattr(client, "connection_pool")


def servers_of(client: Any) -> Any:
    """Returns the object that clients with the same connections have in common."""
    return client.nodes_manager if in_cluster(client) else client.connection_pool


def refresh(cluster: Any, doubtful: str) -> Any:
    """Asks the nodes where the slots are. The node `doubtful` is asked last, because it may hang. With a client of
    asyncio, returns the coroutine that does so."""
    nodes = cluster.nodes_manager
    if "last_failed_node_name" in inspect.signature(nodes.initialize).parameters:
        return nodes.initialize(last_failed_node_name=doubtful)
    # An older redis-py asks the nodes in the order of this dictionary: the doubtful one moves to its end.
    if (node := nodes.startup_nodes.pop(doubtful, None)) is not None:
        nodes.startup_nodes[doubtful] = node
    return nodes.initialize()


def is_single(client: Any) -> bool:
    """Returns whether all commands of the client go over one connection, whose state the program may change."""
    return bool(getattr(client, "_single_connection_client", False) or getattr(client, "single_connection_client", False))


def lends(source: Any) -> bool:
    """Returns whether `source` is a pool. The nodes of asyncio's cluster client lend no connections."""
    return hasattr(source, "get_connection")


def has_open_connection(pool: Any) -> bool:
    """Returns whether the next connection that the pool lends is open. Returns False for a pool that does not show
    it."""
    idle = getattr(pool, "_available_connections", None)
    if idle is None:  # a `BlockingConnectionPool`
        idle = getattr(getattr(pool, "pool", None), "queue", None)
    try:
        return _is_open(idle[-1])  # type: ignore[index] # None has no elements, and raises TypeError
    except (IndexError, TypeError):
        return False


def _is_open(connection: Any) -> bool:
    try:
        if hasattr(connection, "_writer"):  # a connection of asyncio
            return bool(connection.is_connected)
        sock = getattr(connection, "_sock", None)
        # A socket that is readable while nobody waits for a reply was closed by the server.
        return sock is not None and not _readable(sock)
    except (TypeError, OSError, ValueError):
        return False


def open_connection(pool: Any) -> Any:
    """Returns an open connection of a pool of threads at once, or None if the pool has none to spare. A new connection
    is not made here: that takes as long as the server hangs."""
    if not lends(pool):
        return None
    if type(pool).get_connection is ConnectionPool.get_connection:
        return _idle(pool)
    # The program's own kind of pool may do anything in `get_connection`, so `_OpenOnes` cannot replace the pool there.
    if type(pool).get_connection is not BlockingConnectionPool.get_connection:
        return pool.get_connection() if has_open_connection(pool) else None
    try:
        return type(pool).get_connection(_OpenOnes(pool))
    except _NoneLeft:
        return None


def _idle(pool: Any) -> Any:
    """Does the same as `open_connection` for redis-py's `ConnectionPool`, faster: it skips what the pool does in order
    to make a connection."""
    pool._checkpid()
    with pool._lock:
        idle = pool._available_connections
        if not idle or not _is_open(idle[-1]):
            return None
        connection = idle.pop()
        pool._in_use_connections.add(connection)
    _counts_use(pool)
    return connection


def _counts_use(pool: Any) -> None:
    """Counts a connection as in use in redis-py's metrics. redis-py counts it as idle again when it is released."""
    # Without a provider manager nothing is counted. This check saves two checks of the recorder, which take longer than
    # the rest of `_idle`.
    if recorder is not None and providers.get_observability_instance().get_provider_manager() is not None:
        name = attributes.get_pool_name(pool)
        for state, change in ((attributes.ConnectionState.IDLE, -1), (attributes.ConnectionState.USED, 1)):
            recorder.record_connection_count(pool_name=name, connection_state=state, counter=change)


class _NoneLeft(Exception):
    """The pool has no open connection to spare."""


class _OpenOnes:
    """Replaces a `BlockingConnectionPool` in a call of its `get_connection`. Shows that code only the open connections,
    so it makes none. `get` takes a connection out of the queue before it looks at it, so no other thread can take it."""

    def __init__(self, pool: Any) -> None:
        self.__dict__["_all"] = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._all, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._all, name, value)

    @property
    def pool(self) -> _OpenOnes:
        """Replaces the pool's queue."""
        return self

    def get(self, **limits: Any) -> Any:
        """Replaces `get` of the queue."""
        try:
            connection = self._all.pool.get_nowait()
        except queue.Empty:
            raise _NoneLeft from None
        if not _is_open(connection):
            self._all.pool.put_nowait(connection)
            raise _NoneLeft
        return connection


def _readable(sock: Any) -> bool:
    # `poll` is looked up each time, because eventlet removes it. The default selector would need a file descriptor.
    poll = getattr(select, "poll", None)
    if poll is not None:
        poller = poll()
        poller.register(sock, select.POLLIN)
        return bool(poller.poll(0))
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def packed(connection: Any, commands: Iterable[Command]) -> list[Any]:
    """Returns the bytes of commands. Packs them as redis-py's packer does that is written in Python, but faster; a
    connection with hiredis packs them itself."""
    packer = getattr(connection, "_command_packer", None)
    if type(packer) is not PythonRespSerializer:
        return list(connection.pack_commands(commands))
    encode, pieces = packer.encode, []
    for words in commands:
        pieces.append(b"*%d\r\n" % len(words))
        for word in words:
            value = word if type(word) is bytes else bytes(encode(word))
            pieces.append(b"$%d\r\n%b\r\n" % (len(value), value))
    return [b"".join(pieces)]


@functools.lru_cache(maxsize=16)
def limits_reading(kind: type) -> bool:
    """Returns whether `read_response` of this class takes a time limit. Setting the limit of a socket instead takes longer."""
    return "timeout" in inspect.signature(kind.read_response).parameters  # type: ignore[attr-defined]


def address(connection: Any) -> object:
    """Returns a value that is the same for connections to the same address."""
    return [getattr(connection, name, None) for name in ("host", "port", "path")]


def pool_is_full(error: Exception) -> bool:
    """Returns whether the pool has no connection left. The pools of redis-py 6.0 raise a plain `ConnectionError`."""
    return isinstance(error, MaxConnectionsError) or str(error) == "Too many connections"


def unreachable(error: Exception) -> Unreachable:
    """Returns the error to raise when the slots of a cluster keep moving."""
    return error if isinstance(error, Unreachable) else Unreachable(ConnectionError(str(error)))


def wrong_type(error: Exception) -> bool:
    """Returns whether the key is not a dlock lock, for example because a program locks the same name with `SET NX`."""
    return commands.code(error) == "WRONGTYPE"


def may_be_executed(error: Exception) -> bool:
    """Returns whether a command with this error may have been executed: it got no reply, or its wait was ended, or an
    agent (`dlock agent`) got no answer from its servers. Such an agent replies `LOADING`, and so does a server that
    still loads its data and has executed nothing; the text tells them apart."""
    if isinstance(error, (ResponseError, NotPrimary)):
        return str(error).startswith("UNBLOCKED ")
    if isinstance(error, BusyLoadingError):
        return not _STARTS.match(str(error))
    return not isinstance(error, AuthenticationError) and str(error) != _FULL


def is_answer(error: ResponseError) -> bool:
    """Returns whether the error comes from a server that can grant the lock: a primary that has the slot of the key."""
    return not isinstance(error, MOVING) and not isinstance(explained(error), NotPrimary)


def explained(error: ResponseError) -> Exception:
    """Returns the error to raise for an error reply."""
    if isinstance(error, (ReadOnlyError, ClusterDownError)) or _DEMOTED.match(str(error)):
        return NotPrimary(str(error))
    if str(error).lower().startswith("unknown command") and "dlock." in str(error).lower():
        return LockError(f"{error} (is the dlock module loaded on this server?)")
    return error


def results(replies: list[Any]) -> list[Any]:
    """Returns the replies. Raises the first error among them."""
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise explained(reply)
        if isinstance(reply, Exception):
            raise reply
    return replies


def of_primary(replies: list[Any]) -> list[Any]:
    """Returns the replies, error replies included. Raises `NotPrimary` if one of them shows that the server is no
    primary, and an error that stands for a reply which did not come."""
    for reply in replies:
        if isinstance(reply, Exception) and not isinstance(reply, ResponseError):
            raise reply
        if isinstance(reply, ResponseError) and not isinstance(reply, MOVING):
            if isinstance(failure := explained(reply), NotPrimary):
                raise failure
    return replies


def end_of_sending(sock: Any) -> None:
    """Closes the sending direction of a socket: the server executes what it has received, and then closes the
    connection."""
    try:
        sock.shutdown(socket.SHUT_WR)
    except (OSError, TypeError):
        pass


def latest() -> float:
    """Returns the time by which a call that begins now has to end, even without an answer."""
    return time.monotonic() + ANSWER


def now() -> float:
    """Returns the present time of the clock that deadlines refer to, in seconds."""
    return time.monotonic()
