"""Without a timeout a lock is held for as long as its connection lives, and no longer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import redis

import redis_dlock
from kit import Kit, info, soon

HOLD_AND_SLEEP = """
import sys, threading, redis, redis_dlock
client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))
assert client.lock("job", lock_class=redis_dlock.DLock).acquire()
print("held", flush=True)
threading.Event().wait()
"""


async def test_the_server_renews_it(kit: Kit, client: redis.Redis) -> None:
    client.config_set("dlock.default-lease", 1500)
    try:
        lock = kit.lock("job")
        assert await lock.acquire()
        other = kit.lock("job", blocking_timeout=2)
        assert await other.acquire() is False
        assert await lock.owned()
        assert client.pttl("job") <= 1550
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
        assert lock.acquire(), "long before a lease of 30 seconds ends"
        lock.release()


async def test_its_connection_returns_to_the_pool_with_the_release(kit: Kit) -> None:
    own = kit.client(max_connections=2)
    for _ in range(5):
        lock = kit.lock("job", client=own)
        assert await lock.acquire()
        await lock.release()


async def test_the_connection_is_out_of_the_pool_while_it_is_held(kit: Kit, client: redis.Redis) -> None:
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
async def test_what_is_bound_to_its_connection(
    kit: Kit, client: redis.Redis, settings: dict[str, float], bound: bool
) -> None:
    lock = kit.extra("job", **settings)
    assert await lock.acquire()
    assert (info(client, "job", "FULL")["holds"][0]["session"] is not None) == bound
    await lock.release()
    assert not info(client, "job")


async def test_a_second_acquisition_of_a_lost_lock_lets_go_of_the_first(kit: Kit, client: redis.Redis) -> None:
    own = kit.client(max_connections=3)
    lock = kit.lock("job", client=own)
    for _ in range(6):
        assert await lock.acquire(blocking=False)
        client.delete("job")
    with pytest.raises(redis_dlock.LockNotOwnedError):
        await lock.release()
