"""While both are in use, redis-py's own lock and DLock of one name exclude each other."""

from __future__ import annotations

import threading
import time

import redis
import redis.lock

import redis_dlock
from kit import Kit, address, info, refused, soon
from servers import Server

ROUNDS = 6


async def test_a_string_is_a_lock_that_is_held(kit: Kit, client: redis.Redis) -> None:
    assert client.set("job", "token", nx=True)
    lock = kit.lock("job", timeout=20, sleep=0.02)
    assert await lock.locked() is True
    assert await lock.owned() is False
    assert await lock.acquire(blocking=False) is False
    assert await refused(lambda: lock.acquire(blocking_timeout=0.05))
    client.pexpire("job", 100)
    assert await lock.acquire(), "a string that has expired still refuses"
    assert client.set("job", "token", nx=True, px=300) is None
    await lock.release()


async def test_a_string_refuses_also_if_the_server_hangs_before_the_limit(kit: Kit) -> None:
    with Server() as server:
        server.client.set("job", "token")

        def freeze() -> None:
            soon("it has been refused", lambda: "cmdstat_dlock.acquire" in server.client.info("commandstats"))
            server.freeze()

        freezing = threading.Thread(target=freeze)
        freezing.start()
        own = kit.client_of({"host": "127.0.0.1", "port": server.port})
        assert await kit.lock("job", client=own, timeout=20, sleep=0.02).acquire(blocking_timeout=3) is False
        freezing.join()
        server.thaw()


def test_there_are_never_two_holders(client: redis.Redis) -> None:
    inside: list[str] = []
    worst: list[int] = []

    def work(kind: type, number: int) -> None:
        with redis.Redis(**address()) as own:
            for _ in range(ROUNDS):
                with own.lock("job", timeout=20, sleep=0.002, lock_class=kind):
                    inside.append(f"{kind} {number}")
                    worst.append(len(inside))
                    time.sleep(0.002)
                    inside.remove(f"{kind} {number}")
                # A polling client gets in only when nobody waits in the queue.
                time.sleep(0.01)

    kinds: list[type] = [redis.lock.Lock, redis_dlock.DLock]
    threads = [threading.Thread(target=work, args=(kind, number)) for number in range(3) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(worst) == 6 * ROUNDS
    assert max(worst) == 1


def test_waiters_of_an_overwritten_lock_poll_until_the_string_expires(client: redis.Redis) -> None:
    holder = redis_dlock.DLock(client, "job", timeout=60)
    holder.acquire()
    got: list[bool] = []
    lock = redis_dlock.DLock(client, "job", timeout=20, sleep=0.01)
    thread = threading.Thread(target=lambda: got.append(lock.acquire()))
    thread.start()
    soon("it waits", lambda: info(client, "job").get("waiters") == 1)
    client.set("job", "token", px=200)
    thread.join()
    assert got == [True]
