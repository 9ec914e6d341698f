"""Reaches the server that has a key: its connections, and commands that do not wait for a lock.

Commands use the client's pool, or a connection beside it. Nothing waits for a server longer than docs/time-limits.md says.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError
from redis.retry import Retry

from . import profile, redis_py
from .acquisition import Acquisition, Replicas
from .commands import Command
from .errors import ReplicasError
from .holds import Hold
from .limited import Work, limited
from .limits import STEP
from .talk import Line, Talk

# Pools that still make a connection for a caller that has given up. Meanwhile, such a pool is not asked for a second
# connection: without a `socket_timeout`, a thread would wait for each one as long as the server hangs.
_stuck: weakref.WeakKeyDictionary[Any, Work[Any]] = weakref.WeakKeyDictionary()


if hasattr(os, "register_at_fork"):
    # A forked child has none of the threads that make connections for these pools.
    os.register_at_fork(after_in_child=_stuck.clear)


def _is_stuck(pool: Any) -> bool:
    work = _stuck.get(pool)
    return work is not None and work.goes_on


class _Loan:
    """Lends a connection for the time of a `with` block. A context manager made of a generator takes twice the time."""

    __slots__ = ("_attempt", "_fresh", "_talk", "_until", "_way")

    def __init__(self, way: Way, until: float, attempt: Acquisition | None, fresh: bool) -> None:
        self._way, self._until, self._attempt, self._fresh = way, until, attempt, fresh

    def __enter__(self) -> Talk:
        way = self._way
        self._talk = way.open(self._until) if self._fresh else way._lend(self._until, self._attempt)
        return self._talk

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, (redis_py.NotPrimary, redis_py.Unreachable)):
            self._talk.leave()
        if self._attempt is None or not self._attempt.keeps(self._talk):
            self._talk.done()


class Way:
    """The way to the server that has a key."""

    def __init__(self, client: Any, name: Any) -> None:
        redis_py.check_client(client, asyncio=False)
        self._client = client
        self._name = name
        # The source of connections for a client with a single connection, as its last acquisition found it.
        self._own_source: Any = None

    def open(self, until: float, *, exactly: bool = True) -> Line:
        """Returns a new connection, outside the pool, to the server that has the key. Raises `Unreachable` if there is
        none at the time `until`. `exactly`: see `Line.connect`."""
        line = Line(self._source(), until)
        line.connect(until, exactly=exactly)
        return line

    def renew(
        self, commands: list[Command], replicas: Replicas | None, until: float, refused: Callable[[], None]
    ) -> tuple[list[Any], bool]:
        """Returns the replies to renewals, and whether an earlier copy of them was not answered. With replicas, raises
        `ReplicasError` if too few acknowledge them. Calls `refused` if certainly no server has executed them."""
        if replicas is not None:
            return self._renew_with(commands, replicas, until + replicas.timeout, None), False
        copies = 0

        def on(talk: Talk, until: float) -> list[Any]:
            nonlocal copies
            copies += 1
            return talk.exchange(*commands, within=until - time.monotonic())

        try:
            return self._repeat(on, until), copies > 1
        except ResponseError:
            if copies == 1 and len(commands) == 1:
                refused()
            raise

    def _renew_with(self, commands: list[Command], replicas: Replicas, until: float, line: Line | None) -> list[Any]:
        own = line is None
        try:
            line = line or self.open(until)
        except redis_py.Unreachable as error:
            raise error.reason from None
        try:
            within = until - time.monotonic()
            *replies, acknowledged = line.exchange(*commands, replicas.wait(), within=within)
        finally:
            if own:
                line.close()
        if acknowledged < replicas.count and None not in replies:
            raise ReplicasError(replicas.too_few(acknowledged))
        return replies

    def release(self, commands: list[Command], hold: Hold[Line], until: float) -> tuple[list[Any], bool]:
        """Returns the replies, and whether an earlier copy of the commands may have been executed."""
        repeated = False

        def on(talk: Talk, until: float) -> list[Any]:
            nonlocal repeated
            repeated, hold.release_sent = hold.release_sent, True
            try:
                return talk.exchange(*commands, within=until - time.monotonic())
            except Exception as error:
                # Some of several commands may have been executed.
                hold.release_sent = repeated or len(commands) > 1 or redis_py.may_be_executed(error)
                raise

        if hold.connection is not None and hold.connection.is_open():
            try:
                return on(hold.connection, min(until, time.monotonic() + STEP)), repeated
            except redis_py.LOST:
                pass  # A second copy of the commands follows on another connection.
        return self._repeat(on, until), repeated

    def ask(self, commands: list[Command], until: float) -> list[Any]:
        """Returns the replies to commands that may be repeated."""
        return self._repeat(lambda talk, until: talk.exchange(*commands, within=until - time.monotonic()), until)

    def exchange(self, sent: list[Command], until: float, *, fresh: bool) -> list[Any]:
        """Returns the replies of a primary, error replies among them. Does not wait for the pool: makes a connection
        outside it if the pool has no open one to spare, or if `fresh` is set."""
        if self._own_source is None:
            self._look(until)
        pool = self._source()
        lent = None if fresh else redis_py.open_connection(pool)
        talk = self.open(until) if lent is None else Talk(lent, pool.release)
        try:
            talk.send(*sent)
            return redis_py.of_primary([talk.read(until) for _ in sent])
        except BaseException:
            talk.connection.disconnect()
            raise
        finally:
            talk.done()

    def _source(self) -> Any:
        """Returns the pool that knows how to connect to the server of the key."""
        if self._own_source is not None:
            return self._own_source
        if not redis_py.in_cluster(self._client):
            return self._client.connection_pool
        node = self._client.get_node_from_key(self._name)
        return self._client.get_redis_connection(node).connection_pool

    def _look(self, until: float) -> None:
        """Asks a client with a single connection for the user and the database, which the program may have changed
        there. Connections for its locks are made like that one."""
        if not redis_py.is_single(self._client):
            return
        try:
            told = limited(lambda: self._client.execute_command("CLIENT", "INFO"), until)
        except NoPermissionError as error:
            raise profile.unknown(error) from error
        except redis_py.LOST as error:
            raise redis_py.Unreachable(error) from error
        self._own_source = profile.source_of(self._client.connection_pool, told)

    def _repeat(self, on: Callable[[Talk, float], list[Any]], until: float) -> list[Any]:
        """Returns what the exchange `on` returns. Repeats the exchange after a lost connection, as often as the
        client's retry policy allows and until the time `until`. Then raises the last error."""
        repeats = redis_py.Repeats(redis_py.policy(self._client, Retry), until)

        def once() -> list[Any]:
            step = repeats.step()
            if self._own_source is None:
                self._look(step)
            with self._talk(step, fresh=repeats.fresh) as talk:
                return on(talk, step)

        while True:
            try:
                replies: list[Any] = self._follow(once, lambda: until)
                return replies
            except (*redis_py.LOST, redis_py.Unreachable) as error:
                pause = repeats.pause(error)
            time.sleep(pause)

    def _follow(self, once: Callable[[], Any], gives_up: Callable[[], float]) -> Any:
        """Returns what `once` returns. In a cluster, repeats it while the key moves to another node."""
        if not redis_py.in_cluster(self._client):
            return once()
        ends = time.monotonic() + redis_py.SLOT_PATIENCE
        while True:
            try:
                return once()
            except (*redis_py.MOVING, redis_py.Unreachable, redis_py.NotPrimary) as error:
                if time.monotonic() > min(ends, gives_up()):
                    raise redis_py.unreachable(error) from error
            time.sleep(redis_py.SLOT_PAUSE)
            # The user's client follows the redirection of this command, and remembers the node.
            with suppress(*redis_py.MOVING):
                limited(lambda: self._client.execute_command("EXISTS", self._name), min(ends, gives_up()))

    def _talk(self, until: float, attempt: Acquisition | None = None, *, fresh: bool = False) -> _Loan:
        """Returns a `with` block for a connection of the pool, or for a new one outside it if the pool has none to
        spare or `fresh` is set. A connection on which the attempt still waits for an answer is left to the attempt."""
        return _Loan(self, until, attempt, fresh)

    def _lend(self, until: float, attempt: Acquisition | None) -> Talk:
        pool = self._source()
        # An attempt asks the pool for a new connection only once, and does not ask a pool that is stuck.
        asked = _is_stuck(pool)
        if attempt is not None:
            asked, attempt.lent = asked or attempt.lent, True
        try:
            lent = redis_py.open_connection(pool)
            if lent is None and not asked and redis_py.lends(pool):
                soon = min(until, time.monotonic() + redis_py.LENDING)
                lent = limited(pool.get_connection, soon, pool.release, lambda work: _stuck.update({pool: work}))
        except redis_py.LOST as error:
            if not redis_py.pool_is_full(error):
                raise redis_py.Unreachable(error) from error
            lent = None
        return self.open(until) if lent is None else Talk(lent, pool.release)
