"""A session of a cluster: one session on each server that has its locks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Union

from redis.exceptions import RedisClusterException, RedisError

from .binding import Binding, Owed
from .session import SessionBase

# The errors of a cluster's client if no server tells where the slots are, or none has the slot of a key.
NO_NODE = (RedisError, RedisClusterException, OSError)

Moves = Union[Binding, Owed]


class Homes:
    """The sessions by the names of their servers. Sends nothing."""

    def __init__(self, whole: SessionBase) -> None:
        self._whole = whole
        self._opened = 0
        self._all: dict[str, Any] = {}
        # The whole sends no heartbeats: the session on each server has its own, and is lost by itself.
        whole._has_homes, whole._due = True, math.inf

    def found(self, server: str) -> Any:
        """Returns the open session on a server; None: there is none."""
        home = self._all.get(server)
        return home if home is not None and home.is_open else None

    def next_id(self) -> str:
        """Returns the id of the next session: the server may still have the last one, although that counts as lost."""
        self._opened += 1
        return f"{self._whole.id}-{self._opened}"

    def keep(self, server: str, home: Any) -> None:
        """Remembers the session on a server."""
        self._all[server] = home

    def everything(self) -> list[Any]:
        """Returns all of them."""
        return list(self._all.values())


def strays(home: SessionBase) -> Iterator[Moves]:
    """Yields what must go to another session if its key is on another server."""
    yield from list(home._bindings)
    yield from list(home._owed)


def move(each: Moves, here: SessionBase, there: SessionBase) -> None:
    """Moves a lock, or something owed, to the session of the server that has its key."""
    if isinstance(each, Binding):
        each.move(there)
    elif each in here._owed:
        here._owed.discard(each)
        there.owe(each)
