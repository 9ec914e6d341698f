"""Without a timeout a lock is held for as long as its connection lives, and no longer."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
import redis

import redis_dlock
from cutting import CuttingProxy, Delay
from kit import PATIENCE, Kit, certain_again, info, soon
from servers import Server
from test_lost import lost_already

HOLD_AND_SLEEP = """
import sys, threading, redis, redis_dlock
client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))
assert client.lock("job", lock_class=redis_dlock.DLock).acquire()
print("held", flush=True)
threading.Event().wait()
"""


async def test_the_server_renews_a_lock_without_a_timeout(kit: Kit, client: redis.Redis) -> None:
    client.config_set("dlock.default-lease", 6000)
    try:
        lock = kit.lock("job")
        assert await lock.acquire()
        # While a request waits, the server may keep the key for 50 ms longer than the lease.
        assert client.pttl("job") <= 6050
        soon("a part of the lease passes", lambda: client.pttl("job") < 5000)
        soon("the lock is renewed", lambda: client.pttl("job") > 5500)
        assert await lock.owned()
        await lock.release()
    finally:
        client.config_set("dlock.default-lease", 30_000)


def test_a_killed_process_holds_nothing(client: redis.Redis) -> None:
    command = [sys.executable, "-c", HOLD_AND_SLEEP, os.environ["DLOCK_TEST_HOST"], os.environ["DLOCK_TEST_PORT"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        assert info(client, "job")
        process.send_signal(signal.SIGKILL)
        lock = redis_dlock.DLock(client, "job", blocking_timeout=15)
        assert lock.acquire(), "the lock of the killed process ends only with its lease of 30 seconds"
        lock.release()


async def test_sessions_one_after_the_other_do_not_exhaust_a_pool(kit: Kit) -> None:
    own = kit.client(max_connections=2)
    for _ in range(5):
        lock = kit.lock("job", client=own)
        assert await lock.acquire()
        await lock.release()


async def test_the_connection_of_a_held_lock_is_out_of_the_pool(kit: Kit, client: redis.Redis) -> None:
    own = kit.client()
    lock = kit.lock("job", client=own)
    assert await lock.acquire()
    bound = info(client, "job", "FULL")["holds"][0]["session"]
    for _ in range(3):
        assert await own.client_id() != bound
    await lock.release()


@pytest.mark.parametrize(
    ("settings", "bound"),
    [({}, True), ({"timeout": 20}, False), ({"timeout": 20, "session": True}, True), ({"session": False}, False)],
)
async def test_the_settings_decide_whether_a_lock_is_bound_to_its_connection(
    kit: Kit, client: redis.Redis, settings: dict[str, float], bound: bool
) -> None:
    lock = kit.extra("job", **settings)
    assert await lock.acquire()
    assert (info(client, "job", "FULL")["holds"][0]["session"] is not None) == bound
    await lock.release()
    assert not info(client, "job")


async def test_a_lock_object_may_acquire_a_lost_lock_again_and_again(kit: Kit, client: redis.Redis) -> None:
    own = kit.client(max_connections=3)
    lock = kit.lock("job", client=own)
    for _ in range(6):
        assert await lock.acquire(blocking=False)
        client.delete("job")
    with pytest.raises(redis_dlock.LockNotOwnedError):
        await lock.release()


async def test_a_lock_is_bound_to_a_new_connection(kit: Kit, client: redis.Redis) -> None:
    """With a grace, the hold outlives its connection. As after a failover, the client has to bind the hold again."""
    client.config_set("dlock.session-grace", 20_000)
    try:
        for settings in ({"timeout": 600, "session": True}, {}):
            lock = kit.extra("job", **settings)
            assert await lock.acquire()
            token, lost = lock.token, lock.lost
            for _ in range(2):
                bound = session_of(client)
                client.client_kill_filter(_id=str(bound))
                await asyncio.to_thread(soon, "the hold is bound", lambda: session_of(client) not in (None, bound))
            await certain_again(lock)
            assert info(client, "job")["token"] == token == lock.token
            assert not (lost.is_set() if hasattr(lost, "is_set") else lost.done())
            await lock.release()
            assert not info(client, "job")
    finally:
        client.config_set("dlock.session-grace", 0)


async def test_a_lock_is_bound_on_the_next_primary(kit: Kit) -> None:
    with Server() as primary, Server() as replica:
        replica.replicate(primary)
        proxy = CuttingProxy(primary.port)
        lock = kit.extra("job", client=kit.client_of(proxy.address), timeout=12, session=True)
        assert await lock.acquire()
        token = lock.token
        soon("the replica has it", lambda: info(replica.client, "job").get("token") == token)
        primary.freeze()
        replica.client.replicaof("NO", "ONE")
        proxy.lead(replica.port)
        await asyncio.to_thread(soon, "the hold is bound there", lambda: session_of(replica.client) is not None)
        await certain_again(lock)
        await asyncio.to_thread(soon, "a part of the lease passes", lambda: replica.client.pttl("job") < 10_000)
        await asyncio.to_thread(soon, "the new primary renews it", lambda: replica.client.pttl("job") > 11_000)
        assert info(replica.client, "job")["token"] == token
        await lock.release()
        assert not info(replica.client, "job")
        proxy.close()


async def test_a_binding_that_arrives_late_does_not_release_the_lock(kit: Kit, client: redis.Redis) -> None:
    """A command that arrives late moves the hold to the connection that it came on. This connection must stay open."""
    proxy = Delay()
    client.config_set("dlock.session-grace", 60_000)
    try:
        lock = kit.extra("job", client=kit.client_of(proxy.address), timeout=12, session=True)
        assert await lock.acquire()
        token, lost, bound = lock.token, lock.lost, session_of(client)
        proxy.keep("RENEW")
        client.client_kill_filter(_id=str(bound))
        await asyncio.to_thread(soon, "the first binding is kept back", proxy.keeps.is_set)
        await asyncio.to_thread(soon, "the next one arrives", lambda: session_of(client) not in (None, bound))
        bound = session_of(client)
        client.config_set("dlock.session-grace", 0)
        proxy.deliver()
        await asyncio.to_thread(soon, "the first binding arrives", lambda: session_of(client) != bound)
        connections = int(client.info("clients")["connected_clients"])
        await asyncio.sleep(0.3)
        assert info(client, "job").get("token") == token == lock.token and not lost_already(lost)
        await lock.release()
        assert not info(client, "job")
        left = lambda: int(client.info("clients")["connected_clients"]) < connections  # noqa: E731
        await asyncio.to_thread(soon, "the connections of the lock are closed", left)
    finally:
        client.config_set("dlock.session-grace", 0)
        proxy.deliver()
        proxy.close()


async def test_a_lock_promises_nothing_until_it_is_bound_again(kit: Kit, client: redis.Redis) -> None:
    """After the end of the connection, the server may have released the lock, until the command that binds the lock
    again is answered."""
    proxy = Delay()
    client.config_set("dlock.session-grace", 60_000)
    try:
        lock = kit.extra("job", client=kit.client_of(proxy.address), timeout=60, session=True)
        assert await lock.acquire()
        lost = lock.lost
        assert lock.remaining > 0
        proxy.keep("RENEW")
        client.client_kill_filter(_id=str(session_of(client)))
        await asyncio.to_thread(soon, "the binding is kept back", proxy.keeps.is_set)
        assert lock.remaining == 0 and not lost_already(lost)
        with pytest.raises(redis_dlock.LockNotOwnedError):
            lock.token
        proxy.deliver()
        ends = time.monotonic() + PATIENCE
        while lock.remaining == 0 and time.monotonic() < ends:
            await asyncio.sleep(0.01)
        assert lock.remaining > 0 and lock.token and not lost_already(lost)
        await lock.release()
        assert not info(client, "job")
    finally:
        client.config_set("dlock.session-grace", 0)
        proxy.deliver()
        proxy.close()


async def test_an_acquisition_that_arrives_late_does_not_release_the_lock(kit: Kit, client: redis.Redis) -> None:
    """The second request of an acquisition was granted. The first request arrives later, and moves the hold to the
    connection that it came on. This connection must stay open."""
    proxy = Delay()
    try:
        proxy.keep("ACQUIRE")
        lock = kit.extra("job", client=kit.client_of(proxy.address), timeout=60, session=True, wait_slice=1)
        assert await lock.acquire()
        assert proxy.keeps.is_set()
        token, lost, bound = lock.token, lock.lost, session_of(client)
        proxy.deliver()
        await asyncio.to_thread(soon, "the first request arrives", lambda: session_of(client) != bound)
        await asyncio.sleep(0.3)
        assert info(client, "job").get("token") == token == lock.token and not lost_already(lost)
        await lock.release()
        assert not info(client, "job")
    finally:
        proxy.deliver()
        proxy.close()


def session_of(client: redis.Redis) -> int | None:
    """Returns the id of the connection that the hold is bound to."""
    holds = info(client, "job", "FULL").get("holds")
    return holds[0]["session"] if holds else None


def test_locks_are_released_while_their_connections_are_watched(client: redis.Redis) -> None:
    """The release closes the connection while the watch of the lock asks the server, at another moment each time."""
    for number in range(500):
        lock = redis_dlock.DLock(client, "job", timeout=3, session=True)
        assert lock.acquire()
        hold = lock._hold
        assert hold is not None
        hold.watch._beats.hurry()
        hold.watch._wake()
        time.sleep(number % 10 / 40000)  # 0 to 225 µs
        lock.release()
    assert not info(client, "job")
