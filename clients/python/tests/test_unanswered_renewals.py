"""A renewal whose reply does not come may have been executed, or may arrive later: the lock object never counts on more
than what is certain."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import redis_dlock
from cutting import CuttingProxy, Delay
from kit import PATIENCE, AsyncioKit, Kit, Plain, info, soon
from servers import Server
from test_late_copies import calls
from test_lost import is_lost, lost_already
from test_tasks import decorated

UNANSWERED = (redis.ConnectionError, redis.TimeoutError)
# A single attempt, which the lock object repeats once.
HASTY: dict[str, Any] = {"socket_timeout": 0.5, "retry": None}


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of its own for a test that freezes it."""
    with Server() as server:
        yield server


def claims(lock: Any) -> bool:
    """Returns whether the lock object takes the lock for held."""
    try:
        return bool(lock.token)
    except redis_dlock.LockNotOwnedError:
        return False


async def test_an_extension_that_nobody_confirms_counts_for_nothing(kit: Kit, server: Server) -> None:
    own = kit.client_of({"host": "127.0.0.1", "port": server.port}, **HASTY)
    lock = kit.extra("job", client=own, timeout=60)
    assert await lock.acquire()
    ends = time.monotonic() + lock.remaining
    server.freeze()
    with pytest.raises(UNANSWERED):
        await lock.extend(600, replace_ttl=True)
    assert time.monotonic() + lock.remaining <= ends + 0.01
    assert claims(lock), "the lease of the grant counts no more"
    server.thaw()
    assert await lock.extend(60)
    await lock.release()


@pytest.mark.parametrize("watched", [False, True], ids=["alone", "watched"])
async def test_a_lease_that_was_perhaps_shortened_counts_as_shortened(
    kit: Kit, server: Server, watched: bool
) -> None:
    own = kit.client_of({"host": "127.0.0.1", "port": server.port}, **HASTY)
    lock = kit.extra("job", client=own, timeout=600)
    assert await lock.acquire()
    lost = lock.lost if watched else None
    server.freeze()
    with pytest.raises(UNANSWERED):
        await lock.extend(2, replace_ttl=True)
    assert lock.remaining <= 2
    # The server executes the renewal when it goes on.
    server.thaw()
    await asyncio.to_thread(soon, "the lease ends", lambda: not info(server.client, "job"))
    assert lock.remaining <= 0.01 and not claims(lock)
    assert lost is None or await is_lost(lost, 1)
    with pytest.raises(redis_dlock.LockNotOwnedError):
        await lock.release()


@pytest.mark.parametrize("after", [None, 2.0], ids=["release", "release after"])
@pytest.mark.parametrize("watched", [False, True], ids=["alone", "watched"])
async def test_a_lock_that_was_perhaps_left_to_a_lease_is_claimed_no_more(
    kit: Kit, server: Server, watched: bool, after: float | None
) -> None:
    own = kit.client_of({"host": "127.0.0.1", "port": server.port}, **HASTY)
    lock = kit.extra("job", client=own, timeout=600, auto_renewal=watched, at_least=2 if after is None else None)
    assert await lock.acquire() and claims(lock)
    server.freeze()
    with pytest.raises(UNANSWERED):
        await (lock.release() if after is None else lock.release_after(after))
    assert lock.remaining == 0 and not claims(lock)
    server.thaw()


async def test_a_session_counts_with_a_lease_that_was_perhaps_shortened(kit: Kit, server: Server) -> None:
    own = kit.client_of({"host": "127.0.0.1", "port": server.port}, **HASTY)
    lock = kit.extra("job", client=own, timeout=600, session=True)
    assert await lock.acquire() and await lock.owned()
    server.freeze()
    with pytest.raises(UNANSWERED):
        await lock.extend(5, replace_ttl=True)
    assert lock.remaining <= 5
    server.thaw()
    # The TTL shows nothing: right after the renewal, the lock may be bound to another connection with its whole lease.
    executed = lambda: "cmdstat_dlock.renew" in server.client.info("commandstats")  # noqa: E731
    await asyncio.to_thread(soon, "the renewal is executed", executed)
    assert await lock.extend(600, replace_ttl=True)
    assert lock.remaining <= 5
    await lock.release()


@pytest.mark.parametrize("kit", [AsyncioKit], ids=["asyncio"], indirect=True)
async def test_a_cancelled_renewal_counts_as_executed(kit: Kit, server: Server) -> None:
    lock = kit.extra("job", client=kit.client_of({"host": "127.0.0.1", "port": server.port}), timeout=600)
    assert await lock.acquire()
    server.freeze()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(lock.extend(2, replace_ttl=True), 0.3)
    assert lock.remaining <= 2
    server.thaw()


