"""A program that uses the Python package as its README says (../README.md): python adopter.py ROLE NAME"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
import redis.cluster
import redis.sentinel
from redis_dlock import DLock, DSemaphore, Election, Term, current_lock, locked, once

ROLE, NAME = sys.argv[1:3]
LEDGER = Path(os.environ["ADOPTER_LEDGER"])
REPLICAS = int(os.environ["ADOPTER_REPLICAS"])

stopping = threading.Event()
numbers = itertools.count(1)
writing = threading.Lock()
resigning: list[Callable[[], None]] = []


def cluster(ports: list[int]) -> Any:
    """Returns the client of a cluster. Tries again while no node answers, as a supervisor of the program would."""
    nodes = [redis.cluster.ClusterNode("127.0.0.1", port) for port in ports]
    while True:
        try:
            return redis.cluster.RedisCluster(startup_nodes=nodes)
        except redis.RedisError:
            time.sleep(0.2)


def connect() -> Any:
    """Returns the client that all threads share."""
    ports = [int(port) for port in os.environ["ADOPTER_PORTS"].split(",")]
    if os.environ["ADOPTER_BY"] == "sentinel":
        return redis.sentinel.Sentinel([("127.0.0.1", port) for port in ports], socket_timeout=2).master_for("locks")
    if os.environ["ADOPTER_BY"] == "cluster":
        return cluster(ports)
    return redis.Redis(port=ports[0])


client = connect()


def tell(event: str, number: int, at: list[int] | None = None, **fields: Any) -> None:
    """Writes a line for the run."""
    with writing:
        print(json.dumps({"event": event, "id": number, "at": at or [micros(), micros()], **fields}), flush=True)


def micros() -> int:
    """Returns the time of the machine's monotonic clock."""
    return time.monotonic_ns() // 1000


class Abandoned(Exception):
    """The work has stopped, because its lock is lost."""


