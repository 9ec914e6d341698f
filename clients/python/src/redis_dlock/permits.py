"""The permits that a semaphore object has taken, for each thread or task."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from redis.exceptions import LockError

from .info import fields

P = TypeVar("P")


def is_full(reply: Any, limit: int) -> bool:
    """Returns whether a request for a permit would have to wait, from the reply to `DLOCK.INFO`."""
    told = fields(reply)
    if not told:
        return False
    shared = told["mode"] in ("shared", b"shared")
    # An exclusive holder leaves no permit.
    return not shared and bool(told["count"]) or int(told["count"]) >= limit or int(told["waiters"]) > 0


class Permits(Generic[P]):
    """The permits of each acquisition. A release takes those of the caller before those of others, the newest first."""

    def __init__(self, caller: Callable[[], object]) -> None:
        self._caller = caller
        self._all: list[tuple[object, P, int]] = []
        self._lock = threading.Lock()

    def add(self, permit: P, number: int) -> None:
        """Remembers an acquisition of the caller with this number of permits."""
        with self._lock:
            self._all.append((self._caller(), permit, number))

    def forget(self, permit: P) -> None:
        """Forgets an acquisition that was interrupted."""
        with self._lock:
            self._all = [each for each in self._all if each[1] is not permit]

    def take(self, number: int) -> list[tuple[P, int]]:
        """Forgets this number of permits. Returns the acquisitions that they are of, each with how many are of it.
        Raises `LockError` if there are fewer."""
        if number < 1:
            raise ValueError("n must be one or more")
        caller = self._caller()
        taken: list[tuple[P, int]] = []
        with self._lock:
            if number > sum(held for _, _, held in self._all):
                raise LockError("Cannot release more than was acquired")
            # False sorts before True, and equals stay in order: the caller's own come last, and are popped first.
            self._all.sort(key=lambda entry: entry[0] == caller)
            while number > 0:
                owner, permit, held = self._all.pop()
                given = min(held, number)
                taken.append((permit, given))
                number -= given
                if held > given:
                    self._all.append((owner, permit, held - given))
        return taken
