"""Waits and sessions leave the client's pool to the rest of the program."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import Kit, address, info, refused, soon, waiters
from redis_dlock.redis_py import Crowd

# More tasks than the pool has connections: 100, the default of redis-py 8.
MANY = 110


async def test_a_hundred_and_ten_tasks_wait_and_the_client_goes_on(client: redis.Redis) -> None:
    own = redis.asyncio.Redis(**address(), max_connections=100)
    holder = redis_dlock.asyncio.DLock(own, "job", timeout=60)
    assert await holder.acquire()
    locks = [redis_dlock.asyncio.DLock(own, "job", timeout=60) for _ in range(MANY)]

    async def take(lock: redis_dlock.asyncio.DLock) -> None:
        assert await lock.acquire(blocking_timeout=30)
        await lock.release()

    tasks = [asyncio.create_task(take(lock)) for lock in locks]
    while waiters(client, "job") < MANY // 2:
        # The client answers while the requests arrive.
        assert await own.get("other") is None
    await asyncio.to_thread(soon, "all tasks wait", lambda: waiters(client, "job") == MANY)
    assert await own.get("other") is None
    await holder.release()
    await asyncio.gather(*tasks)
    assert not info(client, "job")
    await own.aclose()


def test_threads_wait_outside_of_the_pool(client: redis.Redis) -> None:
    with redis.Redis(**address(), max_connections=2) as own:
        holder = redis_dlock.DLock(own, "job", timeout=60)
        assert holder.acquire()
        threads = []
        for number in range(10):
            threads.append(threading.Thread(target=lambda: _take(own)))
            threads[-1].start()
            soon("the thread waits", lambda: waiters(client, "job") == number + 1)
        assert own.get("other") is None
        holder.release()
        for thread in threads:
            thread.join()
    assert not info(client, "job")


def _take(client: redis.Redis) -> None:
    lock = redis_dlock.DLock(client, "job", timeout=60)
    assert lock.acquire(blocking_timeout=30)
    lock.release()


async def test_sessions_are_held_outside_of_the_pool(kit: Kit, client: redis.Redis) -> None:
    own = kit.client(max_connections=1)
    locks = [kit.lock(f"job:{number}", client=own) for number in range(5)]
    for lock in locks:
        assert await lock.acquire()
    assert await own.get("other") is None
    for lock in locks:
        await lock.release()
    assert client.dbsize() == 0


async def test_a_full_pool_hinders_no_release_and_no_acquisition(kit: Kit, client: redis.Redis) -> None:
    own = kit.client(max_connections=1)
    lock, session = kit.lock("job", client=own, timeout=60), kit.lock("other", client=own)
    assert await lock.acquire() and await session.acquire()
    pool = own.connection_pool
    taken = pool.get_connection()
    taken = await taken if asyncio.iscoroutine(taken) else taken
    await session.release()
    await lock.release()
    assert client.dbsize() == 0
    assert await lock.acquire(blocking_timeout=5)
    await lock.release()
    released: Any = pool.release(taken)
    if asyncio.iscoroutine(released):
        await released


async def test_the_connections_of_waits_and_sessions_are_closed(kit: Kit, client: redis.Redis) -> None:
    own = kit.client()
    before = len(client.client_list())
    holder = kit.lock("job", client=own)
    assert await holder.acquire()
    assert await refused(lambda: kit.lock("job", client=own).acquire(blocking_timeout=0.05))
    await holder.release()
    # A connection may stay in the pool.
    soon("the connections are closed", lambda: len(client.client_list()) <= before + 1)


async def test_connections_outside_of_the_pool_have_the_settings_of_the_client(kit: Kit, client: redis.Redis) -> None:
    client.acl_setuser("waiter", enabled=True, passwords=["+secret"], commands=["+@all"], keys=["*"])
    try:
        own = kit.client(username="waiter", password="secret", client_name="mine", db=3)
        lock = kit.lock("job", client=own)
        assert await lock.acquire()
        with redis.Redis(**address(), db=3) as other:
            session = info(other, "job", "FULL")["holds"][0]["session"]
        held = next(each for each in client.client_list() if int(each["id"]) == session)
        assert (held["user"], held["name"], held["db"]) == ("waiter", "mine", "3")
        await lock.release()
    finally:
        client.acl_deluser("waiter")


def test_acquisitions_of_many_threads_are_counted_exactly() -> None:
    # Acquisitions may use half of the pool, one connection. So there is no room while a thread counts as using it.
    pool = redis.ConnectionPool(max_connections=2)
    ready = threading.Barrier(8)

    def use() -> None:
        ready.wait(20)
        for _ in range(5000):
            with Crowd(pool):
                assert not Crowd.room(pool)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # Python changes threads as often as it can.
    try:
        with ThreadPoolExecutor(8) as threads:
            for done in [threads.submit(use) for _ in range(8)]:
                done.result()
    finally:
        sys.setswitchinterval(before)
    assert Crowd.room(pool), "an acquisition that has ended is still counted"
