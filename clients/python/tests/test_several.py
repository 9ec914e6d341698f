"""Semaphores, and several locks at once."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import AsyncioKit, Kit, Plain, address, info, refused, soon, waiters


def semaphore(kit: Kit, limit: int, **settings: Any) -> Any:
    """Returns a semaphore `pool` of the kit's API: threads or asyncio."""
    if isinstance(kit, AsyncioKit):
        return redis_dlock.asyncio.DSemaphore(kit.client(), "pool", limit, **settings)
    return Plain(redis_dlock.DSemaphore(kit.client()._inner, "pool", limit, **settings))


async def acquire_all(kit: Kit, names: list[str], **settings: Any) -> Any:
    """Acquires several locks by the kit's API, threads or asyncio. Returns the guard."""
    if isinstance(kit, AsyncioKit):
        return await redis_dlock.asyncio.acquire_all(kit.client(), names, **settings)
    return Plain(redis_dlock.acquire_all(kit.client()._inner, names, **settings))


async def test_a_semaphore_admits_as_many_as_its_limit(kit: Kit, client: redis.Redis) -> None:
    pool = semaphore(kit, 2, timeout=20)
    assert await pool.acquire() and await pool.acquire(blocking=False)
    assert info(client, "pool")["count"] == 2
    assert await pool.acquire(blocking=False) is False
    assert await refused(lambda: pool.acquire(timeout=0.05))
    await pool.release()
    assert await pool.acquire(blocking=False)
    await pool.release(2)
    assert not info(client, "pool")
    with pytest.raises(ValueError, match="more than was acquired"):
        await pool.release()


async def test_permits_are_taken_together_and_returned_one_by_one(kit: Kit, client: redis.Redis) -> None:
    for settings in ({}, {"timeout": 20}, {"timeout": 20, "auto_renewal": True}):
        pool = semaphore(kit, 4, **settings)
        assert await pool.acquire(permits=3)
        assert await pool.acquire()
        assert info(client, "pool")["count"] == 4
        assert await pool.acquire(blocking=False) is False
        for left in (3, 2, 1):
            await pool.release()
            assert info(client, "pool")["count"] == left
        with pytest.raises(ValueError, match="more than was acquired"):
            await pool.release(2)
        await pool.release()
        assert not info(client, "pool")
        assert await pool.acquire(permits=2) and await pool.acquire(permits=2)
        await pool.release(3)
        assert info(client, "pool")["count"] == 1
        await pool.release()
        assert not info(client, "pool")
    pool = semaphore(kit, 3)
    for permits in (0, 4):
        with pytest.raises(ValueError, match="1 to limit"):
            await pool.acquire(permits=permits)


def test_each_thread_takes_and_gives_back_a_permit_of_its_own(client: redis.Redis) -> None:
    pool = redis_dlock.DSemaphore(client, "pool", 2, timeout=20)
    entered = threading.Barrier(2)

    def work(tokens: list[int]) -> None:
        with pool as permit:
            entered.wait(20)
            tokens.append(permit.token)

    tokens: list[int] = []
    threads = [threading.Thread(target=work, args=(tokens,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(tokens)) == 2
    assert not info(client, "pool")


async def test_a_wait_for_a_permit_is_in_the_server(client: redis.Redis) -> None:
    own = redis.asyncio.Redis(**address())
    pool = redis_dlock.asyncio.DSemaphore(own, "pool", 1, timeout=20)
    async with pool as permit:
        waiting = asyncio.create_task(pool.acquire())
        await asyncio.to_thread(soon, "the request waits", lambda: waiters(client, "pool") == 1)
        token = permit.token
    assert await waiting
    assert info(client, "pool")["token"] > token
    await pool.release()
    await own.aclose()


async def test_all_of_several_locks_or_none(kit: Kit, client: redis.Redis) -> None:
    for settings in ({"timeout": 20.0}, {}):
        guard = await acquire_all(kit, ["a", "b"], **settings)
        async with guard:
            assert info(client, "a")["token"] == info(client, "b")["token"] == guard.token
            assert await guard.owned() and await guard.locked()
            with pytest.raises(redis_dlock.LockError, match="Unable to acquire"):
                await acquire_all(kit, ["b", "c"], timeout=20, blocking=False)
            assert not info(client, "c")
        assert client.dbsize() == 0


async def test_several_locks_are_renewed_and_lost_together(kit: Kit, client: redis.Redis) -> None:
    guard = await acquire_all(kit, ["a", "b"], timeout=3, auto_renewal=True)
    lost = guard.lost
    await asyncio.sleep(3.2)
    assert await guard.owned()
    client.delete("b")

    def is_lost() -> bool:
        return bool(lost.is_set() if hasattr(lost, "is_set") else lost.done())

    await asyncio.to_thread(soon, "the guard is lost", is_lost)
    with pytest.raises(redis_dlock.LockNotOwnedError):
        await guard.release()
    assert client.dbsize() == 0


async def test_a_key_that_is_no_lock_is_waited_for(kit: Kit, client: redis.Redis) -> None:
    client.set("b", "of another program", px=200)
    guard = await acquire_all(kit, ["a", "b"], timeout=20, sleep=0.01, blocking_timeout=20)
    await guard.release()
    assert client.dbsize() == 0


def test_wrong_arguments(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="limit"):
        redis_dlock.DSemaphore(client, "pool", 0)
    with pytest.raises(ValueError, match="names"):
        redis_dlock.acquire_all(client, [])
    for unset in ("", b""):
        with pytest.raises(ValueError, match="name is empty"):
            redis_dlock.DSemaphore(client, unset, 1)
        with pytest.raises(ValueError, match="name is empty"):
            redis_dlock.DLock(client, unset)
        with pytest.raises(ValueError, match="name is empty"):
            redis_dlock.acquire_all(client, ["a", unset])


async def test_each_permit_has_a_slot_of_its_own(kit: Kit, client: redis.Redis) -> None:
    pool = semaphore(kit, 3, timeout=20, slots=True)
    permits = [pool.permit() if isinstance(kit, AsyncioKit) else Plain(pool._inner.permit()) for _ in range(3)]
    for number, permit in enumerate(permits):
        assert await permit.acquire() and permit.slot == number
    assert [hold["slot"] for hold in info(client, "pool", "FULL")["holds"]] == [0, 1, 2]
    await permits[1].release()
    async with pool as again:
        assert again.slot == 1
    client.delete("pool")
    with pytest.raises(redis_dlock.LockNotOwnedError):
        await permits[0].release()
    with pytest.raises(redis_dlock.LockError, match="not held"):
        permits[0].slot
    plain = semaphore(kit, 3, timeout=20)
    async with plain as permit:
        with pytest.raises(redis_dlock.LockError, match="slots=True"):
            permit.slot


def test_a_request_for_a_slot_and_two_permits_is_refused(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="slots=True"):
        redis_dlock.DSemaphore(client, "pool", 3, slots=True).acquire(permits=2)


def test_no_two_threads_have_the_same_slot(client: redis.Redis) -> None:
    pool = redis_dlock.DSemaphore(client, "pool", 4, timeout=20, slots=True)
    having: dict[int, int] = {}
    collisions: list[int] = []

    def work(me: int) -> None:
        for _ in range(20):
            with pool as permit:
                if having.setdefault(permit.slot, me) != me:
                    collisions.append(permit.slot)
                time.sleep(0.001)
                having.pop(permit.slot)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not collisions and not info(client, "pool")
