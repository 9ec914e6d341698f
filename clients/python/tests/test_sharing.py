"""A lock object, used by several threads or tasks: each acquisition but a re-entry has a hold of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import address, info

ROUNDS = 10
SETTINGS: list[dict[str, Any]] = [
    {"timeout": 30}, {"timeout": 30, "auto_renewal": True}, {"timeout": None}, {"timeout": 30, "session": True},
    {"timeout": 30, "mode": "read"}, {"timeout": 30, "mode": "write"}, {"timeout": 30, "reentrant": True},
]
NAMES = ["lease", "renewed", "session", "both", "readers", "writers", "reentrant"]


@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
async def test_tasks_use_one_lock_object_in_turn(client: redis.Redis, settings: dict[str, Any]) -> None:
    inside = 0
    tokens: list[int] = []
    async with redis.asyncio.Redis(**address()) as own:
        lock = redis_dlock.asyncio.DLock(own, "job", **settings)

        async def work() -> None:
            nonlocal inside
            for _ in range(ROUNDS):
                async with lock:
                    inside += 1
                    assert inside == 1 or settings.get("mode") == "read"
                    tokens.append(lock.token)
                    await asyncio.sleep(0.003)
                    assert lock.token == tokens[-1] or settings.get("mode") == "read"
                    inside -= 1

        await asyncio.wait_for(asyncio.gather(work(), work(), work()), 60)
    assert len(set(tokens)) == 3 * ROUNDS
    assert not info(client, "job"), "nothing stays behind"


@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
@pytest.mark.parametrize("thread_local", [False, True], ids=["shared", "each"])
def test_threads_use_one_lock_object_in_turn(
    client: redis.Redis, settings: dict[str, Any], thread_local: bool
) -> None:
    lock = redis_dlock.DLock(client, "job", thread_local=thread_local, **settings)
    alone = threading.Lock()
    tokens: list[int] = []

    def work() -> None:
        for _ in range(ROUNDS):
            with lock:
                if settings.get("mode") != "read":
                    assert alone.acquire(blocking=False)
                    alone.release()
                tokens.append(lock.token)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work) for _ in range(3)]:
            done.result(60)
    assert len(set(tokens)) == 3 * ROUNDS
    assert not info(client, "job"), "nothing stays behind"


async def test_the_release_of_a_lost_hold_leaves_the_next_hold_alone(client: redis.Redis) -> None:
    """The first task's hold is gone. Its release must not release the hold of the second task."""
    async with redis.asyncio.Redis(**address()) as own:
        lock = redis_dlock.asyncio.DLock(own, "job", timeout=30)
        entered, ended = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            assert await lock.acquire()
            client.delete("job")
            entered.set()
            await ended.wait()
            with pytest.raises(redis_dlock.LockNotOwnedError):
                await lock.release()

        async def second() -> None:
            await entered.wait()
            async with lock:
                token = lock.token
                ended.set()
                await task
                assert info(client, "job")["token"] == token
                assert await lock.owned()

        task = asyncio.create_task(first())
        await asyncio.wait_for(second(), 20)


@pytest.mark.parametrize("thread_local", [False, True], ids=["shared", "each"])
def test_a_reentrant_lock_lets_no_other_thread_in(client: redis.Redis, thread_local: bool) -> None:
    lock = redis_dlock.DLock(client, "job", timeout=30, reentrant=True, thread_local=thread_local)
    assert lock.acquire() and lock.acquire(blocking=False)
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(lock.acquire, blocking=False).result()
        assert not pool.submit(lock.acquire, blocking_timeout=0.1).result()
    lock.release()
    lock.release()
    assert not info(client, "job")


def test_a_lock_is_released_by_another_thread(client: redis.Redis) -> None:
    lock = redis_dlock.DLock(client, "job", timeout=30, thread_local=False)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lock.acquire).result()
    assert lock.owned()
    lock.release()
    assert not info(client, "job")


async def test_a_lock_is_released_by_another_task(client: redis.Redis) -> None:
    async with redis.asyncio.Redis(**address()) as own:
        lock = redis_dlock.asyncio.DLock(own, "job", timeout=30)
        assert await asyncio.create_task(lock.acquire())
        await asyncio.create_task(lock.release())
    assert not info(client, "job")


def test_nested_readers_of_one_object(client: redis.Redis) -> None:
    lock = redis_dlock.DLock(client, "job", timeout=30, mode="read")
    with lock:
        outer = lock.token
        with lock:
            assert lock.token > outer
            assert info(client, "job")["holders"] == 2
        assert lock.token == outer and lock.owned()
    assert not info(client, "job")


async def test_holds_that_nobody_releases_do_not_gather(client: redis.Redis) -> None:
    async with redis.asyncio.Redis(**address()) as own:
        lock = redis_dlock.asyncio.DLock(own, "job", timeout=0.05)
        for _ in range(20):
            assert await asyncio.create_task(lock.acquire())
        assert len(lock.local._entries) <= 2
