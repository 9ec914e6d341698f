#!/usr/bin/env python3
"""Measures the time from a release until a waiter has the lock: redis-py's own lock and DLock, in one run.

    wake_up.py --port 6379                                        on the server at this port
    wake_up.py --server redis-server --module libdlock.so         on a server that the program starts

The waiter is a thread with its own client, and waits before the release. Prints a line for each kind of lock, and fails
if DLock's median is over --limit milliseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import redis
import redis.lock

import redis_dlock


@contextlib.contextmanager
def own_server(binary: str, module: str) -> Iterator[int]:
    """Starts a server with the module, and yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        words = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", home, "--save", ""]
        words += ["--loadmodule", module]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as server:
            try:
                while True:
                    if server.poll() is not None:
                        raise RuntimeError(f"the server has ended with {server.returncode}")
                    with contextlib.suppress(redis.ConnectionError):
                        redis.Redis(port=port).ping()
                        break
                yield port
            finally:
                server.kill()


def waits(client: Any, name: str, kind: type) -> bool:
    """Returns whether the waiter is in the queue of the server. redis-py's own lock has no queue."""
    if kind is redis.lock.Lock:
        return True
    info: Any = client.execute_command("DLOCK.INFO", name)
    fields = info if isinstance(info, dict) else dict(zip(info[::2], info[1::2]))
    return bool(fields[b"waiters"])


def wake_ups(address: dict[str, Any], kind: type, rounds: int) -> list[float]:
    """Returns for each round the milliseconds from the release until the waiter has the lock."""
    name = f"wake-up:{kind.__module__}"
    holding, waiting = redis.Redis(**address), redis.Redis(**address)
    figures = []
    for number in range(rounds):
        first = holding.lock(name, timeout=30, lock_class=kind)
        second = waiting.lock(name, timeout=30, lock_class=kind, thread_local=False)
        first.acquire()
        got: list[float] = []
        asked = threading.Event()

        def wait() -> None:
            asked.set()
            second.acquire()
            got.append(time.perf_counter())

        thread = threading.Thread(target=wait)
        thread.start()
        asked.wait()
        # The lock of redis-py looks every 0.1 s. After its first look, each round releases at another moment.
        time.sleep(0.11 + 0.1 * ((number * 0.618) % 1))
        while not waits(holding, name, kind):
            time.sleep(0.001)
        released = time.perf_counter()
        first.release()
        thread.join()
        second.release()
        figures.append((got[0] - released) * 1000)
    return figures


def main() -> int:
    """Reads the arguments, and runs the comparison on the given server or on a new one."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--host", default="127.0.0.1")
    arguments.add_argument("--port", type=int, default=6379)
    arguments.add_argument("--server", help="the program of a server to start instead")
    arguments.add_argument("--module", help="the module that it loads")
    arguments.add_argument("--rounds", type=int, default=40)
    arguments.add_argument("--limit", type=float, default=5.0, help="of DLock's median, in ms")
    given = arguments.parse_args()
    if given.server is None:
        return compare({"host": given.host, "port": given.port}, given.rounds, given.limit)
    with own_server(given.server, given.module) as port:
        return compare({"port": port}, given.rounds, given.limit)


def compare(address: dict[str, Any], rounds: int, limit: float) -> int:
    """Prints the figures, and returns the exit code: 1 if DLock's median is over the limit."""
    medians = {}
    for title, kind in (("redis-py Lock", redis.lock.Lock), ("DLock", redis_dlock.DLock)):
        figures = sorted(wake_ups(address, kind, rounds))
        medians[kind] = statistics.median(figures)
        worst = figures[-1]
        print(f"{title:14} median {medians[kind]:8.3f} ms   slowest {worst:8.3f} ms   of {len(figures)}")
    return 0 if medians[redis_dlock.DLock] <= limit else 1


if __name__ == "__main__":
    sys.exit(main())
