"""A cap (`max_hold`, `dlock.max-hold`) ends a lock, even if it is renewed, and its holder is told in time."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import redis

import redis_dlock
import redis_dlock.asyncio
from kit import Kit, Plain, Took, command, info, soon
from redis_dlock.acquisition import Acquisition
from redis_dlock.binding import Binding, Cap
from redis_dlock.commands import Target
from redis_dlock.limits import Limits
from redis_dlock.validity import MARGIN
from test_lost import is_lost, lost_already

# On a busy machine, a holder may hear of the end of its lock this much before the server ends it, in seconds.
EARLY = 1.5


@contextmanager
def capped(client: redis.Redis, milliseconds: int) -> Iterator[None]:
    """The operator's cap."""
    client.config_set("dlock.max-hold", milliseconds)
    try:
        yield
    finally:
        client.config_set("dlock.max-hold", 0)


async def ends_at_the_cap(lock: Any, client: redis.Redis, seconds: float) -> None:
    """Fails unless a lock that was just acquired is reported as lost by the time of its cap, and not long before."""
    lost, took = lock.lost, Took()
    assert await asyncio.to_thread(lost.wait, 20) if isinstance(lost, threading.Event) else await is_lost(lost)
    assert took.seconds() > seconds - EARLY and took.is_within(seconds + 0.2)
    assert lock.remaining == 0
    with pytest.raises(redis_dlock.LockNotOwnedError):
        lock.token
    await asyncio.to_thread(soon, "the server ends it, too", lambda: not info(client, lock.name))


async def test_a_lock_that_is_renewed_ends_at_its_cap(kit: Kit, client: redis.Redis) -> None:
    kinds: list[dict[str, Any]] = [{"timeout": 2, "auto_renewal": True}, {"timeout": 2, "session": True}, {}]
    locks = [kit.extra(f"job:{number}", max_hold=5, **kind) for number, kind in enumerate(kinds)]
    for lock in locks:
        assert await lock.acquire()
        assert info(client, lock.name, "FULL")["holds"][0]["cap"] <= 5000
    await asyncio.gather(*(ends_at_the_cap(lock, client, 5) for lock in locks))


async def test_a_lock_of_a_session_ends_at_its_cap(kit: Kit, client: redis.Redis) -> None:
    own = kit.client()
    session = kit.session(client=own, timeout=3)
    await session.open()
    told: list[redis_dlock.LockNotOwnedError] = []
    lock = kit.extra("job", client=own, session=session, max_hold=4, on_lost=told.append)
    other = kit.extra("other", client=own, session=session)
    assert await lock.acquire() and await other.acquire()
    await ends_at_the_cap(lock, client, 4)
    await asyncio.to_thread(soon, "the callback is called", lambda: len(told) == 1)
    assert "cap" in str(told[0]) and session.is_open and not lost_already(other.lost)
    await session.close()


async def test_a_session_knows_the_cap_of_the_server(kit: Kit, client: redis.Redis) -> None:
    own = kit.client()
    session = kit.session(client=own, timeout=1.5)
    await session.open()
    with capped(client, 5000):
        lock = kit.extra("job", client=own, session=session)
        assert await lock.acquire()
    await ends_at_the_cap(lock, client, 5)
    # Without a cap it goes on.
    free = kit.extra("free", client=own, session=session)
    assert await free.acquire()
    lost = free.lost
    client.config_resetstat()
    assert not await is_lost(lost, 5), "longer than its lease"
    assert int(client.info("commandstats")["cmdstat_dlock.info"]["calls"]) == 1, "it asks once"
    await session.close()


async def test_a_user_who_may_not_ask_is_told_with_a_heartbeat(kit: Kit, client: redis.Redis) -> None:
    rules = ["reset", "on", ">secret", "~*", "+@all", "-dlock.info"]
    command(client, "ACL", "SETUSER", "deaf", *rules)
    own = kit.client(username="deaf", password="secret")
    session = kit.session(client=own, timeout=2)
    await session.open()
    lock, other = (kit.extra(name, client=own, session=session) for name in ("job", "other"))
    assert await lock.acquire()
    with capped(client, 7000):
        assert await other.acquire()
    assert await is_lost(other.lost, 9)
    assert not lost_already(lock.lost), "it lasts for longer than its lease"
    await session.close()
    command(client, "ACL", "DELUSER", "deaf")


