"""What of redis-py is used, and how its errors are read."""

from __future__ import annotations

import socket
from typing import Any, Protocol

from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from . import commands

# After these nobody knows whether the command was executed.
LOST = (ConnectionError, TimeoutError, OSError)
# A cluster's slot is on its way to another node, which may take so long; the pause between two tries. In seconds.
MOVING = (MovedError, AskError, TryAgainError, ClusterDownError)
SLOT_PATIENCE = 10.0
SLOT_PAUSE = 0.05
# How long the server gets to close a connection that was given up, in seconds.
CLOSING = 2.0


class Unreachable(Exception):
    """No connection was to be had, though the client tried as often as it was told to."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Encoder(Protocol):
    """Turns what a caller gave into bytes, in the client's encoding."""

    def encode(self, value: Any) -> Any:
        """Bytes of it."""


def encoder(client: Any) -> Encoder:
    """Clients have one, asyncio's in their pool."""
    owner = client if hasattr(client, "get_encoder") else client.connection_pool
    found: Encoder = owner.get_encoder()
    return found


def policy(client: Any, otherwise: type[Any]) -> Any:
    """How often and when the client was told to repeat. Nothing: `otherwise`, once and at once."""
    told = client.get_retry() if hasattr(client, "get_retry") else getattr(client, "retry", None)
    return told or otherwise(NoBackoff(), 1)


def in_cluster(client: Any) -> bool:
    """Whether each key has a node of its own."""
    return not hasattr(client, "connection_pool")


def lost(error: ResponseError) -> bool:
    """`UNBLOCKED` (a failover, or an operator) leaves the outcome open, as a lost connection does."""
    return commands.code(error) == "UNBLOCKED"


def wrong_type(error: ResponseError) -> bool:
    """The key is not a lock of this kind: somebody has it the old way."""
    return commands.code(error) == "WRONGTYPE"


def end_of_sending(sock: Any) -> None:
    """Says that nothing more comes, so that the server executes what it got and then closes."""
    try:
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass
