"""Programs that lock while an operator works: who believed to hold what, from when to when, and with which token."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import redis
import redis_dlock

# The lease of each lock, in seconds.
LEASE = 2.0


@dataclass
class Hold:
    """A time for which a program believed that it held a lock; seconds of the monotonic clock."""

    lock: str
    begin: float
    end: float
    token: int
    # Whether the lock was still held when the work was done.
    kept: bool


@dataclass
class Crowd:
    """Threads that take turns at two locks, one of them with a session, and work while they hold one."""

    port: int
    options: dict[str, Any] = field(default_factory=dict)
    # The seconds that a program works while it holds a lock.
    work: float = 0.01
    holds: list[Hold] = field(default_factory=list)
    # The errors that calls raised, by the first word of a server's error, or by their class.
    errors: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(kind, number), daemon=True)
            for kind in ("leased", "bound") for number in range(3)
        ]

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a program does not end"

    def turn_to(self, port: int) -> None:
        """Has all programs connect to another server, as if their address had moved."""
        self.port = port

    def progress(self, holds: int = 10, limit: float = 30) -> bool:
        """Returns whether each lock is granted that many times more within the limit."""
        before, ends = self._granted(), time.monotonic() + limit
        while time.monotonic() < ends:
            if all(now - then >= holds for now, then in zip(self._granted(), before)):
                return True
            time.sleep(0.02)
        return False

    def faults(self) -> list[str]:
        """Returns what must not have happened: two at one time, or a token that does not rise."""
        found = []
        for lock in ("leased", "bound"):
            holds = sorted((hold for hold in self.holds if hold.lock == lock), key=lambda hold: hold.begin)
            for first, second in zip(holds, holds[1:]):
                if second.begin < first.end:
                    found.append(f"{lock}: two believed to hold it for {(first.end - second.begin) * 1000:.1f} ms")
                if second.token <= first.token:
                    found.append(f"{lock}: token {second.token} after {first.token}")
        return found

    def lost(self) -> int:
        """Returns how many holds ended before the work was done, as programs learned meanwhile or from the release."""
        return sum(not hold.kept for hold in self.holds)

    def _granted(self) -> list[int]:
        return [sum(hold.lock == lock for hold in list(self.holds)) for lock in ("leased", "bound")]

    def _work(self, kind: str, number: int) -> None:
        while not self._stopped.is_set():
            port = self.port
            client = redis.Redis(host="127.0.0.1", port=port, socket_timeout=2, socket_connect_timeout=2, **self.options)
            kept: dict[str, Any] = {"auto_renewal": True} if kind == "leased" else {"session": True}
            while port == self.port and not self._stopped.is_set():
                lock = redis_dlock.DLock(client, kind, LEASE, blocking_timeout=2, label=f"program {number}", **kept)
                try:
                    if lock.acquire():
                        self._hold(lock)
                except (redis.RedisError, OSError) as error:
                    self._met(error)
                    self._stopped.wait(0.05)
            client.close()

    def _hold(self, lock: Any) -> None:
        begin, token, end = time.monotonic(), lock.token, 0.0
        kept, until = True, begin + self.work
        while kept and time.monotonic() < until:
            now = time.monotonic()
            kept = lock.remaining > 0
            end = now if kept else end
            time.sleep(0.001)
        hold = Hold(lock.name, begin, max(begin, end), token, kept)
        self.holds.append(hold)
        try:
            lock.release()
        except redis_dlock.LockNotOwnedError:
            hold.kept = False

    def _met(self, error: Exception) -> None:
        text = str(error).split(" ")[0].rstrip(":")
        name = text if text.isupper() and len(text) > 2 else type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1
