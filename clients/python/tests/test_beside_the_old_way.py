"""redis-py's own lock and DLock exclude each other under the same name, so that a program can change over step by step.

redis-py's own lock is a string that expires. DLock takes a string at its name for a lock that is held."""

from __future__ import annotations

import threading
import time

import redis
import redis.lock

import redis_dlock
from kit import Kit, address, info, refused, soon
from servers import Server

# How often each of the six threads locks.
ROUNDS = 6


async def test_a_string_counts_as_a_held_lock(kit: Kit, client: redis.Redis) -> None:
    assert client.set("job", "token", nx=True)
    lock = kit.lock("job", timeout=20, sleep=0.02)
    assert await lock.locked() is True
    assert await lock.owned() is False
    assert await lock.acquire(blocking=False) is False
    assert await refused(lambda: lock.acquire(blocking_timeout=0.05))
    client.pexpire("job", 100)
    assert await lock.acquire(), "the lock is refused although the string has expired"
    assert client.set("job", "token", nx=True, px=300) is None
    await lock.release()


async def test_acquire_returns_false_at_its_limit_if_the_server_hangs_after_a_first_refusal(kit: Kit) -> None:
    with Server() as server:
        server.client.set("job", "token")

        def freeze() -> None:
            soon("the lock is refused once", lambda: "cmdstat_dlock.acquire" in server.client.info("commandstats"))
            server.freeze()

        freezing = threading.Thread(target=freeze)
        freezing.start()
        own = kit.client_of({"host": "127.0.0.1", "port": server.port})
        assert await kit.lock("job", client=own, timeout=20, sleep=0.02).acquire(blocking_timeout=3) is False
        freezing.join()
        server.thaw()


def test_there_are_never_two_holders(client: redis.Redis) -> None:
    inside: list[str] = []
    holders: list[int] = []

    def work(kind: type, number: int) -> None:
        with redis.Redis(**address()) as own:
            for _ in range(ROUNDS):
                with own.lock("job", timeout=20, sleep=0.002, lock_class=kind):
                    inside.append(f"{kind} {number}")
                    holders.append(len(inside))
                    time.sleep(0.002)
                    inside.remove(f"{kind} {number}")
                # The pause lets the polling threads in: the lock is free only while nobody waits in the queue.
                time.sleep(0.01)

    kinds: list[type] = [redis.lock.Lock, redis_dlock.DLock]
    threads = [threading.Thread(target=work, args=(kind, number)) for number in range(3) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(holders) == 6 * ROUNDS
    assert max(holders) == 1


def test_a_waiter_whose_lock_a_string_overwrites_gets_the_lock_once_the_string_has_expired(client: redis.Redis) -> None:
    holder = redis_dlock.DLock(client, "job", timeout=60)
    holder.acquire()
    got: list[bool] = []
    lock = redis_dlock.DLock(client, "job", timeout=20, sleep=0.01)
    thread = threading.Thread(target=lambda: got.append(lock.acquire()))
    thread.start()
    soon("the lock object waits", lambda: info(client, "job").get("waiters") == 1)
    client.set("job", "token", px=200)
    thread.join()
    assert got == [True]