class Visit:
    """An acquisition, whose events are written for the run that judges them (../README.md)."""

    def __init__(self, lock: str, lease: int, wait: int, **fields: Any) -> None:
        self.number = next(numbers)
        tell("asking", self.number, lock=lock, lease=lease, wait=wait, **fields)

    def is_lost(self, lock: Any) -> bool:
        """Returns whether the lock has told of its loss."""
        return (lock.ended if isinstance(lock, Term) else lock.lost).is_set()

    def holds(self, event: str, lock: Any, **fields: Any) -> bool:
        """Tells what the lock says of itself, and returns whether it is held."""
        before = micros()
        remaining, lost = lock.remaining, self.is_lost(lock)
        tell(event, self.number, [before, micros()], remaining=remaining * 1000, lost=lost, **fields)
        return remaining > 0 and not lost

    def works(self, lock: Any, seconds: float) -> None:
        """Works for a while, with a look at the lock every 100 ms."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            time.sleep(min(0.1, max(0.0, ends - time.monotonic())))
            if not self.holds("still", lock):
                raise Abandoned("the lock is lost")

    def error(self, error: Exception) -> None:
        """Tells of an error, most often one of the package."""
        kind = type(error)
        name = "abandoned" if kind is Abandoned else f"{kind.__module__}.{kind.__qualname__}"
        tell("error", self.number, type=name, message=str(error))


def pay() -> None:
    """A web handler: pays an order, which other programs may be asked to pay at the same time."""
    stopping.wait(random.uniform(0.05, 0.25))
    order = int(time.time() * 1000) // 500 - random.randrange(3)
    visit = Visit(f"pay:{order}", 3000, 1000)
    lock = DLock(client, f"pay:{order}", timeout=3, blocking_timeout=1, replicas=REPLICAS)
    try:
        if not lock.acquire():
            return tell("refused", visit.number)
        try:
            visit.holds("inside", lock, token=lock.token)
            charge(visit, lock, LEDGER / str(order))
        finally:
            visit.holds("leaving", lock)
            lock.release()
        tell("left", visit.number)
    except Exception as error:
        visit.error(error)


def charge(visit: Visit, lock: DLock, order: Path) -> None:
    """Pays once. The file plays a database that refuses tokens lower than one it has seen: ../rules.py leaves such rows
    out."""
    with open(order, "a+", buffering=1) as rows:
        rows.write(f"begin {lock.token} {NAME}\n")
        rows.seek(0)
        if "paid " in rows.read():
            return
        time.sleep(random.uniform(0.02, 0.15))  # The provider is called.
        if visit.holds("still", lock):
            rows.write(f"paid {lock.token} {NAME}\n")


def serve() -> None:
    """A worker of a pool: jobs of one customer run one at a time."""
    customer = random.randrange(4)
    visit = Visit(f"customer:{customer}", 2000, 2000)

    @locked(client, f"customer:{customer}", timeout=2, blocking_timeout=2, replicas=REPLICAS)
    def job() -> None:
        lock = current_lock()
        visit.holds("inside", lock, token=lock.token)
        try:
            visit.works(lock, sum(random.uniform(0.05, 0.4) for _ in range(random.randint(1, 6))))
        finally:
            visit.holds("leaving", lock)

    try:
        job()
        tell("left", visit.number)
    except Exception as error:
        visit.error(error)


def stand() -> None:
    """A candidate, which leads until its term ends or it resigns."""
    visit = Visit("leader", 2000, -1)

    def lead(term: Term) -> None:
        resigns = time.monotonic() + random.uniform(1, 6)
        leads = visit.holds("inside", term, token=term.token)
        while leads and not stopping.is_set() and time.monotonic() < resigns:
            term.ended.wait(0.1)
            leads = stopping.is_set() or visit.holds("still", term)
        if leads:
            visit.holds("leaving", term)
            election.stop()

    def stopped(term: Term) -> None:
        nonlocal visit
        tell("left", visit.number)
        visit = Visit("leader", 2000, -1)

    election = Election(client, "leader", lead, stopped, timeout=2, replicas=REPLICAS)
    resigning.append(election.stop)
    try:
        election.run()
        tell("canceled", visit.number)
        stopping.wait(0.1)
    except Exception as error:
        visit.error(error)


def compute() -> None:
    """A job for one of three GPUs, whose number nobody else has."""
    gpus = DSemaphore(client, "gpu", 3, timeout=2, auto_renewal=True, slots=True, replicas=REPLICAS)
    visit = Visit("gpu", 2000, 2000, limit=3)
    permit = gpus.permit()
    try:
        if not permit.acquire(blocking_timeout=2):
            return tell("refused", visit.number)
        try:
            visit.holds("inside", permit, token=permit.token, slot=permit.slot)
            visit.works(permit, random.uniform(0.1, 1.5))
        finally:
            visit.holds("leaving", permit)
            permit.release()
        tell("left", visit.number)
    except Exception as error:
        visit.error(error)


def report() -> None:
    """A job that each machine's scheduler starts, once a period."""
    period = 4.0
    stopping.wait(period - time.time() % period + random.uniform(0, 0.03))
    if stopping.is_set():
        return
    # The event's `lease` is how long the lock stays: nine tenths of the period.
    visit = Visit("report", 3600, 0)

    @once(client, "report", period=period, timeout=2, replicas=REPLICAS)
    def run() -> bool:
        lock = current_lock()
        visit.holds("inside", lock, token=lock.token)
        try:
            visit.works(lock, random.uniform(0.1, 0.5))
        finally:
            visit.holds("leaving", lock)
        return True

    try:
        ran = run()
        tell(**{"event": "left", "kept": True} if ran else {"event": "refused"}, number=visit.number)
    except Exception as error:
        visit.error(error)


ROLES: dict[str, tuple[Callable[[], None], int]] = {
    "web": (pay, 2), "pool": (serve, 2), "election": (stand, 1), "slots": (compute, 1), "cron": (report, 1),
}


def main() -> None:
    """Works until the input closes."""
    task, workers = ROLES[ROLE]

    def work() -> None:
        while not stopping.is_set():
            task()
            stopping.wait(0.05)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stopping.set()
    time.sleep(0.2)  # A leader resigns by itself.
    for resign in resigning:
        resign()
    for thread in threads:
        thread.join()
    client.close()


if __name__ == "__main__":
    main()
