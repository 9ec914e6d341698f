"""What a semaphore object has taken, for each thread or task."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from redis.exceptions import LockError

P = TypeVar("P")


class Permits(Generic[P]):
    """The last one added is taken first, and those of the caller before those of others."""

    def __init__(self, caller: Callable[[], object]) -> None:
        self._caller = caller
        self._all: list[tuple[object, P]] = []
        self._lock = threading.Lock()

    def add(self, permit: P) -> None:
        """Remembers what the caller has acquired."""
        with self._lock:
            self._all.append((self._caller(), permit))

    def take(self, number: int) -> list[P]:
        """Forgets some, and returns them. Raises `LockError` if there are fewer."""
        if number < 1:
            raise ValueError("n must be one or more")
        caller = self._caller()
        with self._lock:
            if number > len(self._all):
                raise LockError("Cannot release more than was acquired")
            own = [entry for entry in self._all if entry[0] == caller]
            others = [entry for entry in self._all if entry[0] != caller]
            taken = (others + own)[-number:]
            self._all = [entry for entry in self._all if entry not in taken]
        return [permit for _, permit in reversed(taken)]
