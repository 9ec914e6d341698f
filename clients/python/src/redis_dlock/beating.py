"""A hold whose looks are sent together with those of others. Sends nothing, and does not wait."""

from __future__ import annotations

import time
from typing import Any

from redis.exceptions import ResponseError

from . import redis_py
from .commands import Command
from .heartbeat import Heartbeat, Look, Terms

# Looks that are due within this time, in seconds, are sent together.
TOGETHER = 0.02
# How many looks are sent in one exchange: few enough that a connection takes them without waiting.
_AT_ONCE = 100


class Beating:
    """The part of a watch that its heart (`sync_heart`, `async_heart`) calls."""

    _beats: Heartbeat
    _terms: Terms
    _stopped: bool
    _refused: Exception | None

    def lose(self, why: str) -> None:
        """The lock is lost."""
        raise NotImplementedError

    def source(self) -> Any:
        """Returns the client whose connections lead to the lock's server now."""
        raise NotImplementedError

    def moves(self, heart: Any) -> None:
        """Leaves its heart for the one of another server."""
        raise NotImplementedError

    def is_due(self, soon: float, now: float) -> bool:
        """Returns whether a look is due by `soon`. Loses a hold that has ended."""
        if self._stopped:
            return False
        if now >= self._beats.validity.until:
            self.lose("its lease ended" if self._refused is None else f"its lease ended: {self._refused}")
            return False
        return self._beats.due() <= soon

    def due(self) -> float:
        """Returns when the next look is due, or the hold ends."""
        return self._beats.due()

    def answer_within(self, now: float) -> float:
        """Returns the seconds that a look may take."""
        return self._beats.answer_within(now)

    def begin(self, now: float) -> Look:
        """A look is about to be sent."""
        return self._beats.begin(now, binds=False)

    def commands(self, look: Look) -> list[Command]:
        """Returns the commands of a look."""
        return self._terms.commands(look)

    def took(self, look: Look, replies: list[Any]) -> None:
        """Takes the replies to a look."""
        if not self._beats.took(time.monotonic(), look, replies):
            self.lose("the server has no such hold")
        self._refused = None

    def failed(self, look: Look, error: Exception, *, executed: bool) -> None:
        """A look has failed."""
        if isinstance(error, ResponseError) and redis_py.wrong_type(error):
            return self.lose("the key is no lock any more")
        if isinstance(error, ResponseError) and not isinstance(error, redis_py.MOVING):
            # The server refuses, for example because it cannot write: the hold may last until its lease ends.
            self._refused = error
        self._beats.failed(time.monotonic(), look, binds=False, executed=executed)


def alike(watches: list[Any]) -> list[Any]:
    """Returns some of the watches that can wait for an answer for about as long as the most urgent one."""
    now = time.monotonic()
    longest = 4 * min(watch.answer_within(now) for watch in watches)
    return [watch for watch in watches if watch.answer_within(now) <= longest][:_AT_ONCE]
