"""The holders of a lock, and how a watch of them keeps up to date. Sends nothing."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any

from redis.exceptions import LockError, ResponseError

from . import commands, profile, redis_py
from .commands import Command, Name
from .info import fields

# The channel on which the server says that a watched key has changed.
INVALIDATED = "__redis__:invalidate"
# A watch asks at least this often, in seconds, so that it notices a connection that is dead.
HEARTBEAT = 10.0
# The longest pause between two attempts to reach the server, in seconds.
LONGEST_PAUSE = 1.0
# How long a reply may take, in seconds.
ANSWER = redis_py.ANSWER


@dataclass(frozen=True)
class Holder:
    """The holder of a lock. Of several readers, the one that has held it for the longest time."""

    # The fencing token.
    token: int
    owner: bytes
    # When the lock was granted: Unix time in seconds, by the server's clock. The token contains it.
    since: float


def question(name: Name) -> Command:
    """Returns the command that asks for the holder."""
    return ("DLOCK.INFO", name, "FULL", "COUNT", 1)


def read(reply: Any) -> tuple[Holder | None, float]:
    """Returns the holder, and the seconds after which the question should be repeated."""
    info = fields(reply)
    holds = [fields(hold) for hold in info.get("holds", [])]
    if not holds:
        return None, HEARTBEAT
    token, owner = holds[0]["token"], holds[0]["owner"]
    owner = owner if isinstance(owner, bytes) else str(owner).encode()
    # When the `ttl` has passed, the lock may be free without a message.
    left = math.ceil(info["ttl"]) / 1000
    return Holder(token, owner, token / 1e6), min(HEARTBEAT, left + 0.001)


def left_of(lock: Any) -> float:
    """Returns the seconds for which a leader's lock is certain; 0: it is lost or released. A `Term` that a program has
    made itself has no lock, and does not end."""
    if lock is None:
        return math.inf
    try:
        return float(lock.remaining)
    except LockError:
        return 0.0


def settings_of(source: Any, retry: Any) -> dict[str, Any]:
    """Returns the settings of a watch's connections. Version 2 of the protocol sends changes as messages."""
    settings = profile.own_settings(source, retry, ANSWER)
    # The notifications of maintenance in redis-py need version 3 of the protocol.
    settings = {name: value for name, value in settings.items() if "maint_notifications" not in name}
    return {**settings, "protocol": 2}


def may_repeat(error: Exception) -> bool:
    """Returns whether a watch goes on after this error. A watch outlives an outage and a slot that moves."""
    if isinstance(error, asyncio.TimeoutError):
        return True
    if isinstance(error, (*redis_py.LOST, *redis_py.MOVING, redis_py.Unreachable)):
        return True
    if not isinstance(error, ResponseError):
        return False
    # The connection that hears the changes was lost before the connection for questions could name it.
    is_cut = "client ID you want redirect to does not exist" in str(error)
    return is_cut or commands.code(error) in ("LOADING", "UNBLOCKED", "MASTERDOWN")
