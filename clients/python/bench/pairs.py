"""Acquires and releases a lock again and again: what a pair costs the processor. Called by lab/packages/run.py with
PORT KIND PAIRS. `plain` is redis-py's own lock. With `--profile` behind, prints where the time goes.
"""

from __future__ import annotations

import cProfile
import sys
import time
from collections.abc import Callable
from typing import Any

import redis

import redis_dlock


def locks(client: redis.Redis) -> dict[str, Callable[[], Any]]:
    """Returns what makes a lock of each kind."""
    return {
        "plain": lambda: client.lock("pairs", timeout=30),
        "lease": lambda: redis_dlock.DLock(client, "pairs", timeout=30),
        "kept": lambda: redis_dlock.DLock(client, "pairs", timeout=30, auto_renewal=True),
    }


def play(make: Callable[[], Any], pairs: int) -> None:
    """Acquires and releases that many locks."""
    for _ in range(pairs):
        lock = make()
        lock.acquire()
        lock.release()


def main() -> None:
    port, kind, pairs = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    make = locks(redis.Redis(port=port))[kind]
    play(make, pairs // 10)
    if "--profile" in sys.argv:
        profile = cProfile.Profile()
        profile.runcall(play, make, pairs)
        return profile.print_stats("tottime")
    cpu, began = time.process_time(), time.monotonic()
    play(make, pairs)
    print(round((time.process_time() - cpu) * 1e6), round((time.monotonic() - began) * 1e6))


if __name__ == "__main__":
    main()
