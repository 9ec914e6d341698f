"""A connection that breaks, and a reply that never comes, change nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError, LockNotOwnedError, TimeoutError
from redis.retry import Retry

import redis_dlock
import redis_dlock.asyncio
from cutting import CuttingProxy, Delay
from kit import Kit, Plain, PlainKit, address, command, info, soon, waiters
from machine import free_port
from redis_dlock import async_talk, limited, redis_py, talk
from redis_dlock import info as found
from redis_dlock.acquisition import Acquisition
from redis_dlock.commands import Target
from redis_dlock.limits import Limits
from test_lost import lost_already


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    """A proxy to the server, which loses replies."""
    proxy = CuttingProxy()
    yield proxy
    proxy.close()


@pytest.fixture
def client_by_proxy(kit: Kit, proxy: CuttingProxy) -> Any:
    """A client that connects through the proxy."""
    return kit.client_of(proxy.address)


async def test_an_acquisition_whose_reply_is_lost_is_granted_once(
    kit: Kit, client: redis.Redis, proxy: CuttingProxy, client_by_proxy: Any
) -> None:
    lock = kit.lock("job", client=client_by_proxy, timeout=20)
    proxy.cut("DLOCK.ACQUIRE")
    assert await lock.acquire(blocking=False)
    assert proxy.cuts == 1
    assert (info(client, "job")["count"], info(client, "job")["token"]) == (1, lock.token)
    await lock.release()
    assert not client.exists("job")


def calls(client: redis.Redis, name: str) -> int:
    """Returns how often the server has executed a command."""
    return int(client.info("commandstats").get(f"cmdstat_dlock.{name}", {"calls": 0})["calls"])


@pytest.mark.parametrize("kind", ["lease", "named session", "read", "write", "reentrant", "semaphore", "several"])
async def test_a_request_that_arrives_after_the_release_leaves_no_hold(
    kit: Kit, client: redis.Redis, delay: Delay, kind: str
) -> None:
    own = kit.client_of(delay.address)
    name = {"read": "rlock", "write": "wlock", "reentrant": "racquire"}.get(kind, "acquire")
    module: Any = redis_dlock if isinstance(own, Plain) else redis_dlock.asyncio
    its = own._inner if isinstance(own, Plain) else own
    session = kit.session(client=own, timeout=20)
    lock: Any
    if kind == "semaphore":
        name, lock = "sacquire", module.DSemaphore(its, "job", 1, timeout=600).permit()
    elif kind == "several":
        # The object that `acquire_all` makes and then acquires.
        name, lock = "macquire", module.acquire_all.__globals__["AllOf"](its, ["job", "other"], timeout=600)
    elif kind == "named session":
        await session.open()
        lock = kit.extra("job", client=own, session=session)
    else:
        settings = {"reentrant": True} if kind == "reentrant" else {"mode": kind} if kind in ("read", "write") else {}
        lock = kit.extra("job", client=own, timeout=600, **settings)
    lock = Plain(lock) if isinstance(own, Plain) and not isinstance(lock, Plain) else lock
    delay.keep("REQUEST", breaks=True)
    assert await lock.acquire(blocking=False)
    await lock.release()
    assert not client.exists("job", "other")
    before = calls(client, name)
    delay.deliver()
    await asyncio.to_thread(soon, "the copy arrives", lambda: calls(client, name) > before)
    await asyncio.to_thread(soon, "nobody has the lock", lambda: not client.exists("job", "other"))
    if kind == "named session":
        await session.close()


@pytest.mark.parametrize("late", ["first", "second"])
@pytest.mark.parametrize("arrives", ["held", "released"])
async def test_an_entry_that_arrives_late_leaves_no_hold(
    kit: Kit, client: redis.Redis, delay: Delay, arrives: str, late: str
) -> None:
    def deliver() -> None:
        before = calls(client, "racquire")
        delay.deliver()
        soon("the copy arrives", lambda: calls(client, "racquire") > before)

    lock = kit.extra("job", client=kit.client_of(delay.address), timeout=600, reentrant=True)
    if late == "first":
        delay.keep("REQUEST", breaks=True)
    assert await lock.acquire()
    if late == "second":
        delay.keep("REQUEST", breaks=True)
    assert await lock.acquire() and await lock.acquire()
    if arrives == "held":
        deliver()
        assert info(client, "job")["count"] == 4
    for _ in range(3):
        assert client.exists("job")
        await lock.release()
    if arrives == "released":
        deliver()
    await asyncio.to_thread(soon, "nobody has the lock", lambda: not client.exists("job"))


async def test_a_request_that_may_arrive_late_ends_no_other_hold_of_its_owner(
    kit: Kit, client: redis.Redis, delay: Delay
) -> None:
    """A second lock object has entered the lock as the same owner, before the first one releases it."""
    lock = kit.extra("job", client=kit.client_of(delay.address), timeout=600, mode="read")
    other = kit.extra("job", timeout=600, mode="read")
    delay.keep("REQUEST", breaks=True)
    assert await lock.acquire() and await other.acquire(token=lock.owner)
    await lock.release()
    await asyncio.sleep(1.2)
    assert await other.owned()
    await other.release()


async def test_a_request_that_may_arrive_late_ends_no_later_hold_of_its_owner(
    kit: Kit, client: redis.Redis, delay: Delay
) -> None:
    """A second lock object gets the lock as the same owner, after the first one has released it."""
    lock, other = kit.extra("job", client=kit.client_of(delay.address), timeout=600), kit.extra("job", timeout=600)
    delay.keep("REQUEST", breaks=True)
    assert await lock.acquire()
    owner = lock.owner
    await lock.release()
    assert await other.acquire(token=owner)
    await asyncio.sleep(1.2)
    assert await other.owned()
    await other.release()


@pytest.mark.parametrize("finds", ["nobody answers", "broken"])
async def test_a_release_in_the_background_ends_no_later_hold_of_its_owner(
    kit: Kit, client: redis.Redis, delay: Delay, finds: str
) -> None:
    """A second lock object gets the lock as the same owner, while no server answers the release, or while a copy of the
    release may arrive late."""
    lock, other = kit.extra("job", client=kit.client_of(delay.address), timeout=600), kit.extra("job", timeout=600)
    delay.keep("REQUEST", breaks=1)
    assert await lock.acquire()
    owner = lock.owner
    if finds == "nobody answers":
        await lock.release()
        delay.lead(free_port())
        await asyncio.sleep(0.2)
    else:
        await lock.release()
        delay.keep("DLOCK.RELEASE", breaks=1)
        await asyncio.sleep(0.3)
    assert await other.acquire(token=owner)
    delay.lead(address()["port"])
    delay.deliver()
    await asyncio.sleep(1.5)
    assert await other.owned()
    await other.release()


async def test_a_release_in_the_background_names_what_the_owner_has(client: redis.Redis) -> None:
    target = Target(("job", "other"), "read", reentrant=True)
    token = command(client, "DLOCK.RLOCK", "job", "me", "PX", 60000)
    assert command(client, "DLOCK.RLOCK", "job", "me") == token
    replies = [command(client, *each) for each in target.ask(b"me")]
    releases = found.releases(target, b"me", replies, "a")
    assert releases == [("DLOCK.RELEASE", "job", b"me", "READ", "PERMITS", 2, "TOKEN", token, "REQUEST", "a")]
    assert command(client, *releases[0]) == 1
    assert not client.exists("job")


@pytest.mark.parametrize("settings", [{"timeout": 600}, {}], ids=["lease", "session"])
async def test_copies_of_a_request_that_is_given_up_leave_no_hold_and_no_connection(
    kit: Kit, client: redis.Redis, delay: Delay, settings: dict[str, Any]
) -> None:
    """The connection of the first copy breaks, and the second copy has no answer."""
    line: Any = talk.Line if isinstance(kit, PlainKit) else async_talk.Line
    before, opened = calls(client, "acquire"), set(line._open)
    lock = kit.extra("job", client=kit.client_of(delay.address), **settings)
    delay.keep("DLOCK.ACQUIRE", breaks=1, times=2)
    with pytest.raises((ConnectionError, TimeoutError)):
        await lock.acquire(blocking_timeout=0.5)
    delay.deliver()
    await asyncio.to_thread(soon, "the copies arrive", lambda: calls(client, "acquire") > before + 1)
    ends = time.monotonic() + 5
    while client.exists("job") or line._open - opened:
        assert time.monotonic() < ends, (info(client, "job", "FULL"), line._open - opened)
        await asyncio.sleep(0.01)


async def test_a_copy_whose_connection_ends_in_the_clean_up_leaves_no_hold(
    kit: Kit, client: redis.Redis, delay: Delay
) -> None:
    """The clean-up gets and releases the lock, and the copy is executed after that."""
    lock = kit.extra("job", client=kit.client_of(delay.address), timeout=600)
    delay.keep("REQUEST")
    with pytest.raises((ConnectionError, TimeoutError)):
        await lock.acquire(blocking_timeout=0.3)
    await asyncio.sleep(1.5)
    acquired, released = calls(client, "acquire"), calls(client, "release")
    delay.part()
    await asyncio.to_thread(soon, "the clean-up ends", lambda: calls(client, "release") > released)
    assert calls(client, "acquire") == acquired + 1
    await asyncio.sleep(0.3)
    delay.deliver()
    await asyncio.to_thread(soon, "the copy arrives", lambda: calls(client, "acquire") > acquired + 1)
    await asyncio.to_thread(soon, "nobody has the lock", lambda: not client.exists("job"))


@pytest.mark.parametrize("kind", ["reentrant", "upgrade"])
async def test_a_release_that_failed_ends_no_later_entry(
    kit: Kit, client: redis.Redis, delay: Delay, kind: str
) -> None:
    """The session releases the lock later, and copies of the release arrive late."""
    policy = (Retry if isinstance(kit, PlainKit) else AsyncRetry)(ConstantBackoff(0.01), 0)
    own = kit.client_of(delay.address, retry=policy)
    session = kit.session(client=own, timeout=2)
    await session.open()
    reader = kit.extra("job", client=own, session=session, mode="read")
    token = None
    if kind == "upgrade":
        assert await reader.acquire()
        token = reader.owner
    settings: dict[str, Any] = {"mode": "write"} if kind == "upgrade" else {"reentrant": True}
    lock = kit.extra("job", client=own, session=session, **settings)
    assert await lock.acquire(token=token)
    delay.keep("DLOCK.RELEASE", breaks=9, times=9)
    with pytest.raises(ConnectionError):
        await lock.release()
    delay.keep("DLOCK.RELEASE", times=0)
    before = calls(client, "release")
    assert await lock.acquire(token=token, blocking_timeout=10)
    lost = lock.lost
    await asyncio.to_thread(soon, "the session releases", lambda: calls(client, "release") > before)
    before = calls(client, "release")
    delay.deliver()
    await asyncio.to_thread(soon, "the copies arrive", lambda: calls(client, "release") > before)
    await asyncio.sleep(0.2)
    found = info(client, "job", "FULL").get("holds", [])
    assert lock.token in [hold["token"] for hold in found] and lock.remaining > 0 and not lost_already(lost)
    await lock.release()
    if kind == "upgrade":
        await reader.release()
    assert not client.exists("job")
    await session.close()


@pytest.mark.parametrize("kind", ["at least", "release after"])
async def test_a_lock_that_stays_is_not_entered_again(
    kit: Kit, client: redis.Redis, delay: Delay, kind: str
) -> None:
    """The release is a renewal that gets no answer: copies of it arrive late."""
    policy = (Retry if isinstance(kit, PlainKit) else AsyncRetry)(ConstantBackoff(0.01), 0)
    lock = kit.extra(
        "job", client=kit.client_of(delay.address, retry=policy), timeout=4, reentrant=True, auto_renewal=True,
        at_least=3 if kind == "at least" else None,
    )
    assert await lock.acquire()
    token = lock.token
    delay.keep("DLOCK.RENEW", breaks=9, times=9)
    with pytest.raises(ConnectionError):
        await (lock.release() if kind == "at least" else lock.release_after(3))
    delay.keep("DLOCK.RENEW", times=0)
    assert not await lock.acquire(blocking=False)
    assert await lock.acquire(blocking_timeout=20)
    lost, before = lock.lost, calls(client, "renew")
    delay.deliver()
    await asyncio.to_thread(soon, "the copies arrive", lambda: calls(client, "renew") > before)
    await asyncio.sleep(0.2)
    assert lock.token > token and lock.remaining > 0 and not lost_already(lost)
    await lock.release()


@pytest.mark.parametrize("session", [False, True], ids=["lease", "session"])
@pytest.mark.parametrize("failure", ["a string", "NOREPLICAS"])
async def test_a_release_in_the_background_goes_on_after_an_error(
    kit: Kit, client: redis.Redis, delay: Delay, monkeypatch: pytest.MonkeyPatch, failure: str, session: bool
) -> None:
    """The copy arrives between the two tries, the first of which finds a string; or before, and is not released then."""
    monkeypatch.setattr(redis_py, "SEES_AN_END", (2.0, 3.0))
    own = kit.client_of(delay.address)
    keeper = kit.session(client=own, timeout=60)
    await keeper.open()
    lock = kit.extra("job", client=own, timeout=600, **({"session": keeper} if session else {}))

    def arrives() -> None:
        before = calls(client, "acquire")
        delay.deliver()
        soon("the copy arrives", lambda: calls(client, "acquire") > before and client.exists("job") > 0)

    delay.keep("REQUEST", breaks=1)
    assert await lock.acquire(blocking=False)
    await lock.release()
    tries = calls(client, "check")
    try:
        if failure == "a string":
            client.set("job", "other")
            await asyncio.to_thread(soon, "it has tried", lambda: calls(client, "check") > tries)
            client.delete("job")
            await asyncio.to_thread(arrives)
        else:
            await asyncio.to_thread(arrives)
            client.config_set("min-replicas-to-write", 1)
            client.config_resetstat()
            await asyncio.to_thread(soon, "it has tried", lambda: "errorstat_NOREPLICAS" in client.info("errorstats"))
    finally:
        client.config_set("min-replicas-to-write", 0)
    await asyncio.to_thread(soon, "nobody has the lock", lambda: not client.exists("job"))
    await keeper.close()


@pytest.mark.parametrize("kind", ["a try", "a wait", "a string", "a re-entry"])
async def test_a_request_that_arrives_after_a_refusal_leaves_no_hold(
    kit: Kit, client: redis.Redis, delay: Delay, kind: str
) -> None:
    other = kit.extra("job", timeout=600)
    lock = kit.extra("job", client=kit.client_of(delay.address), timeout=600, reentrant=kind == "a re-entry")
    if kind == "a re-entry":
        assert await lock.acquire()
        client.delete("job")
    if kind == "a string":
        client.set("job", "token")
    else:
        assert await other.acquire()
    delay.keep("REQUEST", breaks=True)
    if kind == "a re-entry":
        with pytest.raises(LockNotOwnedError):
            await lock.acquire()
    else:
        assert not await lock.acquire(blocking_timeout=0 if kind == "a try" else 0.3)
    if kind == "a string":
        client.delete("job")
    else:
        await other.release()
    name = "racquire" if kind == "a re-entry" else "acquire"
    before = calls(client, name)
    delay.deliver()
    await asyncio.to_thread(soon, "the copy arrives", lambda: calls(client, name) > before)
    await asyncio.to_thread(soon, "nobody has the lock", lambda: not client.exists("job"))


def test_the_owner_of_a_grant_that_was_lost_is_released() -> None:
    """A copy of its request may be executed after the next request was sent."""
    limits = Limits(0.0, 60.0, waits=True)
    attempt = Acquisition(Target(("job",), "exclusive"), b"first", 600, False, limits, owners=lambda: b"second")
    attempt.starts()
    attempt.sends(0.0)
    attempt.loses(1.0)
    attempt.sends(1.0)
    attempt.takes(1.0, 7)
    assert attempt.course.turn.do == "confirm"
    number, _ = attempt.asks(1.0)
    attempt.confirmed(1.0, number, [None])
    assert (attempt.owner, attempt.former) == (b"second", [b"first"])


def test_a_grant_that_a_string_has_overwritten_is_lost() -> None:
    """The string is met when the server is asked about an old grant."""
    limits = Limits(0.0, 60.0, waits=True)
    attempt = Acquisition(Target(("job",), "exclusive"), b"first", 600, False, limits, owners=lambda: b"second")
    attempt.starts()
    attempt.sends(0.0)
    attempt.takes(1.0, 7)
    assert attempt.course.turn.do == "confirm"
    attempt.asks(1.0)
    attempt.owes()
    attempt.held(1.1)
    attempt.starts()
    assert (attempt.owner, attempt.token, attempt.course.turn.do) == (b"second", None, "wait")
    attempt.sends(2.0)
    attempt.takes(2.1, 8)
    assert (attempt.course.turn.do, attempt.course.sent) == ("granted", 2.0)


def test_an_event_loop_that_ends_releases_what_a_late_request_takes(client: redis.Redis, delay: Delay) -> None:
    before = calls(client, "acquire")

    async def main() -> None:
        async with redis.asyncio.Redis(**delay.address) as own:
            lock = redis_dlock.asyncio.DLock(own, "job", timeout=600)
            delay.keep("REQUEST", breaks=True)
            assert await lock.acquire()
            await lock.release()
        threading.Timer(0.3, delay.deliver).start()

    asyncio.run(main())
    soon("the copy arrives", lambda: calls(client, "acquire") > before + 1)
    soon("nobody has the lock", lambda: not client.exists("job"))


async def test_a_session_releases_what_a_late_request_takes(
    kit: Kit, client: redis.Redis, delay: Delay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server answers the releases in the background."""
    def fails(*_: Any) -> None:
        raise ConnectionError("no server")

    own = kit.client_of(delay.address)
    session = kit.session(client=own, timeout=2)
    await session.open()
    lock = kit.extra("job", client=own, session=session)
    delay.keep("REQUEST", breaks=True)
    assert await lock.acquire(blocking=False)
    monkeypatch.setattr(lock._wire, "_insist", fails)
    await lock.release()
    before = calls(client, "acquire")
    delay.deliver()
    await asyncio.to_thread(soon, "the copy arrives", lambda: calls(client, "acquire") > before)
    await asyncio.to_thread(soon, "nobody has the lock", lambda: not client.exists("job"))
    await session.close()


