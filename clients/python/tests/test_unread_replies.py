"""A connection with an unread reply is not used again: the next command would take that reply for its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import Kit, address, soon
from servers import Server


async def reads_its_own(own: Any, client: redis.Redis) -> None:
    """Fails unless the one connection of the pool gets the replies to its own commands."""
    client.set("user:1", "alice")
    client.set("user:2", "bob")
    assert [await own.get("user:1"), await own.get("user:2")] == [b"alice", b"bob"]


async def test_a_wrong_type_before_the_reply_to_wait_leaves_no_reply_unread(kit: Kit, client: redis.Redis) -> None:
    own = kit.client(max_connections=1)
    client.rpush("job", "a list")
    assert not await kit.extra("job", client=own, timeout=10, replicas=1).acquire(blocking=False)
    await reads_its_own(own, client)


@pytest.fixture(scope="module")
def refusing() -> Iterator[Server]:
    """A server that refuses writes: it lacks a replica, or memory if a test sets that."""
    with Server("--min-replicas-to-write", "1") as server:
        yield server


@pytest.mark.parametrize("code", ["NOREPLICAS", "OOM", "NOPERM"])
async def test_a_refusal_before_the_reply_to_wait_leaves_no_reply_unread(kit: Kit, refusing: Server, code: str) -> None:
    settings = {
        "NOREPLICAS": {"min-replicas-to-write": 1, "maxmemory": 0},
        "OOM": {"min-replicas-to-write": 0, "maxmemory": 1},
        "NOPERM": {"min-replicas-to-write": 0, "maxmemory": 0},
    }
    for name, value in settings[code].items():
        refusing.client.config_set(name, value)
    keys = ["user:*" if code == "NOPERM" else "*"]
    refusing.client.acl_setuser("own", enabled=True, nopass=True, reset=True, commands=["+@all"], keys=keys)
    own = kit.client_of({"host": "127.0.0.1", "port": refusing.port}, max_connections=1, username="own", password="x")
    with pytest.raises(redis.ResponseError):
        await kit.extra("job", client=own, timeout=10, replicas=1).acquire(blocking=False)
    for name in ("min-replicas-to-write", "maxmemory"):
        refusing.client.config_set(name, 0)
    await reads_its_own(own, refusing.client)


async def test_too_few_replicas_leave_no_reply_unread(kit: Kit, client: redis.Redis) -> None:
    own = kit.client(max_connections=1)
    with pytest.raises(redis_dlock.ReplicasError):
        await kit.extra("job", client=own, timeout=10, replicas=1, replicas_timeout=0.01).acquire(blocking=False)
    await reads_its_own(own, client)


async def test_a_cancellation_at_any_point_leaves_no_reply_unread(client: redis.Redis) -> None:
    """Cancels an acquisition, which sends two commands, and a release, after each number of turns of the event loop."""
    cancelled = 0
    async with pool_of_one() as own:
        for turns in range(60):
            lock = redis_dlock.asyncio.DLock(own, "job", timeout=60, replicas=1, replicas_timeout=0.005)
            await cancel_after(turns, lock.acquire(blocking=False))
            # The cleanup of the acquisition may have the connection for a moment.
            await asyncio.to_thread(soon, "the connection is back", lambda: not own.connection_pool._in_use_connections)
            await reads_its_own(own, client)
            held = redis_dlock.asyncio.DLock(own, f"held:{turns}", timeout=60)
            assert await held.acquire()
            cancelled += await cancel_after(turns, held.release())
            await reads_its_own(own, client)
    assert cancelled > 2, "some releases were cancelled before they ended"


async def cancel_after(turns: int, work: Any) -> bool:
    """Cancels work after `turns` turns of the event loop. Returns whether it was cancelled."""
    task: asyncio.Task[Any] = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError, redis_dlock.LockError):
        await task
    return task.cancelled()


@asynccontextmanager
async def pool_of_one() -> AsyncIterator[Any]:
    """Yields a client with one connection."""
    async with redis.asyncio.Redis(**address(), max_connections=1) as own:
        yield own


class Interrupted(BaseException):
    """An interrupt, as `KeyboardInterrupt` is one."""


@pytest.mark.parametrize("call", ["read_response", "can_read", "send_packed_command"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_interrupt_at_any_call_leaves_no_reply_unread(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """Interrupts an acquisition before and after the first, second and third call of a method of redis-py."""
    client.set("user:1", "alice")
    client.set("user:2", "bob")
    for after in (False, True):
        with redis.Redis(**address(), max_connections=1) as own:
            own.ping()
            lock = redis_dlock.DLock(own, "job", timeout=60, replicas=1, replicas_timeout=0.01)
            with monkeypatch.context() as patch:
                kind = type(own.connection_pool._available_connections[0])
                original, left = getattr(kind, call), [number]

                def interrupted(self: Any, *words: Any, **settings: Any) -> Any:
                    left[0] -= 1
                    if left[0] == 0 and not after:
                        raise Interrupted
                    result = original(self, *words, **settings)
                    if left[0] == 0:
                        raise Interrupted
                    return result

                patch.setattr(kind, call, interrupted)
                with suppress(Interrupted, redis_dlock.LockError):
                    lock.acquire(blocking=False)
            soon("the connection is back", lambda: len(own.connection_pool._available_connections) == 1)
            assert [own.get("user:1"), own.get("user:2")] == [b"alice", b"bob"]
            client.delete("job")
