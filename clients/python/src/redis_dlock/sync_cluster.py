"""The session of threads in a cluster."""

from __future__ import annotations

import threading
import time
from typing import Any

from redis.exceptions import ConnectionError

from . import redis_py
from .commands import Name
from .homes import NOT_KNOWN, Homes, move, strays
from .limited import Work, limited
from .limits import LATE, TRY
from .sync_session import Session


class ClusterSession(Session):
    """A session on each server that has locks of it. Each is lost by itself, with the locks there."""

    def open(self) -> ClusterSession:
        """Begins it. It is opened at a server with the first lock there."""
        self._may_open()
        self._homes = Homes(self)
        self._gates: dict[str, threading.Lock] = {}
        self._not_open = None
        return self

    def close(self) -> None:
        """Ends it, and frees its locks with one command for each server.

        Raises redis-py's `ConnectionError` or `TimeoutError` if one that has locks does not answer within a second, after
        it was closed at the others.
        """
        if not self._closed():
            return
        homes = self._homes.everything()
        had_locks = [home.has_locks for home in homes]
        # At the same time: each may take its second.
        until = time.monotonic() + TRY + 2 * LATE
        closings = [Work(home.close) for home in homes]
        for closing in closings:
            closing.start()
        failed: Exception | None = None
        for closing, has_locks in zip(closings, had_locks):
            try:
                if not closing.wait(until):
                    raise ConnectionError("the session was not closed in time")
                closing.outcome()
            except redis_py.LOST as error:
                failed = error if has_locks else failed
        if failed is not None:
            raise failed

    def beat(self) -> None:
        """As that of one server."""
        for home in self._homes.everything():
            home.beat()

    def home(self, name: Name, until: float) -> Session:
        """Returns the session on the server of a key, which it opens with its first lock."""
        self.check()
        node = self.redis.get_node_from_key(name)
        gate = self._gates.setdefault(node.name, threading.Lock())
        if not gate.acquire(timeout=max(0.0, until - time.monotonic())):
            raise redis_py.Unreachable(ConnectionError("the session was not opened in time"))
        try:
            home = self._homes.found(node.name) or self._opened(node, until)
        except redis_py.LOST as error:
            raise redis_py.Unreachable(error) from error
        finally:
            gate.release()
        return home

    def _opened(self, node: Any, until: float) -> Session:
        home = _Home(self, node, self.redis.get_redis_connection(node))
        home._may_open()
        # Once: a node that refuses may be the primary no more, and who wants the session asks where the key is then.
        home._begin(min(until, time.monotonic() + TRY + LATE))
        self._homes.keep(node.name, home)
        if self._closing():
            home.close()
        return home


class _Home(Session):
    """The session on one server."""

    def __init__(self, whole: ClusterSession, node: Any, client: Any) -> None:
        super().__init__(client, whole.timeout, manual=whole._manual)
        self.id = whole._homes.next_id()
        self._whole = whole
        self._server: str = node.name

    def _follow(self) -> None:
        """Moves locks to the sessions of the servers that have their keys now."""
        cluster, until = self._whole.redis, self._limit()
        try:
            limited(lambda: redis_py.refresh(cluster, self._server), until)
            for each in strays(self):
                if cluster.get_node_from_key(each.key).name != self._server:
                    move(each, self, self._whole.home(each.key, until))
        except (*NOT_KNOWN, redis_py.Unreachable):
            pass  # The next heartbeat tries it again.


Session._of_cluster = ClusterSession
