"""Settings that the package accepts, and settings that it refuses with a reason."""

from __future__ import annotations

import math
import os
import socket
import time
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import Kit, Took, address, command, info
from redis_dlock import options
from redis_dlock.binding import Cap
from redis_dlock.session import SessionBase


@pytest.mark.parametrize("limit", [0, -0.001, -1, -1e100, 0.05])
@pytest.mark.parametrize("settings", [{"timeout": 5}, {}, {"timeout": 5, "session": True}], ids=["lease", "session", "both"])
async def test_a_limit_that_has_passed_is_a_refusal(
    kit: Kit, client: redis.Redis, limit: float, settings: dict[str, Any]
) -> None:
    """A limit of 50 ms passes while the request waits."""
    assert command(client, "DLOCK.ACQUIRE", "job", "other", "PX", 60000)
    took = Took()
    assert not await kit.extra("job", **settings).acquire(blocking_timeout=limit)
    assert took.is_within(1.25)
    assert not await kit.extra("job", blocking_timeout=limit, **settings).acquire()
    command(client, "DLOCK.RELEASE", "job", "other")
    lock = kit.extra("job", **settings)
    assert await lock.acquire(blocking_timeout=limit)
    await lock.release()


@pytest.mark.parametrize("limit", [-1, 0.05])
async def test_a_limit_of_a_semaphore_that_has_passed_is_a_refusal(client: redis.Redis, limit: float) -> None:
    """A limit of 50 ms passes while the request waits."""
    holder = redis_dlock.DSemaphore(client, "sem", 1, timeout=60)
    assert holder.acquire()
    assert not redis_dlock.DSemaphore(client, "sem", 1, timeout=5).acquire(timeout=limit)
    async with redis.asyncio.Redis(**address()) as own:
        assert not await redis_dlock.asyncio.DSemaphore(own, "sem", 1, timeout=5).acquire(timeout=limit)


@pytest.mark.parametrize("limit", [1e10, 1e18, 1e100, math.inf])
async def test_a_limit_that_never_passes_lets_acquire_wait(kit: Kit, client: redis.Redis, limit: float) -> None:
    for settings in ({"timeout": 5}, {"wait_slice": 3.0}, {}):
        assert command(client, "DLOCK.ACQUIRE", "job", "other", "PX", 300)
        lock = kit.extra("job", **settings)
        assert await lock.acquire(blocking_timeout=limit)
        await lock.release()


@pytest.mark.parametrize("name", ["timeout", "at_least", "max_hold", "blocking_timeout", "replicas_timeout", "wait_slice"])
@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan])
async def test_a_time_that_is_infinite_or_nan_is_refused(kit: Kit, name: str, seconds: float) -> None:
    if name == "blocking_timeout" and not math.isnan(seconds):
        return  # Infinity is no limit, and minus infinity is a limit that has passed.
    with pytest.raises(ValueError, match=name):
        kit.extra("job", **{name: seconds})


async def test_a_time_that_no_server_accepts_is_refused(kit: Kit) -> None:
    lock = kit.extra("job", timeout=5)
    assert await lock.acquire()
    for call in (lock.extend, lock.release_after):
        with pytest.raises(ValueError):
            await call(math.inf)
    await lock.release()
    with pytest.raises(ValueError, match="365 days"):
        kit.extra("job", timeout=1e9)
    for seconds in (-1, 0.001):
        with pytest.raises(ValueError, match="at_least must be 0.003 seconds or more"):
            kit.extra("job", at_least=seconds)
    with pytest.raises(ValueError):
        await kit.extra("job", timeout=5).acquire(blocking_timeout=math.nan)


async def test_clients_of_the_other_kind_are_refused(client: redis.Redis) -> None:
    own = redis.asyncio.Redis(**address())
    makers: list[Any] = [
        lambda module, its: module.DLock(its, "job"),
        lambda module, its: its.lock("job", lock_class=module.DLock),
        lambda module, its: module.Session(its),
        lambda module, its: module.DSemaphore(its, "job", 2),
        lambda module, its: module.Election(its, "job", print),
    ]
    for make in makers:
        with pytest.raises(TypeError, match=r"redis_dlock.asyncio"):
            make(redis_dlock, own)
        with pytest.raises(TypeError, match=r"redis.asyncio"):
            make(redis_dlock.asyncio, client)
    with pytest.raises(TypeError):
        redis_dlock.holder(own, "job")
    with pytest.raises(TypeError):
        redis_dlock.acquire_all(own, ["job"])
    with pytest.raises(TypeError):
        await redis_dlock.asyncio.holder(client, "job")
    await own.aclose()