async def test_a_grant_after_a_wait_counts_from_the_grant(kit: Kit, client: redis.Redis) -> None:
    """The client is not told when the grant was; the session asks."""
    own = kit.client()
    session = kit.session(client=own, timeout=2)
    await session.open()
    command(client, "DLOCK.ACQUIRE", "job", "somebody", "PX", 2000)
    lock = kit.extra("job", client=own, session=session, max_hold=3)
    assert await lock.acquire()
    await ends_at_the_cap(lock, client, 3)
    await session.close()


async def test_a_reentry_lasts_no_longer_than_the_cap(kit: Kit, client: redis.Redis) -> None:
    with capped(client, 4000):
        lock = kit.extra("job", timeout=3, reentrant=True)
        assert await lock.acquire()
        began = time.monotonic()
        await asyncio.to_thread(soon, "time goes by", lambda: time.monotonic() > began + 1.5)
        assert await lock.acquire()
        assert lock.remaining <= 4 - 1.5
        await asyncio.to_thread(soon, "the server ends it", lambda: not info(client, "job"))
        assert lock.remaining <= 0.001, "the server counts whole milliseconds"


# A lock, and another one that its owner acquires: the mode, or the permits of a semaphore.
SECOND: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "upgrade": ({"mode": "read"}, {"mode": "write"}),
    "downgrade": ({"mode": "write"}, {"mode": "read"}),
    "reader": ({"mode": "read"}, {"mode": "read"}),
    "writer": ({"mode": "write"}, {"mode": "write"}),
    "reentrant": ({"reentrant": True}, {"reentrant": True}),
    "permits": ({"limit": 3}, {"limit": 3}),
    "slot": ({"mode": "write"}, {"limit": 3, "slots": True}),
}


def made(kit: Kit, name: str, settings: dict[str, Any]) -> Any:
    """Returns a lock, or a permit of a semaphore, that is not acquired yet."""
    if "limit" not in settings:
        return kit.extra(name, **settings)
    own = kit.client()
    plain = isinstance(own, Plain)
    module: Any = redis_dlock if plain else redis_dlock.asyncio
    permit = module.DSemaphore(own._inner if plain else own, name, **settings).permit()
    return Plain(permit) if plain else permit


@pytest.mark.parametrize(
    "terms", [{"timeout": 4}, {"timeout": 4, "auto_renewal": True}, {"timeout": 4, "session": True}, {}],
    ids=["lease", "renewed", "session", "session without a timeout"],
)
async def test_a_second_lock_of_an_owner_ends_at_the_cap_of_the_first(
    kit: Kit, client: redis.Redis, terms: dict[str, Any]
) -> None:
    """The server gives the second one the earlier of the two caps, and its reply does not say so."""
    firsts = {kind: made(kit, kind, {**first, **terms}) for kind, (first, _) in SECOND.items()}
    began = time.monotonic()
    with capped(client, 5000):
        for first in firsts.values():
            assert await first.acquire()
    await asyncio.sleep(began + 2 - time.monotonic())
    seconds = {kind: made(kit, kind, {**second, **terms}) for kind, (_, second) in SECOND.items()}
    for kind, second in seconds.items():
        assert await second.acquire(token=firsts[kind].owner, blocking=kind != "slot")
        held = [hold for hold in info(client, kind, "FULL")["holds"] if hold["token"] == second.token]
        assert second.remaining <= held[0]["ttl"] / 1000, kind
    await asyncio.to_thread(soon, "the server ends all", lambda: not any(info(client, kind) for kind in SECOND))
    assert [second.remaining for second in seconds.values()] == [0] * len(SECOND)


