"""The holder is told when the lock is lost. Automatic renewal keeps the lock, and ends with it."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from cutting import CuttingProxy
from kit import Kit, Took, address, info, soon
from servers import Server


async def is_lost(lost: Any, within: float = 20.0) -> bool:
    """Waits for the event of threads or the future of asyncio. Returns whether the loss came within these seconds."""
    if isinstance(lost, threading.Event):
        return lost.wait(within)
    done, _ = await asyncio.wait([lost], timeout=within)
    return bool(done)


def lost_already(lost: Any) -> bool:
    """Returns whether the event is set, or the future is done."""
    return bool(lost.is_set() if isinstance(lost, threading.Event) else lost.done())


async def test_auto_renewal_keeps_the_lock_until_the_release(kit: Kit, client: redis.Redis) -> None:
    lock = kit.extra("job", timeout=3, auto_renewal=True)
    assert await lock.acquire()
    lost, token = lock.lost, lock.token
    assert not await is_lost(lost, 4), "the lock is lost although it is renewed"
    assert info(client, "job")["token"] == token
    await lock.release()
    assert not info(client, "job")
    calls = _renewals(client)
    assert not await is_lost(lost, 1.2)
    assert _renewals(client) == calls, "the lock is renewed after its release"


def _renewals(client: redis.Redis) -> int:
    return int(client.info("commandstats").get("cmdstat_dlock.renew", {"calls": 0})["calls"])


async def test_auto_renewal_ends_with_the_lock_object(kit: Kit, client: redis.Redis) -> None:
    lock = kit.extra("job", timeout=2, auto_renewal=True)
    assert await lock.acquire()
    del lock
    gc.collect()
    await asyncio.to_thread(soon, "the lease ends", lambda: not info(client, "job"))


def test_auto_renewal_ends_with_the_thread_that_holds(client: redis.Redis) -> None:
    lock = redis_dlock.DLock(client, "job", timeout=2, auto_renewal=True)
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    gc.collect()
    soon("the lease ends", lambda: not info(client, "job"))


async def test_a_deleted_lock_is_lost(kit: Kit, client: redis.Redis) -> None:
    told: list[redis_dlock.LockNotOwnedError] = []
    for settings in ({"timeout": 3, "auto_renewal": True}, {"timeout": 3}, {"session": True, "timeout": 3}):
        lock = kit.extra("job", on_lost=told.append, **settings)
        assert await lock.acquire()
        lost = lock.lost
        client.delete("job")
        assert await is_lost(lost)
        await asyncio.to_thread(soon, "the callback is called", lambda: len(told) == 1)
        assert told.pop().lock_name == "job"
        with pytest.raises(redis_dlock.LockNotOwnedError):
            await lock.release()


async def test_a_session_is_lost_as_soon_as_its_connection_ends(kit: Kit, client: redis.Redis) -> None:
    lock = kit.lock("job")
    assert await lock.acquire()
    lost = lock.lost
    took = Took()
    client.client_kill_filter(_id=str(info(client, "job", "FULL")["holds"][0]["session"]))
    assert await is_lost(lost)
    assert took.is_within(5), "the loss comes with the end of the lease"


async def test_the_release_of_a_lock_that_is_bound_to_its_connection_is_no_loss(kit: Kit, client: redis.Redis) -> None:
    lock = kit.lock("job")
    for _ in range(3):
        assert await lock.acquire()
        lost = lock.lost
        await lock.release()
        assert not lost_already(lost)
        assert not info(client, "job")


async def test_a_lease_that_nobody_renews_is_lost_with_its_end(kit: Kit, client: redis.Redis) -> None:
    lock = kit.lock("job", timeout=1.5)
    took = Took()
    assert await lock.acquire()
    assert await is_lost(lock.lost)
    assert took.seconds() > 1 and took.is_within(5)


async def test_extending_moves_the_loss(kit: Kit, client: redis.Redis) -> None:
    lock = kit.lock("job", timeout=2)
    assert await lock.acquire()
    lost = lock.lost
    assert await lock.extend(60)
    assert not await is_lost(lost, 2.5)
    await lock.release()


async def test_without_a_server_a_lock_is_lost_one_lease_after_its_renewal(kit: Kit, client: redis.Redis) -> None:
    proxy = CuttingProxy()
    try:
        lock = kit.extra("job", client=kit.client_of(proxy.address), timeout=3, auto_renewal=True)
        assert await lock.acquire()
        lost = lock.lost
        renewed = _renewals(client)
        await asyncio.to_thread(soon, "the lock is renewed", lambda: _renewals(client) > renewed)
        took = Took()
        proxy.close()
        # The lease is 3 s, of which some time has passed since the last renewal.
        assert await is_lost(lost)
        assert took.seconds() > 1.5 and took.is_within(3 + 0.5)
    finally:
        proxy.close()


async def test_the_future_of_asyncio_survives_a_cancelled_wait(client: redis.Redis) -> None:
    own = redis.asyncio.Redis(**address())
    lock = redis_dlock.asyncio.DLock(own, "job", timeout=3)
    assert await lock.acquire()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(lock.lost, 0.01)
    client.delete("job")
    error = await asyncio.wait_for(lock.lost, 20)
    assert isinstance(error, redis_dlock.LockNotOwnedError)
    await own.aclose()


async def test_on_lost_may_be_a_coroutine_function(client: redis.Redis) -> None:
    own = redis.asyncio.Redis(**address())
    told = asyncio.Event()

    async def on_lost(error: redis_dlock.LockNotOwnedError) -> None:
        told.set()

    lock = redis_dlock.asyncio.DLock(own, "job", timeout=3, on_lost=on_lost)
    assert await lock.acquire()
    client.delete("job")
    await asyncio.wait_for(told.wait(), 20)
    await own.aclose()


async def test_a_lock_that_is_not_held_has_no_token_and_cannot_be_lost(kit: Kit) -> None:
    lock = kit.extra("job", timeout=20)
    for name in ("token", "owner", "lost"):
        with pytest.raises(redis_dlock.LockError):
            getattr(lock, name)


async def test_a_lock_whose_lease_has_ended_has_no_token(kit: Kit, client: redis.Redis) -> None:
    lock = kit.lock("job", timeout=2)
    assert await lock.acquire()
    assert lock.token == info(client, "job")["token"]
    assert await lock.extend(4.5, replace_ttl=True)
    await asyncio.sleep(2.1)
    assert lock.token == info(client, "job")["token"], "the extension is not counted"
    await asyncio.to_thread(soon, "the lease ends", lambda: not info(client, "job"))
    # The clocks of the server and of the client need not agree to the millisecond.
    await asyncio.sleep(0.02)
    for name in ("token", "owner"):
        with pytest.raises(redis_dlock.LockNotOwnedError, match="lease has ended"):
            getattr(lock, name)
    with pytest.raises(redis_dlock.LockNotOwnedError):
        await lock.release()
    kept = kit.extra("job", timeout=3, auto_renewal=True)
    assert await kept.acquire()
    await asyncio.sleep(3.2)
    assert kept.token == info(client, "job")["token"], "the renewal is not counted"
    client.delete("job")
    assert await is_lost(kept.lost)
    with pytest.raises(redis_dlock.LockNotOwnedError, match="lost"):
        kept.token


async def test_a_cap_of_the_server_cuts_an_extension(kit: Kit, client: redis.Redis) -> None:
    client.config_set("dlock.max-hold", 20_000)
    try:
        lock = kit.lock("job", timeout=15)
        assert await lock.acquire()
        await asyncio.to_thread(soon, "a part of the lease passes", lambda: client.pttl("job") < 14_900)
        assert await lock.extend(20, replace_ttl=True)
        # The cap counts from the grant, so less than 20 s are left.
        assert 15_000 < client.pttl("job") < 19_950
        assert lock.token == info(client, "job")["token"]
        await lock.release()
        assert not info(client, "job")
    finally:
        client.config_set("dlock.max-hold", 0)


def test_auto_renewal_needs_a_timeout(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="auto_renewal"):
        redis_dlock.DLock(client, "job", auto_renewal=True)


def _refusals(client: redis.Redis) -> int:
    return int(client.info("commandstats").get("cmdstat_dlock.renew", {"rejected_calls": 0})["rejected_calls"])


async def test_a_renewal_that_is_refused_for_a_while_is_no_loss(kit: Kit, client: redis.Redis) -> None:
    lock = kit.extra("job", timeout=4, auto_renewal=True)
    assert await lock.acquire()
    lost, refused = lock.lost, _refusals(client)
    client.config_set("min-replicas-to-write", 1)
    try:
        await asyncio.to_thread(soon, "a renewal is refused", lambda: _refusals(client) > refused)
        assert not lost_already(lost)
    finally:
        client.config_set("min-replicas-to-write", 0)
    assert not await is_lost(lost, 5), "the lock is lost although renewals are allowed again"
    await lock.release()


async def test_a_renewal_that_is_refused_for_good_is_a_loss_at_the_end(kit: Kit, client: redis.Redis) -> None:
    told: list[redis_dlock.LockNotOwnedError] = []
    lock = kit.extra("job", timeout=2, auto_renewal=True, on_lost=told.append)
    assert await lock.acquire()
    took = Took()
    client.config_set("min-replicas-to-write", 1)
    try:
        # The lease is 2 s, of which some time may have passed.
        assert await is_lost(lock.lost) and took.seconds() > 1 and took.is_within(2.2)
        await asyncio.to_thread(soon, "the error says why", lambda: any("NOREPLICAS" in str(error) for error in told))
    finally:
        client.config_set("min-replicas-to-write", 0)


async def test_a_server_without_the_module_in_place_of_the_old_one_is_a_loss(kit: Kit) -> None:
    with Server() as server, Server(module=False) as plain:
        proxy = CuttingProxy(server.port)
        lock = kit.extra("job", client=kit.client_of(proxy.address), timeout=2, auto_renewal=True)
        assert await lock.acquire()
        lost = lock.lost
        proxy.lead(plain.port)
        server.close()
        assert await is_lost(lost, 5)
        with pytest.raises(redis_dlock.LockNotOwnedError):
            lock.token
        proxy.close()