async def test_a_claim_is_no_longer_than_a_late_renewal_leaves(kit: Kit, client: redis.Redis) -> None:
    """Meanwhile, the repeat of the late renewal was confirmed, and then a renewal with a longer lease."""
    way = Delay()
    try:
        lock = kit.extra("job", client=kit.client_of(way.address, **HASTY), timeout=600)
        assert await lock.acquire()
        way.keep("DLOCK.RENEW")
        assert await lock.extend(3, replace_ttl=True)
        assert way.keeps.is_set()
        assert await lock.extend(600, replace_ttl=True)
        way.deliver()
        await asyncio.to_thread(soon, "the renewal arrives", lambda: client.pttl("job") <= 3000)
        assert lock.remaining <= 3
    finally:
        way.close()


async def test_an_entry_does_not_forget_a_renewal_that_comes_late(kit: Kit, client: redis.Redis) -> None:
    way = Delay()
    try:
        lock = kit.extra("job", client=kit.client_of(way.address, **HASTY), timeout=600, reentrant=True)
        assert await lock.acquire()
        way.keep("DLOCK.RENEW", breaks=True)
        assert await lock.extend(3, replace_ttl=True)
        assert await lock.acquire()
        assert client.pttl("job") > 500_000, "the entry does not set the lease of the lock again"
        way.deliver()
        await asyncio.to_thread(soon, "the renewal arrives", lambda: client.pttl("job") <= 3000)
        assert lock.remaining <= 3
    finally:
        way.close()


async def test_a_claim_is_no_longer_than_a_late_renewal_of_the_watch_leaves(kit: Kit, client: redis.Redis) -> None:
    way = Delay()
    try:
        lock = kit.extra("job", client=kit.client_of(way.address, **HASTY), timeout=9, auto_renewal=True)
        assert await lock.acquire()
        way.keep("DLOCK.RENEW", breaks=True)
        assert await asyncio.to_thread(way.keeps.wait, PATIENCE)
        await asyncio.to_thread(soon, "the repeat renews the lock", lambda: client.pttl("job") > 8000)
        assert await lock.extend(600, replace_ttl=True)
        way.deliver()
        await asyncio.to_thread(soon, "the renewal arrives", lambda: client.pttl("job") <= 9000)
        assert lock.remaining <= 9
        await lock.release()
    finally:
        way.close()


async def test_a_refusal_of_the_repeat_says_nothing_of_the_first_copy(kit: Kit, server: Server) -> None:
    way = Delay(server.port)
    try:
        lock = kit.extra("job", client=kit.client_of(way.address, **HASTY), timeout=600)
        assert await lock.acquire()
        server.client.config_set("min-replicas-to-write", 1)
        way.keep("DLOCK.RENEW", breaks=True)
        with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
            await lock.extend(3, replace_ttl=True)
        server.client.config_set("min-replicas-to-write", 0)
        way.deliver()
        await asyncio.to_thread(soon, "the first copy arrives", lambda: server.client.pttl("job") <= 3000)
        assert lock.remaining <= 3
    finally:
        way.close()


async def test_a_renewal_that_was_repeated_is_counted_once(kit: Kit, client: redis.Redis) -> None:
    way = CuttingProxy()
    try:
        lock = kit.extra("job", client=kit.client_of(way.address, **HASTY), timeout=30)
        assert await lock.acquire()
        way.cut("DLOCK.RENEW")
        assert await lock.extend(30)
        assert way.cuts == 1
        assert 50_000 < client.pttl("job") <= 60_000
        assert 55 < lock.remaining <= 60
    finally:
        way.close()


@pytest.mark.parametrize("lease", [0, -1])
async def test_a_renewal_that_is_refused_changes_nothing(kit: Kit, client: redis.Redis, lease: int) -> None:
    lock = kit.extra("job", timeout=600)
    assert await lock.acquire()
    with pytest.raises(redis.ResponseError):
        await lock.extend(lease, replace_ttl=True)
    assert lock.remaining > 590 and claims(lock)
    await lock.release()


