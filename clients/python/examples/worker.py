"""A task queue with a lock for each customer, as in a Celery worker or a Django management command.

    python worker.py [HOST [PORT]]

Three worker processes take jobs from a list. Two jobs of one customer never run at the same time, jobs of different
customers do. Each job writes with its fencing token, so a worker that was stopped for longer than its lease cannot
overwrite what a later one wrote.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from redis_dlock import DLock

WORKERS, CUSTOMERS, JOBS = 3, 4, 24


def one_at_a_time(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a task run under a lock, whose name is filled in from the arguments of the task."""

    def decorate(task: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(task)
        def run(client: redis.Redis, **arguments: Any) -> None:
            # The lease is short, so that a dead worker holds up nobody, and is renewed while the task runs.
            with DLock(client, name.format(**arguments), timeout=10, auto_renewal=True) as lock:
                task(fence=lock.token, **arguments)

        return run

    return decorate


@one_at_a_time("customer:{customer}")
def charge(*, customer: int, amount: int, database: str, fence: int) -> None:
    """Adds to the customer's balance, unless a later holder of the lock has written already."""
    with sqlite3.connect(database, timeout=30) as db:
        (balance,) = db.execute("SELECT balance FROM customer WHERE id = ?", (customer,)).fetchone()
    time.sleep(0.01)  # Without the lock, another job would read the same balance here.
    with sqlite3.connect(database, timeout=30) as db:
        changed = db.execute(
            "UPDATE customer SET balance = ?, fence = ? WHERE id = ? AND fence <= ?",
            (balance + amount, fence, customer, fence),
        )
        if changed.rowcount == 0:
            raise RuntimeError("the lock was lost")


def work(host: str, port: int) -> None:
    """Runs jobs until the list is empty."""
    with redis.Redis(host, port) as client:
        while (job := client.lpop("example:jobs")) is not None:
            assert isinstance(job, bytes)
            charge(client, **json.loads(job))


def main(host: str = "localhost", port: int = 6379) -> None:
    """Queues the jobs, runs the workers, and prints the balances."""
    with redis.Redis(host, port) as client, tempfile.TemporaryDirectory() as directory:
        database = str(Path(directory) / "customers")
        with sqlite3.connect(database) as db:
            db.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER)")
            db.executemany("INSERT INTO customer VALUES (?, 0, 0)", [(number,) for number in range(CUSTOMERS)])
        client.delete("example:jobs")
        for number in range(JOBS):
            job = {"customer": number % CUSTOMERS, "amount": 1, "database": database}
            client.rpush("example:jobs", json.dumps(job))
        workers = [multiprocessing.Process(target=work, args=(host, port)) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        with sqlite3.connect(database) as db:
            print("balances:", [balance for (balance,) in db.execute("SELECT balance FROM customer ORDER BY id")])


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "localhost", int(sys.argv[2]) if sys.argv[2:] else 6379)
