"""Requests wait in the queue of the server, in order, however long that takes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import Kit, address, info, soon, waiters

WAITERS = 20
SOCKET_TIMEOUT = 1.0


@pytest.fixture
def holder(client: redis.Redis) -> Iterator[redis_dlock.DLock]:
    """A client that has the lock already."""
    lock = redis_dlock.DLock(client, "job", timeout=60)
    assert lock.acquire()
    yield lock


def all_waited(client: redis.Redis) -> bool:
    """Whether all waiters have waited for longer than three socket timeouts."""
    queue = info(client, "job", "FULL", "COUNT", 0)["queue"]
    return len(queue) == WAITERS and min(waiter["waiting"] for waiter in queue) > 3000 * SOCKET_TIMEOUT


def acquisitions(client: redis.Redis) -> int:
    """How many `DLOCK.ACQUIRE` the server was sent."""
    return int(client.info("commandstats")["cmdstat_dlock.acquire"]["calls"])


def test_threads_are_served_in_order(client: redis.Redis, holder: redis_dlock.DLock) -> None:
    served: list[int] = []
    before = acquisitions(client)
    other = redis.Redis(**address(), socket_timeout=SOCKET_TIMEOUT)

    def wait(number: int) -> None:
        with other.lock("job", lock_class=redis_dlock.DLock):
            served.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(WAITERS)]
    for number, thread in enumerate(threads):
        thread.start()
        soon("it is in line", lambda: waiters(client, "job") == number + 1)
    soon("they wait long", lambda: all_waited(client))
    holder.release()
    for thread in threads:
        thread.join()
    assert served == list(range(WAITERS))
    assert acquisitions(client) == before + 2 * WAITERS, "one that does not wait, and one that does"
    other.close()


async def test_tasks_are_served_in_order(client: redis.Redis, holder: redis_dlock.DLock) -> None:
    served: list[int] = []
    before = acquisitions(client)
    other = redis.asyncio.Redis(**address(), socket_timeout=SOCKET_TIMEOUT)

    async def wait(number: int) -> None:
        async with other.lock("job", lock_class=redis_dlock.asyncio.DLock):
            served.append(number)

    tasks = []
    for number in range(WAITERS):
        tasks.append(asyncio.create_task(wait(number)))
        await asyncio.to_thread(soon, "it is in line", lambda: waiters(client, "job") == number + 1)
    await asyncio.to_thread(soon, "they wait long", lambda: all_waited(client))
    holder.release()
    await asyncio.gather(*tasks)
    assert served == list(range(WAITERS))
    assert acquisitions(client) == before + 2 * WAITERS, "one that does not wait, and one that does"
    await other.aclose()


async def test_a_wait_gets_the_lock_when_a_lease_ends(kit: Kit, client: redis.Redis) -> None:
    first = kit.lock("job", timeout=2)
    assert await first.acquire()
    token = first.token
    second = kit.lock("job", timeout=10, blocking_timeout=10)
    assert await second.acquire()
    assert second.token > token
    assert await first.owned() is False
    await second.release()


async def test_tokens_rise_with_every_grant(kit: Kit) -> None:
    lock = kit.lock("job", timeout=10)
    tokens = []
    for _ in range(3):
        async with lock:
            tokens.append(lock.token)
    assert tokens == sorted(set(tokens))
    with pytest.raises(redis_dlock.LockError):
        lock.token


def acquire_in_slices(kind: type[Kit], got: list[bool]) -> None:
    """In a thread of its own, with an event loop of its own."""
    kit = kind()

    async def acquire() -> bool:
        try:
            return bool(await kit.extra("job", timeout=20, wait_slice=3, blocking_timeout=60).acquire())
        finally:
            await kit.aclose()

    got.append(asyncio.run(acquire()))
    kit.close()


def test_a_wait_in_slices_keeps_its_place(kit: Kit, client: redis.Redis, holder: redis_dlock.DLock) -> None:
    got: list[bool] = []
    threads = [threading.Thread(target=acquire_in_slices, args=(type(kit), got))]
    threads[0].start()
    soon("it is in line", lambda: waiters(client, "job") == 1)
    owner = info(client, "job", "FULL")["queue"][0]["owner"]
    threads.append(threading.Thread(target=lambda: redis_dlock.DLock(client, "job", timeout=20).acquire()))
    threads[1].start()
    soon("another one is behind it", lambda: waiters(client, "job") == 2)
    connections: set[int] = set()

    def moved() -> bool:
        queue: list[dict[str, Any]] = info(client, "job", "FULL")["queue"]
        assert [waiter["owner"] == owner for waiter in queue] == [True, False]
        connections.add(queue[0]["client"])
        return len(connections) > 1

    soon("it waits on another connection", moved)
    holder.release()
    threads[0].join()
    assert got == [True]
    assert info(client, "job", "FULL")["holds"][0]["owner"] == owner
    client.delete("job")
    threads[1].join()
