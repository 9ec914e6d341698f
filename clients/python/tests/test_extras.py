"""Reentrant locks, readers and writers, deadlocks, and locks of an owner that the caller names."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import redis

import redis_dlock
import redis_dlock.asyncio
from kit import Kit, address, info, soon, waiters


async def test_a_reentrant_lock_is_released_as_often_as_it_was_acquired(kit: Kit, client: redis.Redis) -> None:
    lock = kit.extra("job", timeout=20, reentrant=True)
    async with lock:
        token = lock.token
        async with lock:
            assert lock.token == token
            assert info(client, "job")["count"] == 2
        assert info(client, "job")["count"] == 1
    assert not info(client, "job")


async def test_a_reentrant_session_stays_until_the_last_release(kit: Kit, client: redis.Redis) -> None:
    lock = kit.extra("job", reentrant=True)
    async with lock:
        async with lock:
            pass
        assert info(client, "job", "FULL")["holds"][0]["session"] is not None
    assert not info(client, "job")


async def test_a_lock_that_was_lost_is_not_entered_again(kit: Kit, client: redis.Redis) -> None:
    for settings in ({}, {"timeout": 20}):
        lock = kit.extra("job", reentrant=True, **settings)
        assert await lock.acquire()
        client.delete("job")
        with pytest.raises(redis_dlock.LockNotOwnedError):
            await lock.acquire()
        assert not info(client, "job")
        assert lock.local.token is None


def test_a_reentrant_lock_belongs_to_a_thread(client: redis.Redis) -> None:
    lock = redis_dlock.DLock(client, "job", timeout=20, reentrant=True)
    got: list[bool] = []
    with lock:
        thread = threading.Thread(target=lambda: got.append(lock.acquire(blocking=False)))
        thread.start()
        thread.join()
    assert got == [False]


async def test_a_reentrant_lock_belongs_to_a_task(client: redis.Redis) -> None:
    other = redis.asyncio.Redis(**address())
    lock = redis_dlock.asyncio.DLock(other, "job", timeout=20, reentrant=True)
    async with lock:
        assert not await asyncio.create_task(lock.acquire(blocking=False))
        assert await lock.acquire()
        await lock.release()
    await other.aclose()


async def test_readers_share_and_a_writer_is_alone(kit: Kit, client: redis.Redis) -> None:
    def side(mode: str) -> Any:
        return kit.extra("doc", mode=mode, timeout=20, blocking=False)

    one, two, writer = side("read"), side("read"), side("write")
    assert await one.acquire()
    assert await two.acquire()
    assert info(client, "doc")["holders"] == 2
    assert await writer.acquire() is False
    await one.release()
    await two.release()
    assert await writer.acquire()
    assert await one.acquire() is False
    await writer.release()


async def test_the_only_reader_may_become_the_writer_and_go_back(kit: Kit, client: redis.Redis) -> None:
    reader, writer = (kit.extra("doc", mode=mode, timeout=20) for mode in ("read", "write"))
    async with reader:
        assert await writer.acquire(token=reader.owner)
        assert info(client, "doc")["mode"] == "both"
        assert await writer.extend(20) and await reader.extend(20)
        await writer.release()
        assert info(client, "doc")["mode"] == "shared"
        assert await reader.owned()
    assert not info(client, "doc")


def test_a_circle_of_owners_is_refused(client: redis.Redis) -> None:
    left, right = (redis_dlock.DLock(client, name, timeout=60, thread_local=False) for name in ("left", "right"))
    assert left.acquire(token="alice") and right.acquire(token="bob")
    other = redis_dlock.DLock(client, "right", timeout=60)
    thread = threading.Thread(target=lambda: other.acquire(token="alice"))
    thread.start()
    soon("alice waits for bob", lambda: waiters(client, "right") == 1)
    with pytest.raises(redis_dlock.DeadlockError) as failure:
        redis_dlock.DLock(client, "left", timeout=60).acquire(token="bob")
    assert failure.value.lock_name == "left"
    assert isinstance(failure.value, redis_dlock.LockError)
    right.release()
    thread.join()


async def test_a_lock_object_with_the_owner_of_another_releases_its_hold(kit: Kit, client: redis.Redis) -> None:
    taken = kit.lock("job", timeout=20)
    assert await taken.acquire(token="me")
    lock = kit.lock("job", timeout=20)
    lock.local.token = b"me"
    assert await lock.owned()
    assert await lock.extend(20)
    await lock.release()
    assert not info(client, "job")
    assert await taken.owned() is False


def test_a_mode_that_does_not_exist_is_refused(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="exclusive, read or write"):
        redis_dlock.DLock(client, "job", mode="shared")  # type: ignore[arg-type]