async def test_an_upgrade_in_a_session_ends_at_the_cap_of_the_reader(kit: Kit, client: redis.Redis) -> None:
    own = kit.client()
    session = kit.session(client=own, timeout=3)
    await session.open()
    reader = kit.extra("job", client=own, session=session, mode="read", max_hold=4)
    writer = kit.extra("job", client=own, session=session, mode="write")
    assert await reader.acquire()
    await asyncio.sleep(2)
    assert await writer.acquire(token=reader.owner)
    ends_in = info(client, "job")["ttl"] / 1000
    assert writer.remaining <= ends_in
    await asyncio.to_thread(soon, "the server ends it", lambda: not info(client, "job"))
    assert writer.remaining == 0
    await session.close()


def test_nothing_is_certain_of_a_grant_that_the_server_has_not_confirmed() -> None:
    """The owner may have another hold, whose cap ends the new one at once."""
    limits = Limits(0.0, 5.0)
    unconfirmed, confirmed = (
        Acquisition(Target(("job",), "write"), b"me", 30_000, False, limits).course for _ in range(2)
    )
    for course in (unconfirmed, confirmed):
        assert course.granted(0.1, course.sends(0.0)).do == "confirm"
    assert unconfirmed.over(5.0).do == "unreachable"
    assert confirmed.ok(0.3, confirmed.sends(0.2), 1.0) == ("granted", False, 0.2 + 1.0 - MARGIN, "none")


async def test_an_extension_is_cut(kit: Kit, client: redis.Redis) -> None:
    lock = kit.extra("job", timeout=10, max_hold=20)
    assert await lock.acquire()
    assert 9 < lock.remaining <= 10
    assert await lock.extend(60)
    assert 18 < lock.remaining <= 20
    await lock.release()
    with pytest.raises(redis_dlock.LockError):
        lock.remaining


def test_caps_that_the_server_would_refuse_are_errors(client: redis.Redis) -> None:
    for settings in (
        {"timeout": 10, "max_hold": 5}, {"max_hold": 0.2}, {"timeout": 1, "max_hold": 0}, {"max_hold": 40_000_000}
    ):
        with pytest.raises(ValueError, match="max_hold"):
            redis_dlock.DLock(client, "job", **settings)


async def test_permits_and_several_locks_have_a_cap(client: redis.Redis) -> None:
    with redis_dlock.DSemaphore(client, "pool", 3, timeout=2, max_hold=5):
        assert 0 < info(client, "pool", "FULL")["holds"][0]["cap"] <= 5000
    with redis_dlock.acquire_all(client, ["a", "b"], timeout=2, max_hold=5):
        assert 0 < info(client, "b", "FULL")["holds"][0]["cap"] <= 5000


def test_a_round_that_is_late_binds_and_asks_for_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program that is slow, all rounds are late."""
    now = [1000.0]
    monkeypatch.setattr("redis_dlock.session.time", SimpleNamespace(monotonic=lambda: now[0]))
    session = redis_dlock.Session(redis.Redis(), timeout=3)
    told: dict[Any, Any] = {"DLOCK.SESSION": 2, "RENEW": 1, "INFO": {"holds": [{"mode": "exclusive", "token": 7}]}}

    def beat() -> None:
        work = session._round()
        commands = next(work)
        try:
            while True:
                # An answer to a heartbeat takes more than a third of the timeout.
                now[0] += 1.2 if commands[0][0] == "DLOCK.SESSION" else 0.1
                commands = work.send([told[name] for name, *_ in commands])
        except StopIteration:
            pass

    beat()
    caps = [Cap([("INFO",)], "exclusive", 7, math.inf, now[0] + 9) for _ in range(2)]
    unbound, plain = (Binding(session, "job", lambda _: [("RENEW",)], cap, "job", None, 0) for cap in caps)
    session._bindings |= {unbound, plain}
    unbound.unbound = now[0] + 3
    while now[0] < 1008:
        beat()
    assert session._until > now[0], "the session is kept"
    assert unbound.unbound is None and plain.cap.is_known
