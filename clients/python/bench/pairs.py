"""The CPU time of a program for a pair, acquire and release, beside redis-py's own lock on the same client.

    python clients/python/bench/pairs.py --port 6379 [--pairs 2000] [--profile KIND]
"""

from __future__ import annotations

import argparse
import cProfile
import statistics
import time
from collections.abc import Callable
from typing import Any

import redis

import redis_dlock

ROUNDS = 9
PLAIN = "redis-py's lock"


def kinds(client: redis.Redis) -> dict[str, Callable[[], Any]]:
    """Returns what makes a lock of each kind."""
    return {
        PLAIN: lambda: client.lock("bench:plain", timeout=30),
        "DLock, a lease": lambda: redis_dlock.DLock(client, "bench:lease", timeout=30),
        "DLock, renewed": lambda: redis_dlock.DLock(client, "bench:renewed", timeout=30, auto_renewal=True),
    }


def cost(make: Callable[[], Any], pairs: int) -> float:
    """Returns the microseconds of CPU time for a pair."""
    began = time.process_time()
    for _ in range(pairs):
        lock = make()
        lock.acquire()
        lock.release()
    return (time.process_time() - began) / pairs * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=6379)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--profile", metavar="KIND", help="print where the time of this kind goes")
    given = parser.parse_args()
    client = redis.Redis(host=given.host, port=given.port)
    makes = kinds(client)
    if given.profile:
        profile = cProfile.Profile()
        profile.runcall(cost, makes[given.profile], given.pairs)
        profile.print_stats("tottime")
        return
    rounds = [{kind: cost(make, given.pairs) for kind, make in makes.items()} for _ in range(ROUNDS)]
    for kind in makes:
        took = statistics.median(each[kind] for each in rounds)
        ratio = statistics.median(each[kind] / each[PLAIN] for each in rounds)
        print(f"python | {kind} | {took:.0f} µs | {ratio:.2f}")


if __name__ == "__main__":
    main()