async def test_an_owner_that_is_no_text_is_read(kit: Kit, client: redis.Redis) -> None:
    """The client decodes its replies, but owners stay bytes."""
    name = b"job\xff"
    assert command(client, "DLOCK.ACQUIRE", name, b"\xff\xfe", "PX", 60000)
    with redis.Redis(**address(), decode_responses=True) as own:
        found = redis_dlock.holder(own, name)
        assert found is not None and found.owner == b"\xff\xfe"
        with redis_dlock.watch(own, name) as changes:
            assert next(changes) == found
            command(client, "DLOCK.RELEASE", name, b"\xff\xfe")
            assert next(changes) is None
        with redis_dlock.DLock(own, name, timeout=5) as lock:
            assert lock.locked() and lock.owned()
    async with redis.asyncio.Redis(**address(), decode_responses=True) as its:
        async with redis_dlock.asyncio.DLock(its, name, timeout=5):
            found = await redis_dlock.asyncio.holder(its, name)
            assert found is not None and found.owner.startswith(socket.gethostname()[:20].encode())


async def test_an_owner_names_its_host_and_process_or_its_label(kit: Kit, client: redis.Redis) -> None:
    lock = kit.extra("job", timeout=5, reentrant=True)
    owners = set()
    for _ in range(3):
        assert await lock.acquire()
        owner = info(client, "job", "FULL")["holds"][0]["owner"]
        host, process, number, end = owner.rsplit(":", 3)
        assert int(process) == os.getpid() and int(number) > 0 and len(end) == 16
        assert len(owner) <= 64
        owners.add(owner)
        await lock.release()
    assert len(owners) == 3
    labeled = kit.extra("job", timeout=5, label="importer ü")
    assert await labeled.acquire()
    owner = info(client, "job", "FULL")["holds"][0]["owner"]
    assert owner.startswith("importer ü:") and len(owner.encode()) <= 64
    await labeled.release()
    for label in ("", "x" * 48, "a\nb"):
        with pytest.raises(ValueError, match="label"):
            kit.extra("job", timeout=5, label=label)


def test_an_owner_is_never_too_long() -> None:
    owner = options.owner_of_process("h" * 300, 2**22, 10**9, bytes(8))
    assert len(owner) == 64 and owner.endswith(b":4194304:1000000000:" + b"0" * 16)
    assert options.owner_of_process(" ", 1, 1, bytes(8)).startswith(b"host:1:1:")
    assert options.owner_of_process("a b\u00e4", 1, 1, bytes(8)).startswith(b"a-b-:1:1:")
    assert len(options.owner_of_label("x" * 47, bytes(8))) == 64


async def test_a_semaphore_behaves_like_that_of_threading(kit: Kit, client: redis.Redis) -> None:
    downloads = redis_dlock.DSemaphore(client, "sem", 2, timeout=5)
    assert not downloads.locked()
    assert downloads.acquire()
    assert not downloads.locked()
    assert downloads.acquire()
    assert downloads.locked()
    with pytest.raises(ValueError):
        downloads.acquire(False, 1)
    async with redis.asyncio.Redis(**address()) as own:
        its = redis_dlock.asyncio.DSemaphore(own, "sem", 2, timeout=5)
        assert await its.locked()
        with pytest.raises(ValueError):
            await its.acquire(False, 1)
    downloads.release(2)
    assert not downloads.locked()
    with pytest.raises(ValueError):
        redis_dlock.DSemaphore(client, "sem", 0)


async def test_an_overwritten_key_is_a_lost_lock(kit: Kit, client: redis.Redis) -> None:
    for call in ("release", "reacquire", "extend"):
        lock = kit.extra("job", timeout=5)
        assert await lock.acquire()
        client.set("job", "x")
        with pytest.raises(redis_dlock.LockNotOwnedError):
            await (lock.extend(3) if call == "extend" else getattr(lock, call)())
        if call != "release":
            assert lock.remaining == 0
        client.delete("job")


async def test_a_lease_of_which_nothing_would_be_certain_is_refused(kit: Kit, client: redis.Redis) -> None:
    for options_ in ({"timeout": 0.002}, {"timeout": 0.001, "max_hold": 0.002}, {"max_hold": 0.002, "session": False}):
        with pytest.raises(ValueError, match="0.003"):
            kit.extra("job", **options_)
    lock = kit.extra("job", timeout=5)
    assert await lock.acquire()
    with pytest.raises(ValueError, match="3 ms"):
        await lock.extend(0.002, replace_ttl=True)
    assert lock.remaining > 0
    await lock.release()


def test_a_session_and_a_cap_have_the_margin_of_a_lease(client: redis.Redis) -> None:
    """The client counts on 2 ms less than the server, because both count whole milliseconds."""
    session = SessionBase(client, 10)
    rounds = session._round()
    next(rounds)
    sent = time.monotonic()
    with pytest.raises(StopIteration):
        rounds.send([0])
    assert session._until <= sent + 10 - 0.002
    cap = Cap([], "exclusive", 1, math.inf, 5.0)
    assert cap.read(100.0, [[b"holds", [[b"mode", b"exclusive", b"token", 1, b"cap", 5000]]]])
    assert cap.at <= 105 - 0.002
