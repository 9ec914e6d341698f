"""A single thread, or task, and a single connection renew all locks of a client that have `auto_renewal`."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from typing import Any

import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import address, command, soon
from servers import Server

MANY = 60


def threads() -> int:
    """Returns how many threads the package has in this process."""
    return sum(each.name == "redis_dlock" for each in threading.enumerate())


def connections(client: redis.Redis) -> int:
    """Returns how many connections the server has."""
    return int(client.info("clients")["connected_clients"])


def taken(client: redis.Redis, **settings: Any) -> list[redis_dlock.DLock]:
    """Acquires many locks."""
    locks = [redis_dlock.DLock(client, f"job:{number}", **settings) for number in range(MANY)]
    for lock in locks:
        assert lock.acquire()
    return locks


def test_many_locks_are_renewed_by_one_thread(client: redis.Redis) -> None:
    with redis.Redis(**address()) as own:
        own.ping()
        soon("the threads of other tests end", lambda: threads() <= 1)
        before = threads(), connections(client)
        locks = taken(own, timeout=4.0, auto_renewal=True)
        # Longer than a lease of 4 s.
        time.sleep(6)
        assert threads() - before[0] <= 1
        assert connections(client) - before[1] <= 1
        tokens = {lock.token for lock in locks}
        assert len(tokens) == MANY and all(lock.remaining > 0 and not lock.lost.is_set() for lock in locks)
        client.delete("job:7")
        assert locks[7].lost.wait(5)
        assert not any(lock.lost.is_set() for lock in locks if lock is not locks[7])
        for lock in locks:
            if lock is not locks[7]:
                lock.release()
        assert not client.keys("job:*")
        calls = renewals(client)
        time.sleep(2)
        assert renewals(client) == calls, "locks are renewed after their release"


def renewals(client: redis.Redis) -> int:
    """Returns how often a lock was renewed."""
    return int(client.info("commandstats").get("cmdstat_dlock.renew", {"calls": 0})["calls"])


def test_an_acquisition_and_its_release_start_no_thread_and_no_connection(client: redis.Redis) -> None:
    """The first acquisition may start both. The 50 after it start none."""
    lock = redis_dlock.DLock(client, "job", timeout=30, auto_renewal=True)
    with lock:
        pass
    before = threads(), int(client.info("stats")["total_connections_received"])
    for _ in range(50):
        with lock:
            assert lock.token
    assert threads() <= before[0]
    assert int(client.info("stats")["total_connections_received"]) == before[1]


def test_locks_whose_objects_are_collected_are_not_renewed(client: redis.Redis) -> None:
    locks = taken(client, timeout=1.0, auto_renewal=True)
    del locks
    gc.collect()
    soon("the leases of the collected locks end", lambda: not client.keys("job:*"))


def test_all_locks_are_lost_in_time_when_the_server_hangs() -> None:
    with Server() as server, redis.Redis(port=server.port) as own:
        told: list[object] = []
        locks = taken(own, timeout=2.0, auto_renewal=True, on_lost=told.append)
        ends = max(time.monotonic() + lock.remaining for lock in locks)
        server.freeze()
        for lock in locks:
            assert lock.lost.wait(10)
            assert lock.remaining == 0
        assert time.monotonic() <= ends + 1.0
        soon("the callbacks are called", lambda: len(told) == MANY)
        server.thaw()


def test_locks_outlive_an_outage_that_is_shorter_than_the_lease() -> None:
    with Server() as server, redis.Redis(port=server.port) as own:
        locks = taken(own, timeout=4.0, auto_renewal=True)
        time.sleep(1.0)
        server.freeze()
        time.sleep(1.5)
        server.thaw()
        time.sleep(4.0)
        assert not any(lock.lost.is_set() for lock in locks)
        for lock in locks:
            lock.release()


def test_a_lock_whose_renewal_is_refused_costs_the_others_nothing(client: redis.Redis) -> None:
    locks = taken(client, timeout=4.0, auto_renewal=True)
    # The key has another type now, so the server refuses to renew the lock.
    command(client, "SET", "job:3", "x")
    assert locks[3].lost.wait(8)
    # Longer than a lease: the other locks were renewed after the refusal.
    time.sleep(4.5)
    assert not any(lock.lost.is_set() for lock in locks if lock is not locks[3])


def test_a_child_renews_its_own_locks(client: redis.Redis) -> None:
    lock = redis_dlock.DLock(client, "job", timeout=4.0, auto_renewal=True)
    assert lock.acquire()
    child = os.fork()
    if child == 0:
        with redis.Redis(**address()) as own, redis_dlock.DLock(own, "child", timeout=4.0, auto_renewal=True) as its:
            time.sleep(6)
            os._exit(0 if its.remaining > 0 and not its.lost.is_set() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lock.token
    lock.release()


async def test_many_locks_are_renewed_by_one_task(client: redis.Redis) -> None:
    async with redis.asyncio.Redis(**address()) as own:
        await own.ping()
        before, tasks = connections(client), len(asyncio.all_tasks())
        locks = [
            redis_dlock.asyncio.DLock(own, f"job:{number}", timeout=4.0, auto_renewal=True) for number in range(MANY)
        ]
        for lock in locks:
            assert await lock.acquire()
        await asyncio.sleep(6)
        # Beside the task that renews, a few more may be under way for a moment. A task for each lock would be 60 more.
        assert len(asyncio.all_tasks()) - tasks <= 4
        assert connections(client) - before <= 1
        assert all(lock.remaining > 0 and not lock.lost.done() for lock in locks)
        lost = locks[7].lost
        client.delete("job:7")
        assert isinstance(await asyncio.wait_for(lost, 5), redis_dlock.LockNotOwnedError)
        assert not any(lock.lost.done() for lock in locks if lock is not locks[7])
        for lock in locks:
            if lock is not locks[7]:
                await lock.release()
        assert not client.keys("job:*")
        await asyncio.to_thread(soon, "the connection of the renewals ends", lambda: connections(client) <= before)


async def test_all_locks_are_lost_in_time_when_the_server_hangs_in_asyncio() -> None:
    with Server() as server:
        async with redis.asyncio.Redis(port=server.port) as own:
            told: list[object] = []
            locks = [
                redis_dlock.asyncio.DLock(own, f"job:{number}", timeout=2.0, auto_renewal=True, on_lost=told.append)
                for number in range(MANY)
            ]
            for lock in locks:
                assert await lock.acquire()
            losses = [lock.lost for lock in locks]
            ends = max(time.monotonic() + lock.remaining for lock in locks)
            server.freeze()
            await asyncio.wait_for(asyncio.gather(*losses), 20)
            assert time.monotonic() <= ends + 1.0
            assert all(lock.remaining == 0 for lock in locks)
            await asyncio.sleep(0.1)
            assert len(told) == MANY
            server.thaw()
