"""A grant whose reply comes late does not count if its lease has ended meanwhile. The lease counts from before the
command was sent. Before the client counts a lock with an old grant as held, it asks the server whether the grant still
stands."""

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

# The lease of the lock whose grant comes late, in seconds.
LEASE = 0.6
# The lease of the next owner, in seconds.
NEXT = 1.2


@pytest.fixture
def way() -> Iterator[Stall]:
    """A proxy before the server that keeps replies back while it is told to."""
    way = Stall()
    yield way
    way.flow()
    way.close()


def owner(client: redis.Redis, name: str) -> object:
    """Returns the owner of a lock."""
    holds = info(client, name, "FULL").get("holds")
    return holds[0]["owner"] if holds else None


def maker(kind: str, kit: Kit, way: Stall) -> Any:
    """Makes a lock of this kind whose client is connected through the proxy."""
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
        # The object that `acquire_all` makes and then acquires.
        made = module.acquire_all.__globals__["AllOf"](its, ["job"], timeout=LEASE)
    else:
        made = module.DLock(its, "job", **{"timeout": LEASE, **settings})
    return Plain(made) if isinstance(own, Plain) else made


KINDS = ["lease", "renewed", "reentrant", "write", "sliced", "at least", "several"]


@pytest.mark.parametrize("kind", [*KINDS, "semaphore"])
async def test_a_late_grant_that_another_owner_has_followed_does_not_count(
    kit: Kit, client: redis.Redis, way: Stall, kind: str
) -> None:
    """The reply to a wait comes when the lease is over and the next owner has the lock. The wait goes on until that
    owner's lease has ended."""
    lock = maker(kind, kit, way)
    first = redis_dlock.DSemaphore(client, "job", 1, timeout=60).permit() if kind == "semaphore" else None
    holder = first or redis_dlock.DLock(client, "job", timeout=60)
    assert holder.acquire()
    waiting = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(lock.acquire()))) if isinstance(
        lock, Plain) else asyncio.create_task(lock.acquire())
    await asyncio.to_thread(soon, "the request waits", lambda: waiters(client, "job") == 1)
    way.stall()
    holder.release()
    other = redis_dlock.DSemaphore(client, "job", 1, timeout=NEXT).permit() if first else redis_dlock.DLock(
        client, "job", timeout=NEXT, thread_local=False)
    assert await asyncio.to_thread(other.acquire)
    way.flow()
    assert await waiting
    assert other.remaining == 0, "the next owner had the lock until its lease ended"
    # Other locks are held by the thread or task that acquired them, not by this one.
    if not isinstance(lock, Plain) and kind != "reentrant":
        assert info(client, "job", "FULL")["holds"][0]["token"] == lock.token
        assert lock.remaining <= LEASE
        await lock.release()


@pytest.mark.parametrize("kind", ["lease", "reentrant", "several", "semaphore"])
async def test_a_late_grant_of_a_free_lock_does_not_count(
    kit: Kit, client: redis.Redis, way: Stall, kind: str
) -> None:
    """The lock is free, so the first command is granted at once. Its reply comes after the end of the lease."""
    lock = maker(kind, kit, way)
    # The client connects before the replies are kept back.
    warm = maker("lease", kit, way)
    assert await warm.acquire()
    await warm.release()
    way.stall()

    def go_on() -> None:
        soon("the lock is granted", lambda: bool(info(client, "job")))
        soon("the lease ends", lambda: not info(client, "job"))
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


async def test_a_limit_that_passes_before_a_late_grant_refuses(kit: Kit, client: redis.Redis, way: Stall) -> None:
    lock = maker("lease", kit, way)
    holder = redis_dlock.DLock(client, "job", timeout=60, thread_local=False)
    assert holder.acquire()

    def take() -> None:
        soon("the request waits", lambda: waiters(client, "job") == 1)
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
    """The wait is longer than the lease. The rest of the lease counts from a renewal."""
    for settings in ({}, {"session": True}, {"auto_renewal": True}, {"max_hold": 30}):
        lock = kit.extra("job", timeout=1.0, **settings)
        assert command(client, "DLOCK.ACQUIRE", "job", "other", "PX", 1500)
        assert await lock.acquire(blocking_timeout=limit)
        sent = time.monotonic()
        assert lock.token and 0.5 < lock.remaining <= 1.0
        assert not await is_lost(lock.lost, 0.3)
        ends = sent + lock.remaining
        # The client claims at most 0.4 s more than the server gives.
        assert ends - sent <= client.pttl("job") / 1000 + 0.4
        await lock.release()


async def test_a_session_whose_first_connection_is_lost_is_bound_to_the_next(kit: Kit, client: redis.Redis) -> None:
    """After a long wait, a client asks the server about its grant. Without an answer, the client binds the session to
    another connection."""
    way = Stall()
    lock = kit.extra("job", client=kit.client_of(way.address), timeout=6.0, session=True)
    assert command(client, "DLOCK.ACQUIRE", "job", "other", "PX", 2500)

    def pause() -> None:
        soon("the lock is granted", lambda: owner(client, "job") not in (None, "other"))
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
    soon("the candidate waits", lambda: waiters(client, "leader") == 1)
    way.stall()
    other.release()
    soon("the candidate is elected", lambda: owner(client, "leader") == election.candidate)
    soon("the candidate's lease ends", lambda: not info(client, "leader"))
    next_one = redis_dlock.DLock(client, "leader", timeout=NEXT)
    assert next_one.acquire()
    way.flow()
    soon("a term begins", lambda: bool(began))
    assert next_one.remaining == 0
    election.stop()
    thread.join()
    own.close()


async def test_a_function_under_a_lock_begins_only_when_the_lock_is_held(client: redis.Redis, way: Stall) -> None:
    kit = AsyncioKit()
    own = kit.client_of(way.address, socket_timeout=None)
    holder = redis_dlock.DLock(client, "job", timeout=60)
    assert holder.acquire()

    @redis_dlock.asyncio.locked(own, "job", timeout=LEASE)
    async def run() -> float:
        return other.remaining

    other = redis_dlock.DLock(client, "job", timeout=NEXT, thread_local=False)
    running = asyncio.create_task(run())
    await asyncio.to_thread(soon, "the request waits", lambda: waiters(client, "job") == 1)
    way.stall()
    holder.release()
    assert await asyncio.to_thread(other.acquire)
    way.flow()
    assert await running == 0, "the function begins after the next owner's lease"
    await kit.aclose()


@pytest.mark.parametrize("settings", [{"timeout": 5}, {}, {"timeout": 5, "session": True}], ids=["lease", "session", "both"])
async def test_a_wait_that_falls_silent_after_a_refusal_is_a_refusal(
    kit: Kit, client: redis.Redis, way: Stall, settings: dict[str, Any]
) -> None:
    """The server has said that the lock is held, and then falls silent. Without that answer, silence is an error."""
    assert command(client, "DLOCK.ACQUIRE", "job", "other", "PX", 60000)
    lock = kit.extra("job", client=kit.client_of(way.address, socket_timeout=None), **settings)

    def fall_silent() -> None:
        soon("the request waits", lambda: waiters(client, "job") == 1)
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
    await asyncio.to_thread(soon, "the request has left the queue", lambda: waiters(client, "job") == 0)