async def test_a_re_entry_that_may_arrive_late_ends_no_other_entry_of_its_owner(
    kit: Kit, client: redis.Redis, delay: Delay
) -> None:
    """A second lock object has entered the lock as the same owner, before the first one releases it."""
    lock = kit.extra("job", client=kit.client_of(delay.address), timeout=600, reentrant=True)
    other = kit.extra("job", timeout=600, reentrant=True)
    assert await lock.acquire()
    delay.keep("REQUEST", breaks=True)
    assert await lock.acquire() and await other.acquire(token=lock.owner)
    assert other.token == lock.token
    await lock.release()
    await lock.release()
    await asyncio.sleep(1.2)
    assert await other.owned()
    await other.release()
    assert not client.exists("job")


class Interrupted(BaseException):
    """Stands for `KeyboardInterrupt`, or a cancellation."""


@pytest.mark.parametrize("ends", ["an interrupted block", "a repeated release"])
async def test_a_release_that_fails_does_not_forget_a_request_that_may_arrive_late(
    kit: Kit, client: redis.Redis, delay: Delay, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = kit.extra("job", client=kit.client_of(delay.address), timeout=600)
    wire = lock._wire
    delay.keep("REQUEST", breaks=True)
    if ends == "a repeated release":
        assert await lock.acquire()
        with monkeypatch.context() as patch, pytest.raises(ConnectionError):
            patch.setattr(wire, "release", raises(ConnectionError("no server")))
            await lock.release()
        # The work that the first release began in the background ends.
        await asyncio.sleep(1.5)
        await lock.release()
    else:
        with pytest.raises(Interrupted):
            async with lock:
                known = wire.release_late
                monkeypatch.setattr(wire, "release_late", raises(Interrupted(), then=known))
    assert not client.exists("job")
    before = calls(client, "acquire")
    delay.deliver()
    await asyncio.to_thread(soon, "the copy arrives", lambda: calls(client, "acquire") > before)
    await asyncio.to_thread(soon, "nobody has the lock", lambda: not client.exists("job"))


def raises(error: BaseException, then: Any = None) -> Any:
    """Returns a function that raises the error the first time that it is called, and then calls `then`."""
    errors = [error]

    def function(*args: Any, **kwargs: Any) -> Any:
        if errors:
            raise errors.pop()
        return then(*args, **kwargs)

    return function


def test_a_release_does_not_wait_for_a_request_that_may_arrive_late(
    client: redis.Redis, delay: Delay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread can be started any more."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with redis.Redis(**delay.address) as own:
        lock = redis_dlock.DLock(own, "job", timeout=600)
        delay.keep("REQUEST", breaks=True)
        assert lock.acquire()
        monkeypatch.setattr(limited, "begin", refuse)
        late: list[Any] = []
        monkeypatch.setattr(lock._wire, "_insist", lambda *args: late.append(args))
        lock.release()
        assert not late
        assert not client.exists("job")


async def test_a_session_whose_reply_is_lost_is_bound_to_the_next_connection(
    kit: Kit, client: redis.Redis, proxy: CuttingProxy, client_by_proxy: Any
) -> None:
    lock = kit.lock("job", client=client_by_proxy)
    proxy.cut("DLOCK.ACQUIRE")
    assert await lock.acquire()
    assert proxy.cuts == 1
    assert info(client, "job", "FULL")["holds"][0]["session"] is not None
    assert await lock.owned()
    await lock.release()


async def test_a_release_whose_reply_is_lost_is_no_error(
    kit: Kit, client: redis.Redis, proxy: CuttingProxy, client_by_proxy: Any
) -> None:
    lock = kit.lock("job", client=client_by_proxy, timeout=20)
    assert await lock.acquire()
    proxy.cut("DLOCK.RELEASE")
    await lock.release()
    assert proxy.cuts == 1
    assert not client.exists("job")


async def test_a_release_of_a_lost_lock_is_an_error_even_if_its_reply_is_lost(
    kit: Kit, client: redis.Redis, proxy: CuttingProxy, client_by_proxy: Any
) -> None:
    lock = kit.lock("job", client=client_by_proxy, timeout=0.3)
    assert await lock.acquire()
    command(client, "DLOCK.ACQUIRE", "job", "other", "PX", 20_000, "BLOCK", 5_000)
    proxy.cut("DLOCK.RELEASE")
    with pytest.raises(LockNotOwnedError):
        await lock.release()
    assert proxy.cuts == 1
    assert client.delete("job")


@pytest.mark.parametrize("settings", [{"session": True, "timeout": 600}, {}, {"timeout": 2, "auto_renewal": True}])
async def test_a_refused_release_leaves_nothing(kit: Kit, client: redis.Redis, settings: dict[str, Any]) -> None:
    """The lock is free when its session or its lease ends; the program may also repeat the release."""
    locks = [kit.extra(name, **settings) for name in ("left", "repeated")]
    for lock in locks:
        assert await lock.acquire()
    client.config_set("min-replicas-to-write", 9)
    try:
        for lock in locks:
            with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
                await lock.release()
    finally:
        client.config_set("min-replicas-to-write", 0)
    await locks[1].release()
    await asyncio.to_thread(soon, "both are free", lambda: not client.exists("left", "repeated"))


async def test_entries_are_counted_once_even_if_replies_are_lost(
    kit: Kit, client: redis.Redis, proxy: CuttingProxy, client_by_proxy: Any
) -> None:
    lock = kit.extra("job", client=client_by_proxy, timeout=20, reentrant=True)
    for entries in (1, 2, 3):
        proxy.cut("DLOCK.RACQUIRE")
        assert await lock.acquire()
        assert info(client, "job")["count"] == entries
    proxy.cut("DLOCK.RELEASE")
    await lock.release()
    assert info(client, "job")["count"] == 2
    # A copy of that release may still arrive, so the next one is left to the last.
    await lock.release()
    assert info(client, "job")["count"] == 2 and lock.remaining > 0
    proxy.cut("DLOCK.RELEASE")
    await lock.release()
    assert proxy.cuts == 5
    assert not client.exists("job")


@pytest.mark.parametrize("then", ["released", "entered"])
@pytest.mark.parametrize("breaks", [True, False], ids=["broken", "silent"])
async def test_a_late_copy_of_an_inner_release_takes_no_other_entry(
    kit: Kit, client: redis.Redis, then: str, breaks: bool
) -> None:
    way = Delay()
    lock = kit.extra("job", client=kit.client_of(way.address), timeout=600, reentrant=True)
    entries = 3 if then == "released" else 2
    for _ in range(entries):
        assert await lock.acquire()
    way.keep("DLOCK.RELEASE", breaks=breaks)
    await lock.release()
    assert way.keeps.is_set() and info(client, "job")["count"] == entries - 1
    # The id of this command replaces that of the release.
    if then == "released":
        await lock.release()
    else:
        assert await lock.acquire()
    way.deliver()
    await asyncio.sleep(0.3)
    if then == "entered":
        await lock.release()
    assert info(client, "job"), "an entry is left"
    assert lock.remaining > 0
    await lock.release()
    assert not client.exists("job")
    way.close()


async def test_the_repeated_undo_of_an_entry_takes_no_other_one(
    kit: Kit, client: redis.Redis, proxy: CuttingProxy, client_by_proxy: Any
) -> None:
    lock = kit.extra("job", client=client_by_proxy, timeout=600, reentrant=True)
    assert await lock.acquire()
    proxy.cut("DLOCK.RACQUIRE", times=1_000_000)
    with pytest.raises((ConnectionError, TimeoutError)):
        await lock.acquire()
    # The entry is undone now, and the answer to that is lost.
    before = proxy.cuts
    proxy.cut("DLOCK.RELEASE", times=2)
    await asyncio.to_thread(soon, "the undo is repeated", lambda: proxy.cuts > before + 1)
    await asyncio.sleep(1)
    assert info(client, "job"), "an entry is left"
    assert lock.remaining > 0
    await lock.release()
    assert not client.exists("job")


@pytest.mark.parametrize("then", ["released", "entered", "given up"])
async def test_an_entry_without_an_answer_does_not_outlast_the_lock(
    kit: Kit, client: redis.Redis, proxy: CuttingProxy, client_by_proxy: Any, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    lock = kit.extra("job", client=client_by_proxy, timeout=600, reentrant=True)
    assert await lock.acquire()
    if then == "given up":
        monkeypatch.setattr(redis_py, "CLEANING", 0.1)
    proxy.cut("DLOCK.RACQUIRE", times=1_000_000)
    with pytest.raises((ConnectionError, TimeoutError)):
        await lock.acquire()
    assert info(client, "job")["count"] == 2
    if then == "given up":
        await asyncio.sleep(0.3)
        assert info(client, "job")["count"] == 2, "the undo has failed"
    else:
        # The undo goes on when the next call begins, and succeeds during that.
        threading.Timer(0.3, proxy.cut, ["DLOCK.RACQUIRE", 0]).start()
    if then == "entered":
        while True:
            # An entry waits for the undo for 1 s at most.
            with suppress(TimeoutError):
                assert await lock.acquire()
                break
        assert info(client, "job")["count"] == 2
        await lock.release()
        assert info(client, "job")["count"] == 1
    await lock.release()
    await asyncio.sleep(0.1)
    assert not client.exists("job")


@pytest.mark.parametrize("then", ["released", "entered"])
async def test_an_interrupted_inner_release_takes_no_other_entry(
    kit: Kit, client: redis.Redis, proxy: CuttingProxy, then: str
) -> None:
    policy = (Retry if isinstance(kit, PlainKit) else AsyncRetry)(ConstantBackoff(0.5), 3)
    lock = kit.extra("job", client=kit.client_of(proxy.address, retry=policy), timeout=600, reentrant=True)
    wire = lock._wire
    sends = wire.release

    def interrupted(*call: Any) -> Any:
        wire.release = sends
        raise asyncio.CancelledError

    for _ in range(3):
        assert await lock.acquire()
    wire.release = interrupted
    # The server executes releases, and no answer arrives.
    proxy.cut("DLOCK.RELEASE", times=1_000_000)
    with pytest.raises(asyncio.CancelledError):
        await lock.__aexit__(None, None, None)
    proxy.cut("DLOCK.RELEASE", 0)
    if then == "entered":
        assert await lock.acquire()
        await lock.release()
    await lock.release()
    await asyncio.sleep(1)
    assert info(client, "job"), "an entry is left"
    assert lock.remaining > 0
    await lock.release()
    assert not client.exists("job")


async def test_a_failed_release_whose_id_is_replaced_takes_no_other_entry(
    kit: Kit, client: redis.Redis, proxy: CuttingProxy, client_by_proxy: Any
) -> None:
    lock = kit.extra("job", client=client_by_proxy, timeout=600, reentrant=True)
    for _ in range(2):
        assert await lock.acquire()
    proxy.cut("DLOCK.RELEASE", times=1_000_000)
    with pytest.raises((ConnectionError, TimeoutError)):
        await lock.release()
    proxy.cut("DLOCK.RELEASE", 0)
    assert await lock.acquire()
    for _ in range(2):
        await lock.release()
        assert info(client, "job"), "an entry is left"
    await lock.release()
    assert not client.exists("job")


@pytest.mark.parametrize("how", ["unanswered", "interrupted"])
@pytest.mark.parametrize("settings", [{"timeout": 600, "auto_renewal": True}, {}], ids=["renewed", "connection"])
async def test_an_inner_release_without_an_answer_ends_nothing_else(
    kit: Kit, client: redis.Redis, client_by_proxy: Any, settings: dict[str, Any], how: str
) -> None:
    lost: list[Exception] = []
    lock = kit.extra("job", client=client_by_proxy, reentrant=True, on_lost=lost.append, **settings)
    sends = lock._wire.release
    failure = ConnectionError() if how == "unanswered" else asyncio.CancelledError()

    def fails(*call: Any) -> Any:
        raise failure

    async with lock:
        lock._wire.release = fails
        with pytest.raises(type(failure)):
            async with lock:
                pass
        lock._wire.release = sends
        async with lock:
            pass
        await asyncio.sleep(0.1)
        assert info(client, "job"), "the outer block has it"
        assert lock.remaining > 0
    assert not client.exists("job")
    assert not lost


async def test_permits_whose_release_has_no_answer_end_with_the_others(
    kit: Kit, client: redis.Redis, proxy: CuttingProxy, client_by_proxy: Any
) -> None:
    module = redis_dlock if isinstance(kit, PlainKit) else redis_dlock.asyncio
    semaphore = module.DSemaphore(getattr(client_by_proxy, "_inner", client_by_proxy), "job", 5, timeout=600)

    async def call(found: Any) -> Any:
        return await found if asyncio.iscoroutine(found) else found

    assert await call(semaphore.acquire(permits=3))
    proxy.cut("DLOCK.RELEASE", times=1_000_000)
    with pytest.raises((ConnectionError, TimeoutError)):
        await call(semaphore.release())
    proxy.cut("DLOCK.RELEASE", 0)
    await asyncio.sleep(0.1)
    assert info(client, "job")["count"] == 2
    await call(semaphore.release())
    assert info(client, "job"), "a permit is left"
    await call(semaphore.release())
    assert not client.exists("job")


async def test_permits_are_all_released_after_a_release_of_some_had_no_answer(
    kit: Kit, client: redis.Redis, proxy: CuttingProxy, client_by_proxy: Any
) -> None:
    module = redis_dlock if isinstance(kit, PlainKit) else redis_dlock.asyncio
    semaphore = module.DSemaphore(getattr(client_by_proxy, "_inner", client_by_proxy), "job", 5, timeout=600)
    permit = Plain(semaphore.permit(3)) if isinstance(kit, PlainKit) else semaphore.permit(3)
    assert await permit.acquire()
    proxy.cut("DLOCK.RELEASE", times=1_000_000)
    with pytest.raises((ConnectionError, TimeoutError)):
        await permit.give_back(1)
    proxy.cut("DLOCK.RELEASE", 0)
    await permit.release()
    assert not client.exists("job")


async def test_a_wait_goes_on_after_its_connection_is_lost(kit: Kit, client: redis.Redis) -> None:
    holder = redis_dlock.DLock(client, "job", timeout=60, thread_local=False)
    holder.acquire()

    def cut_then_release() -> None:
        with redis.Redis(**address()) as other:
            soon("it waits", lambda: waiters(other, "job") == 1)
            first = info(other, "job", "FULL")["queue"][0]
            other.client_kill_filter(_id=str(first["client"]))
            soon("it waits again", lambda: [
                waiter for waiter in info(other, "job", "FULL")["queue"]
                if waiter["owner"] == first["owner"] and waiter["client"] != first["client"]
            ] != [])
            holder.release()

    thread = threading.Thread(target=cut_then_release)
    thread.start()
    lock = kit.lock("job", timeout=10, blocking_timeout=20)
    assert await lock.acquire()
    thread.join()
    assert info(client, "job")["count"] == 1
    await lock.release()


async def test_a_wait_goes_on_after_a_failover_unblocked_it(kit: Kit, client: redis.Redis) -> None:
    holder = redis_dlock.DLock(client, "job", timeout=60, thread_local=False)
    holder.acquire()

    def unblock_then_release() -> None:
        with redis.Redis(**address()) as other:
            soon("it waits", lambda: waiters(other, "job") == 1)
            first = info(other, "job", "FULL")["queue"][0]["client"]
            other.client_unblock(first, error=True)
            soon("it waits again", lambda: [
                waiter for waiter in info(other, "job", "FULL")["queue"] if waiter["client"] != first
            ] != [])
            holder.release()

    thread = threading.Thread(target=unblock_then_release)
    thread.start()
    lock = kit.lock("job", timeout=10, blocking_timeout=20)
    assert await lock.acquire()
    thread.join()
    await lock.release()


async def test_a_server_that_is_not_there_is_an_error(kit: Kit) -> None:
    nobody = CuttingProxy()
    nobody.close()
    lock = kit.extra("job", client=kit.client_of(nobody.address, retry=None), timeout=1, outage=0.5)
    with pytest.raises(ConnectionError):
        await lock.acquire()


async def test_a_session_that_was_lost_cannot_be_released(kit: Kit, client: redis.Redis) -> None:
    lock = kit.lock("job")
    assert await lock.acquire()
    client.client_kill_filter(_id=str(info(client, "job", "FULL")["holds"][0]["session"]))
    soon("it is free", lambda: not info(client, "job"))
    assert await lock.owned() is False
    with pytest.raises(LockNotOwnedError):
        await lock.release()
    assert await lock.acquire(blocking=False)
    await lock.release()
