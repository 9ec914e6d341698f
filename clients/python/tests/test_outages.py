"""A server that is away, or has no module, or too few replicas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
import redis
from redis.exceptions import ConnectionError

import redis_dlock
from kit import Kit, Took, info, soon
from machine import free_port
from redis_dlock import redis_py
from servers import Server


@pytest.fixture(scope="module")
def primary() -> Iterator[Server]:
    """A server with one replica."""
    with Server() as primary, Server() as replica:
        replica.replicate(primary)
        yield primary


async def test_a_wait_with_a_limit_ends_although_nobody_answers(kit: Kit) -> None:
    nobody = kit.client_of({"host": "127.0.0.1", "port": free_port()})
    took = Took()
    with pytest.raises(ConnectionError):
        await kit.lock("job", client=nobody, timeout=20).acquire(blocking_timeout=0.5)
    assert took.is_within(2)


def test_the_last_answer_is_the_reason_though_the_limit_cuts_the_last_attempt() -> None:
    silence = redis.TimeoutError("Timeout reading")
    outage = redis_py.Outage()
    outage.pause(1.0, redis_py.Unreachable(ConnectionError("it is a replica")))
    outage.pause(0.5, silence)
    with pytest.raises(ConnectionError, match="it is a replica"):
        outage.pause(0.0, silence)
    with pytest.raises(redis.TimeoutError):
        redis_py.Outage().pause(0.0, silence)


async def test_a_wait_goes_on_when_the_server_comes_back(kit: Kit) -> None:
    port = free_port()
    own = kit.client_of({"host": "127.0.0.1", "port": port})
    lock = kit.lock("job", client=own, timeout=20)
    starting = asyncio.get_running_loop().run_in_executor(None, _start_late, port)
    try:
        assert await lock.acquire(blocking_timeout=30)
        await lock.release()
    finally:
        (await starting).close()


def _start_late(port: int) -> Server:
    time.sleep(1.5)
    return Server(port=port)


async def test_a_server_without_the_module_is_an_error_that_says_so(kit: Kit) -> None:
    with Server(module=False) as server:
        own = kit.client_of({"host": "127.0.0.1", "port": server.port})
        for lock in (kit.lock("job", client=own), kit.lock("job", client=own, timeout=20)):
            for call in (lock.acquire, lock.locked):
                with pytest.raises(redis_dlock.LockError, match="is the dlock module loaded"):
                    await call()


async def test_a_grant_that_enough_replicas_have_counts(kit: Kit, primary: Server) -> None:
    where = {"host": "127.0.0.1", "port": primary.port}
    for settings in ({"timeout": 20}, {}):
        lock = kit.extra("job", client=kit.client_of(where), replicas=1, replicas_timeout=20, **settings)
        assert await lock.acquire()
        holder = kit.extra("job", client=kit.client_of(where), replicas=1, replicas_timeout=20, **settings)
        waiting = asyncio.create_task(_acquire_elsewhere(kit, holder))
        await asyncio.to_thread(soon, "the second lock waits", lambda: info(primary.client, "job")["waiters"] == 1)
        await lock.release()
        assert await waiting
        assert not info(primary.client, "job")


async def _acquire_elsewhere(kit: Kit, lock: object) -> bool:
    """Acquires the lock and releases it. A lock without asyncio does so in a thread."""
    inner = getattr(lock, "_inner", None)
    if inner is None:
        got = await lock.acquire()  # type: ignore[attr-defined]
        await lock.release()  # type: ignore[attr-defined]
        return bool(got)

    def acquire() -> bool:
        got = inner.acquire()
        inner.release()
        return bool(got)

    return await asyncio.to_thread(acquire)


async def test_a_grant_that_too_few_replicas_have_is_released(kit: Kit, primary: Server) -> None:
    own = kit.client_of({"host": "127.0.0.1", "port": primary.port})
    for settings in ({"timeout": 20}, {}, {"timeout": 20, "session": True}):
        lock = kit.extra("job", client=own, replicas=2, replicas_timeout=1, **settings)
        with pytest.raises(redis_dlock.ReplicasError, match="1 of 2 replicas"):
            await lock.acquire()
        await asyncio.to_thread(soon, "the grant is released", lambda: not info(primary.client, "job"))
        with pytest.raises(redis_dlock.LockError):
            await lock.release()


async def test_a_grant_and_its_acknowledgement_cost_one_command_each(kit: Kit, primary: Server) -> None:
    own = kit.client_of({"host": "127.0.0.1", "port": primary.port})
    lock = kit.extra("job", client=own, timeout=20, replicas=1, replicas_timeout=20)
    primary.client.config_resetstat()
    assert await lock.acquire()
    calls = {name: stats["calls"] for name, stats in primary.client.info("commandstats").items()}
    assert (calls["cmdstat_dlock.acquire"], calls["cmdstat_wait"]) == (1, 1)
    assert "cmdstat_dlock.renew" not in calls
    assert await lock.extend(20)
    await lock.release()


async def test_a_renewal_that_too_few_replicas_have_does_not_count(kit: Kit) -> None:
    with Server() as primary, Server() as replica:
        replica.replicate(primary)
        own = kit.client_of({"host": "127.0.0.1", "port": primary.port})
        lock = kit.extra("job", client=own, timeout=5, auto_renewal=True, replicas=1, replicas_timeout=1.5)
        assert await lock.acquire()
        lost, token = lock.lost, lock.token
        replica.client.replicaof("NO", "ONE")
        with pytest.raises(redis_dlock.ReplicasError):
            await lock.reacquire()

        def is_lost() -> bool:
            return bool(lost.is_set() if hasattr(lost, "is_set") else lost.done())

        await asyncio.to_thread(soon, "the lock must be assumed lost", is_lost)
        # The primary has renewed the lock, and still has it.
        assert info(primary.client, "job")["token"] == token
        await lock.release()


def test_settings_of_replicas_are_checked(client: redis.Redis) -> None:
    for replicas, timeout in ((-1, 1.0), (1, 0.0)):
        with pytest.raises(ValueError, match="replicas"):
            redis_dlock.DLock(client, "job", replicas=replicas, replicas_timeout=timeout)
