"""A grant whose reply comes late is no grant any more if the server has ended it: a lease counts from before the
command was sent, and the client asks whether an old grant still stands before the lock counts as held."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from cutting import Stall
from kit import AsyncioKit, Kit, Plain, Took, command, info, soon, waiters
from test_lost import is_lost

# Leases of the tests, in seconds: that of the lock whose grant comes late, and that of the next owner.
LEASE = 0.6
NEXT = 1.2


@pytest.fixture
def way() -> Iterator[Stall]:
    """A way to the server on which replies can be kept back."""
    way = Stall()
    yield way
    way.flow()
    way.close()


def owner(client: redis.Redis, name: str) -> object:
    """Returns the owner of a lock."""
    holds = info(client, name, "FULL").get("holds")
    return holds[0]["owner"] if holds else None


def maker(kind: str, kit: Kit, way: Stall) -> Any:
    """Makes a lock of this kind whose replies come over the way."""
    if not hasattr(kit, "way"):
        setattr(kit, "way", kit.client_of(way.address, socket_timeout=None))
    own = getattr(kit, "way")
    its = own._inner if isinstance(own, Plain) else own
    module: Any = redis_dlock.asyncio if isinstance(kit, AsyncioKit) else redis_dlock
    known: dict[str, dict[str, Any]] = {
        "lease": {}, "renewed": {"auto_renewal": True}, "reentrant": {"reentrant": True}, "write": {"mode": "write"},
        "sliced": {"wait_slice": 60.0}, "at least": {"at_least": LEASE},
    }
    settings = known.get(kind, {})
    if kind == "semaphore":
        made = module.DSemaphore(its, "job", 1, timeout=LEASE).permit()
    elif kind == "several":
        # As `acquire_all` makes it, before it acquires.
        made = module.acquire_all.__globals__["AllOf"](its, ["job"], timeout=LEASE)
    else:
        made = module.DLock(its, "job", **{"timeout": LEASE, **settings})
    return Plain(made) if isinstance(own, Plain) else made


KINDS = ["lease", "renewed", "reentrant", "write", "sliced", "at least", "several"]


@pytest.mark.parametrize("kind", [*KINDS, "semaphore"])
async def test_a_lock_that_another_has_by_now_is_not_acquired(
    kit: Kit, client: redis.Redis, way: Stall, kind: str
) -> None:
    """The reply to a wait comes when the lease is over and the next owner has the lock."""
    lock = maker(kind, kit, way)
    first = redis_dlock.DSemaphore(client, "job", 1, timeout=60).permit() if kind == "semaphore" else None
    holder = first or redis_dlock.DLock(client, "job", timeout=60)
    assert holder.acquire()
    waiting = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(lock.acquire()))) if isinstance(
        lock, Plain) else asyncio.create_task(lock.acquire())
    await asyncio.to_thread(soon, "it waits", lambda: waiters(client, "job") == 1)
    way.stall()
    holder.release()
    other = redis_dlock.DSemaphore(client, "job", 1, timeout=NEXT).permit() if first else redis_dlock.DLock(
        client, "job", timeout=NEXT, thread_local=False)
    assert await asyncio.to_thread(other.acquire)
    way.flow()
    assert await waiting
    assert other.remaining == 0, "the next owner had it until its end"
    if not isinstance(lock, Plain) and kind != "reentrant":
        assert info(client, "job", "FULL")["holds"][0]["token"] == lock.token
        assert lock.remaining <= LEASE
        await lock.release()


@pytest.mark.parametrize("kind", ["lease", "reentrant", "several", "semaphore"])
async def test_a_free_lock_whose_grant_comes_late_is_not_acquired(
    kit: Kit, client: redis.Redis, way: Stall, kind: str
) -> None:
    """Nobody waits: the reply to the first command comes after the lease."""
    lock = maker(kind, kit, way)
    warm = maker("lease", kit, way)
    assert await warm.acquire()
    await warm.release()
    way.stall()

    def go_on() -> None:
        soon("it is granted", lambda: bool(info(client, "job")))
        soon("its lease ends", lambda: not info(client, "job"))
        other = redis_dlock.DLock(client, "job", timeout=NEXT, thread_local=False)
        if kind == "semaphore":
            other = redis_dlock.DSemaphore(client, "job", 1, timeout=NEXT).permit()
        assert other.acquire()
        way.flow()
        others.append(other)

    others: list[Any] = []
    thread = threading.Thread(target=go_on)
    thread.start()
    assert await lock.acquire()
    thread.join()
    assert others[0].remaining == 0
    assert 0 < lock.remaining <= LEASE
    assert lock.token
    await lock.release()


async def test_a_limit_that_ends_meanwhile_is_a_refusal(kit: Kit, client: redis.Redis, way: Stall) -> None:
    lock = maker("lease", kit, way)
    holder = redis_dlock.DLock(client, "job", timeout=60, thread_local=False)
    assert holder.acquire()

    def take() -> None:
        soon("it waits", lambda: waiters(client, "job") == 1)
        way.stall()
        holder.release()
        assert other.acquire()
        way.flow()

    other = redis_dlock.DLock(client, "job", timeout=60, thread_local=False)
    thread = threading.Thread(target=take)
    thread.start()
    assert not await lock.acquire(blocking_timeout=LEASE + 0.5)
    thread.join()
    assert other.owned()


@pytest.mark.parametrize("limit", [None, 20.0])
async def test_after_a_long_wait_the_lease_begins_again(kit: Kit, client: redis.Redis, limit: float | None) -> None:
    """The wait was longer than the lease: what is left counts from a renewal."""
    for settings in ({}, {"session": True}, {"auto_renewal": True}, {"max_hold": 30}):
        lock = kit.extra("job", timeout=1.0, **settings)
        assert command(client, "DLOCK.ACQUIRE", "job", "other", "PX", 1500)
        assert await lock.acquire(blocking_timeout=limit)
        sent = time.monotonic()
        assert lock.token and 0.5 < lock.remaining <= 1.0
        assert not await is_lost(lock.lost, 0.3)
        ends = sent + lock.remaining
        assert ends - sent <= client.pttl("job") / 1000 + 0.4
        await lock.release()


async def test_a_session_whose_first_connection_is_lost_is_bound_to_the_next(kit: Kit, client: redis.Redis) -> None:
    """After a long wait a client asks about its grant. Without an answer it binds the session to another connection."""
    way = Stall()
    lock = kit.extra("job", client=kit.client_of(way.address), timeout=6.0, session=True)
    assert command(client, "DLOCK.ACQUIRE", "job", "other", "PX", 2500)

    def pause() -> None:
        soon("it is granted", lambda: owner(client, "job") not in (None, "other"))
        way.stall()
        time.sleep(2.5)
        way.flow()

    thread = threading.Thread(target=pause)
    thread.start()
    assert await lock.acquire(blocking_timeout=20)
    thread.join()
    assert lock.token == info(client, "job")["token"]
    assert not await is_lost(lock.lost, 4)
    await lock.release()
    way.close()


async def test_the_servers_default_lease_is_what_counts(kit: Kit, client: redis.Redis) -> None:
    client.config_set("dlock.default-lease", 700)
    try:
        lock = kit.extra("job", session=False)
        assert await lock.acquire()
        assert 0 < lock.remaining <= 0.7
        await asyncio.sleep(0.8)
        with pytest.raises(redis_dlock.LockNotOwnedError):
            assert not lock.token
    finally:
        client.config_set("dlock.default-lease", 30000)


def test_an_election_begins_no_term_that_is_over(client: redis.Redis, way: Stall) -> None:
    began: list[float] = []
    own = redis.Redis(**way.address, socket_timeout=None)
    other = redis_dlock.DLock(client, "leader", timeout=60)
    assert other.acquire()
    election = redis_dlock.Election(own, "leader", lambda term: began.append(time.monotonic()), timeout=LEASE)
    thread = threading.Thread(target=election.run)
    thread.start()
    soon("it waits", lambda: waiters(client, "leader") == 1)
    way.stall()
    other.release()
    soon("it is granted", lambda: owner(client, "leader") == election.candidate)
    soon("its lease ends", lambda: not info(client, "leader"))
    next_one = redis_dlock.DLock(client, "leader", timeout=NEXT)
    assert next_one.acquire()
    way.flow()
    soon("its turn comes", lambda: bool(began))
    assert next_one.remaining == 0
    election.stop()
    thread.join()
    own.close()


async def test_a_lock_that_runs_a_function_is_held_then(client: redis.Redis, way: Stall) -> None:
    kit = AsyncioKit()
    own = kit.client_of(way.address, socket_timeout=None)
    holder = redis_dlock.DLock(client, "job", timeout=60)
    assert holder.acquire()

    @redis_dlock.asyncio.locked(own, "job", timeout=LEASE)
    async def run() -> float:
        return other.remaining

    other = redis_dlock.DLock(client, "job", timeout=NEXT, thread_local=False)
    running = asyncio.create_task(run())
    await asyncio.to_thread(soon, "it waits", lambda: waiters(client, "job") == 1)
    way.stall()
    holder.release()
    assert await asyncio.to_thread(other.acquire)
    way.flow()
    assert await running == 0
    await kit.aclose()


@pytest.mark.parametrize("settings", [{"timeout": 5}, {}, {"timeout": 5, "session": True}], ids=["lease", "session", "both"])
async def test_a_wait_that_falls_silent_after_a_refusal_is_a_refusal(
    kit: Kit, client: redis.Redis, way: Stall, settings: dict[str, Any]
) -> None:
    """The server has said that the lock is held, and nothing after that."""
    assert command(client, "DLOCK.ACQUIRE", "job", "other", "PX", 60000)
    lock = kit.extra("job", client=kit.client_of(way.address, socket_timeout=None), **settings)

    def fall_silent() -> None:
        soon("it waits", lambda: waiters(client, "job") == 1)
        way.stall()

    thread = threading.Thread(target=fall_silent)
    thread.start()
    took = Took()
    assert not await lock.acquire(blocking_timeout=0.8)
    assert took.is_within(0.8 + 0.3)
    thread.join()
    with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
        await kit.extra("job", client=kit.client_of(way.address), **settings).acquire(blocking_timeout=0.3)
    way.flow()
    await asyncio.to_thread(soon, "it has left the queue", lambda: waiters(client, "job") == 0)