@pytest.mark.parametrize("watched", [False, True], ids=["alone", "watched"])
async def test_a_lock_whose_renewal_finds_no_hold_is_not_held(kit: Kit, client: redis.Redis, watched: bool) -> None:
    lock = kit.extra("job", timeout=600)
    assert await lock.acquire()
    lost = lock.lost if watched else None
    client.delete("job")
    with pytest.raises(redis_dlock.LockNotOwnedError):
        await lock.reacquire()
    assert lost is None or await is_lost(lost, 5), "the loss is told only when the watch asks the server next"
    assert lock.remaining == 0 and not claims(lock)


async def test_a_watch_that_begins_after_a_renewal_knows_it(kit: Kit, client: redis.Redis) -> None:
    lock = kit.extra("job", timeout=600)
    assert await lock.acquire()
    assert await lock.extend(2, replace_ttl=True)
    assert await is_lost(lock.lost, 5)
    assert not claims(lock)
    longer = kit.extra("longer", timeout=2)
    assert await longer.acquire()
    assert await longer.extend(60)
    lost = longer.lost
    assert longer.remaining > 50 and not await is_lost(lost, 2.5)
    assert not lost_already(lost)
    await longer.release()


async def test_a_renewal_that_too_few_replicas_have_may_have_shortened_the_lease(kit: Kit) -> None:
    with Server() as primary, Server() as replica:
        replica.replicate(primary)
        own = kit.client_of({"host": "127.0.0.1", "port": primary.port})
        lock = kit.extra("job", client=own, timeout=600, replicas=1, replicas_timeout=0.5)
        assert await lock.acquire()
        replica.client.replicaof("NO", "ONE")
        with pytest.raises(redis_dlock.ReplicasError):
            await lock.extend(5, replace_ttl=True)
        assert primary.client.pttl("job") <= 5000
        assert lock.remaining <= 5


async def test_of_two_renewals_at_once_the_shorter_counts(kit: Kit, client: redis.Redis) -> None:
    """The server may have executed either of them last."""
    way = Delay()
    try:
        own = kit.client_of(way.address)
        lock = kit.extra("job", client=own, timeout=600, thread_local=False)
        assert await lock.acquire()
        way.keep("PX")
        if isinstance(lock, Plain):
            shorter = asyncio.create_task(asyncio.to_thread(lock._inner.extend, 3, replace_ttl=True))
        else:
            shorter = asyncio.create_task(lock.extend(3, replace_ttl=True))
        await asyncio.to_thread(way.keeps.wait, 10)
        assert await lock.extend(600, replace_ttl=True)
        assert lock.remaining <= 3, "the shorter renewal, which may still be executed, does not count"
        way.deliver()
        assert await shorter
        assert client.pttl("job") <= 3000
        assert lock.remaining <= 3
        assert await lock.extend(600, replace_ttl=True)
        assert lock.remaining > 500, "a renewal after both does not count"
    finally:
        way.close()


def delivers(client: redis.Redis, way: Delay) -> float:
    """Delivers the renewal that is kept back, a moment later. Returns when it has arrived."""
    time.sleep(0.25)
    before = calls(client, "renew")
    way.deliver()
    soon("the renewal arrives", lambda: calls(client, "renew") > before)
    return time.monotonic()


@pytest.mark.parametrize("kind", ["release after", "once"])
async def test_a_late_renewal_does_not_shorten_the_time_that_a_lock_stays(
    kit: Kit, client: redis.Redis, kind: str
) -> None:
    """A renewal with a short lease gets no answer, and arrives within a second."""
    for _ in range(10):
        client.delete("job")
        way = Delay()
        own = kit.client_of(way.address, **HASTY)
        lost_at = math.inf

        def loses(way: Delay = way) -> None:
            nonlocal lost_at
            way.keep("DLOCK.RENEW", breaks=True)
            lost_at = time.monotonic()

        if kind == "once":
            run = decorated(kit, "once", loses, "job", 600, retry_failed=True, timeout=4, client=own)
            running = asyncio.ensure_future(run())
            assert await asyncio.to_thread(way.keeps.wait, PATIENCE)
            arrival = asyncio.get_running_loop().run_in_executor(None, delivers, client, way)
            await running
        else:
            lock = kit.extra("job", client=own, timeout=600)
            assert await lock.acquire()
            loses()
            assert await lock.extend(4, replace_ttl=True)
            arrival = asyncio.get_running_loop().run_in_executor(None, delivers, client, way)
            await lock.release_after(600)
        arrived = await arrival
        way.close()
        # A late machine may deliver when no client expects it any more.
        if arrived - lost_at < 1:
            assert client.pttl("job") > 60_000
            return
    pytest.skip("in no run did the machine deliver within a second")
