"""The program of adopter.py for asyncio (../README.md): python adopter_asyncio.py ROLE NAME"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import adopter
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
from adopter import LEDGER, NAME, REPLICAS, ROLE, Abandoned, tell
from redis_dlock.asyncio import DLock, DSemaphore, Election, Term, current_lock, locked, once

stopping = asyncio.Event()


def connect() -> Any:
    """Returns the client that all tasks share."""
    ports = [int(port) for port in os.environ["ADOPTER_PORTS"].split(",")]
    if os.environ["ADOPTER_BY"] == "sentinel":
        sentinels = [("127.0.0.1", port) for port in ports]
        return redis.asyncio.sentinel.Sentinel(sentinels, socket_timeout=2).master_for("locks")
    if os.environ["ADOPTER_BY"] == "cluster":
        nodes = [redis.asyncio.cluster.ClusterNode("127.0.0.1", port) for port in ports]
        return redis.asyncio.cluster.RedisCluster(startup_nodes=nodes)
    return redis.asyncio.Redis(port=ports[0])


client = connect()


class Visit(adopter.Visit):
    """An acquisition, whose events are written for the run that judges them (../README.md)."""

    def is_lost(self, lock: Any) -> bool:
        """Returns whether the lock has told of its loss. A term has no such event: it cancels the work."""
        return lock.remaining == 0 if isinstance(lock, Term) else lock.lost.done()


async def pause(seconds: float) -> None:
    """Sleeps, unless the program is to stop."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)


async def works(visit: Visit, lock: DLock, seconds: float) -> None:
    """Works for a while, with a look at the lock every 100 ms."""
    ends = time.monotonic() + seconds
    try:
        while time.monotonic() < ends:
            await asyncio.sleep(min(0.1, max(0.0, ends - time.monotonic())))
            if not visit.holds("still", lock):
                raise Abandoned("the lock is lost")
    finally:
        visit.holds("leaving", lock)


async def pay() -> None:
    """A web handler: pays an order, which other programs may be asked to pay at the same time."""
    await pause(random.uniform(0.05, 0.25))
    order = int(time.time() * 1000) // 500 - random.randrange(3)
    visit = Visit(f"pay:{order}", 3000, 1000)
    try:
        async with DLock(client, f"pay:{order}", timeout=3, blocking_timeout=1, replicas=REPLICAS) as lock:
            visit.holds("inside", lock, token=lock.token)
            try:
                await charge(visit, lock, order)
            finally:
                visit.holds("leaving", lock)
        tell("left", visit.number)
    except Exception as error:
        visit.error(error)


async def charge(visit: Visit, lock: DLock, order: int) -> None:
    """Pays once. The file plays a database that refuses tokens lower than one it has seen: ../rules.py leaves such rows
    out."""
    with open(LEDGER / str(order), "a+", buffering=1) as rows:
        rows.write(f"begin {lock.token} {NAME}\n")
        rows.seek(0)
        if "paid " in rows.read():
            return
        await asyncio.sleep(random.uniform(0.02, 0.15))  # The provider is called.
        if visit.holds("still", lock):
            rows.write(f"paid {lock.token} {NAME}\n")


async def serve() -> None:
    """A worker of a pool: jobs of one customer run one at a time."""
    customer = random.randrange(4)
    visit = Visit(f"customer:{customer}", 2000, 2000)

    @locked(client, f"customer:{customer}", timeout=2, blocking_timeout=2, replicas=REPLICAS)
    async def job() -> None:
        lock = current_lock()
        visit.holds("inside", lock, token=lock.token)
        await works(visit, lock, sum(random.uniform(0.05, 0.4) for _ in range(random.randint(1, 6))))

    try:
        await job()
        tell("left", visit.number)
    except Exception as error:
        visit.error(error)


async def stand() -> None:
    """A candidate, which leads until it resigns or its term ends: that cancels its work."""
    visit = Visit("leader", 2000, -1)
    resigning = asyncio.Event()

    async def lead(term: Term) -> None:
        resigns = time.monotonic() + random.uniform(1, 6)
        visit.holds("inside", term, token=term.token)
        try:
            while election.is_leader and not stopping.is_set() and time.monotonic() < resigns:
                await asyncio.sleep(0.1)
                visit.holds("still", term)
            resigning.set()
        finally:
            visit.holds("leaving", term)

    def stopped(term: Term) -> None:
        nonlocal visit
        tell("left", visit.number)
        visit = Visit("leader", 2000, -1)

    election = Election(client, "leader", lead, stopped, timeout=2, replicas=REPLICAS)
    running = asyncio.ensure_future(election.run())
    ends = [asyncio.ensure_future(each.wait()) for each in (resigning, stopping)]
    await asyncio.wait({running, *ends}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0.2 if stopping.is_set() else 0)  # At a stop, a leader has time to resign by itself.
    for each in (running, *ends):
        each.cancel()
    try:
        await running
    except asyncio.CancelledError:
        tell("canceled", visit.number)
    except Exception as error:
        visit.error(error)
    await pause(0.1)


async def compute() -> None:
    """A job for one of three GPUs, whose number nobody else has."""
    gpus = DSemaphore(client, "gpu", 3, timeout=2, auto_renewal=True, blocking_timeout=2, slots=True, replicas=REPLICAS)
    visit = Visit("gpu", 2000, 2000, limit=3)
    try:
        async with gpus as permit:
            visit.holds("inside", permit, token=permit.token, slot=permit.slot)
            await works(visit, permit, random.uniform(0.1, 1.5))
        tell("left", visit.number)
    except Exception as error:
        visit.error(error)


async def report() -> None:
    """A job that each machine's scheduler starts, once a period."""
    period = 4.0
    await pause(period - time.time() % period + random.uniform(0, 0.03))
    if stopping.is_set():
        return
    # The event's `lease` is how long the lock stays: nine tenths of the period.
    visit = Visit("report", 3600, 0)

    @once(client, "report", period=period, timeout=2, replicas=REPLICAS)
    async def run() -> bool:
        lock = current_lock()
        visit.holds("inside", lock, token=lock.token)
        await works(visit, lock, random.uniform(0.1, 0.5))
        return True

    try:
        ran = await run()
        tell(**{"event": "left", "kept": True} if ran else {"event": "refused"}, number=visit.number)
    except Exception as error:
        visit.error(error)


ROLES: dict[str, tuple[Callable[[], Awaitable[None]], int]] = {
    "web": (pay, 2), "pool": (serve, 2), "election": (stand, 1), "slots": (compute, 1), "cron": (report, 1),
}


async def main() -> None:
    """Works until the input closes."""
    task, workers = ROLES[ROLE]

    async def work() -> None:
        while not stopping.is_set():
            await task()
            await pause(0.05)

    working = [asyncio.create_task(work()) for _ in range(workers)]
    await asyncio.to_thread(sys.stdin.read)
    stopping.set()
    await asyncio.gather(*working)
    await client.aclose()


if __name__ == "__main__":
    asyncio.run(main())
