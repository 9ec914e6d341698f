"""The worker of `make rivals` for Python: redis-py's own lock, and ours. run.py says what it is asked."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import redis

import redis_dlock

LEASE, NAME, GAP, WORK = 10.0, "rivals", 0.04, 0.005


def lock(kind: str, port: int) -> Any:
    """Returns a lock of a client of its own."""
    client = redis.Redis(port=port)
    if kind == "redis-py":
        return client.lock(NAME, timeout=LEASE)
    if kind == "dlock-python":
        return redis_dlock.DLock(client, NAME, timeout=LEASE, auto_renewal=True)
    return redis_dlock.DLock(client, NAME, timeout=None)


def wait_in_turn(one: Any, seen: list[int]) -> None:
    """Notes when the lock was asked for, granted and given back."""
    seen.append(time.monotonic_ns())
    one.acquire()
    seen.append(time.monotonic_ns())
    time.sleep(WORK)
    seen.append(time.monotonic_ns())
    one.release()


def play(first: Any, locks: list[Any]) -> dict[str, Any]:
    """Lets the clients join the queue while the first one holds; each has its turn then."""
    first.acquire()
    waiters: list[list[int]] = [[] for _ in locks]
    threads = [threading.Thread(target=wait_in_turn, args=pair) for pair in zip(locks, waiters)]
    for thread in threads:
        thread.start()
        time.sleep(GAP)
    released = time.monotonic_ns()
    first.release()
    for thread in threads:
        thread.join()
    return {"released": released, "waiters": waiters}


def main() -> None:
    mode, port, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if mode == "line":
        locks = [lock(kind, port) for _ in range(int(sys.argv[4]) + 1)]
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps([play(locks[0], locks[1:]) for _ in range(int(line))]), flush=True)
        return
    one = lock(kind, port)
    print("asks", flush=True)
    one.acquire()
    print("has it", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
