"""The session of asyncio in a cluster."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from redis.exceptions import ConnectionError

from . import redis_py
from .async_session import Session
from .async_talk import within
from .commands import Name
from .homes import NOT_KNOWN, Homes, move, strays
from .limits import LATE, TRY


class ClusterSession(Session):
    """As that of threads, for asyncio."""

    async def open(self) -> ClusterSession:
        """Begins it. It is opened at a server with the first lock there."""
        self._may_open()
        self._homes = Homes(self)
        self._gates: dict[str, asyncio.Lock] = {}
        self._not_open = None
        return self

    async def close(self) -> None:
        """Ends it, and frees its locks with one command for each server.

        Raises redis-py's `ConnectionError` or `TimeoutError` if one that has locks does not answer within a second, after
        it was closed at the others.
        """
        if not self._closed():
            return
        homes = self._homes.everything()
        had_locks = [home.has_locks for home in homes]
        errors = await asyncio.gather(*(home.close() for home in homes), return_exceptions=True)
        for error, has_locks in zip(errors, had_locks):
            if isinstance(error, BaseException) and (has_locks or not isinstance(error, redis_py.LOST)):
                raise error

    def beat(self) -> None:
        """As that of one server."""
        for home in self._homes.everything():
            home.beat()

    async def home(self, name: Name, until: float) -> Session:
        """Returns the session on the server of a key, which it opens with its first lock."""
        self.check()
        node = self.redis.get_node_from_key(name)
        gate = self._gates.setdefault(node.name, asyncio.Lock())
        async with gate:
            try:
                return self._homes.found(node.name) or await self._opened(node, until)
            except redis_py.LOST as error:
                raise redis_py.Unreachable(error) from error

    async def _opened(self, node: Any, until: float) -> Session:
        if time.monotonic() >= until:
            raise ConnectionError("the session was not opened in time")
        home = _Home(self, node)
        home._may_open()
        # Once: a node that refuses may be the primary no more, and who wants the session asks where the key is then.
        await home._begin(min(until, time.monotonic() + TRY + LATE))
        self._homes.keep(node.name, home)
        if self._closing():
            await home.close()
        return home


class _Home(Session):
    """The session on one server."""

    def __init__(self, whole: ClusterSession, node: Any) -> None:
        # A node makes connections as a pool does.
        super().__init__(SimpleNamespace(connection_pool=node), whole.timeout, manual=whole._manual)
        self.id = whole._homes.next_id()
        self._whole = whole
        self._server: str = node.name

    async def _follow(self) -> None:
        """Moves locks to the sessions of the servers that have their keys now."""
        cluster, until = self._whole.redis, self._limit()
        try:
            await within(max(0.0, until - time.monotonic()), redis_py.refresh(cluster, self._server))
            for each in strays(self):
                if cluster.get_node_from_key(each.key).name != self._server:
                    move(each, self, await self._whole.home(each.key, until))
        except (*NOT_KNOWN, redis_py.Unreachable, asyncio.TimeoutError):
            pass  # The next heartbeat tries it again.


Session._of_cluster = ClusterSession
