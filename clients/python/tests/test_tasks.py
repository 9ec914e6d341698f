"""Functions that run one at a time (`locked`) or once in each period (`once`), and locks that stay (`at_least`)."""

from __future__ import annotations

import asyncio
import inspect
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import AsyncioKit, Kit, address, info, soon
from servers import Server
from test_lost import is_lost

DAY = 86_400
# The rest of the lease of a daily run, in ms: nine tenths of a day, less the time since the grant.
STAYS = range(21 * 3_600_000, 77_760_001)

# A program whose run prints a line and does not end, so that it can be killed.
RUNS = """
import sys, threading, redis, redis_dlock
client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))
@redis_dlock.once(client, "report", 86400, retry_failed=sys.argv[3] == "retry", timeout=2)
def report():
    print("runs", flush=True)
    threading.Event().wait()
report()
"""


def decorated(kit: Kit, kind: str, function: Callable[..., Any], *what: Any, client: Any = None, **settings: Any) -> Any:
    """Returns the function, decorated with `locked` or `once`, as one to await. Without `client`, it gets a client of
    its own."""
    own = client or kit.client()
    if isinstance(kit, AsyncioKit):

        async def work(*args: Any) -> Any:
            result = function(*args)
            return await result if inspect.isawaitable(result) else result

        return getattr(redis_dlock.asyncio, kind)(own, *what, **settings)(work)
    run = getattr(redis_dlock, kind)(own._inner, *what, **settings)(function)
    return lambda *args: asyncio.to_thread(run, *args)


async def outlive(client: redis.Redis, name: str) -> None:
    """Waits until the key is gone."""
    await asyncio.to_thread(soon, "it is free", lambda: client.pttl(name) == -2)


async def test_five_machines_run_a_function_once_each_day(kit: Kit, client: redis.Redis) -> None:
    ran: list[int] = []

    def work() -> str:
        ran.append(1)
        return "ran"

    machines = [decorated(kit, "once", work, "report", DAY) for _ in range(5)]
    for day in range(1, 8):
        results = await asyncio.gather(*(machine() for machine in machines))
        assert sorted(results, key=str) == [None] * 4 + ["ran"] and len(ran) == day
        assert client.pttl("report") in STAYS
        client.pexpire("report", 1)
        await outlive(client, "report")


async def test_a_week_with_clocks_that_differ(kit: Kit, client: redis.Redis) -> None:
    """Five machines, each with a clock 90 s behind the one before, start the function each day, up to a minute late.
    Instead of waiting, the test shortens what is left of the lock."""
    ran: list[int] = []
    machines = [decorated(kit, "once", lambda: ran.append(1), "report", DAY) for _ in range(5)]
    late = random.Random(38)
    starts = [(day * DAY + 90 * machine + late.uniform(0, 60), machine) for day in range(7) for machine in range(5)]
    now = 0.0
    for at, machine in sorted(starts):
        left = client.pttl("report") - int((at - now) * 1000)
        if client.exists("report"):
            client.pexpire("report", left) if left > 0 else client.delete("report")
        now = at
        await machines[machine]()
        assert len(ran) == at // DAY + 1
    assert len(ran) == 7


async def test_the_lock_stays_for_nine_tenths_of_the_period(kit: Kit, client: redis.Redis) -> None:
    ran: list[int] = []
    run = decorated(kit, "once", lambda: ran.append(1), "report", 4, otherwise="skipped")
    for number in range(1, 3):
        began = time.monotonic()
        await run()
        assert await run() == "skipped" and len(ran) == number
        await outlive(client, "report")
        assert time.monotonic() - began >= 3.6


async def test_a_run_that_fails_counts_unless_it_may_be_repeated(kit: Kit, client: redis.Redis) -> None:
    for retry, left in ((False, STAYS), (True, [-2])):
        client.flushall()
        fails = decorated(kit, "once", lambda: 1 / 0, "report", DAY, retry_failed=retry)
        with pytest.raises(ZeroDivisionError):
            await fails()
        assert client.pttl("report") in left
    succeeds = decorated(kit, "once", lambda: client.pttl("report"), "report", DAY, retry_failed=True)
    assert 0 < await succeeds() <= 30_000, "while the function runs, the lock has its short lease"
    assert client.pttl("report") in STAYS and await succeeds() is None


@pytest.mark.parametrize("retry", [False, True])
def test_a_run_that_is_killed_counts_unless_it_may_be_repeated(client: redis.Redis, retry: bool) -> None:
    where = address()
    words = [sys.executable, "-c", RUNS, where["host"], str(where["port"]), "retry" if retry else ""]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"runs\n"
        process.send_signal(signal.SIGKILL)
    if retry:
        assert client.pttl("report") <= 2000
        soon("the lease of the lock ends", lambda: not info(client, "report"))
    else:
        assert client.pttl("report") in STAYS


async def test_a_run_that_waits_takes_over(kit: Kit, client: redis.Redis) -> None:
    went = threading.Event()

    def first() -> None:
        went.wait(20)
        raise ValueError("it failed")

    settings: dict[str, Any] = {"retry_failed": True, "blocking_timeout": 20}
    if isinstance(kit, AsyncioKit):
        failing = asyncio.ensure_future(decorated(kit, "once", lambda: asyncio.to_thread(first), "report", DAY, **settings)())
    else:
        failing = asyncio.ensure_future(decorated(kit, "once", first, "report", DAY, **settings)())
    await asyncio.to_thread(soon, "it runs", lambda: bool(info(client, "report")))
    second = asyncio.ensure_future(decorated(kit, "once", lambda: "ran", "report", DAY, **settings)())
    await asyncio.to_thread(soon, "the second run waits", lambda: info(client, "report").get("waiters") == 1)
    went.set()
    with pytest.raises(ValueError, match="failed"):
        await failing
    assert await second == "ran"


async def test_a_run_longer_than_its_period_is_alone(kit: Kit, client: redis.Redis) -> None:
    began = time.monotonic()
    other = decorated(kit, "once", lambda: "ran", "report", 1)

    def work() -> Any:
        return asyncio.sleep(3.5) if isinstance(kit, AsyncioKit) else time.sleep(3.5)

    working = asyncio.ensure_future(decorated(kit, "once", work, "report", 1, timeout=2)())
    await asyncio.to_thread(soon, "it runs", lambda: bool(info(client, "report")))
    while not working.done() and time.monotonic() - began < 3:
        assert await other() is None
        await asyncio.sleep(0.1)
    await working
    assert not info(client, "report"), "the time of the lock is over"


async def test_a_success_is_not_forgotten_because_the_server_hangs(kit: Kit) -> None:
    with Server() as server:
        own = kit.client_of({"port": server.port, "socket_timeout": 0.5})
        run = decorated(kit, "once", server.freeze, "report", DAY, retry_failed=True, client=own)
        threading.Timer(3, server.thaw).start()
        await run()
        assert server.client.pttl("report") in STAYS


async def test_nothing_runs_if_the_server_refuses_so_long_a_lock(kit: Kit, client: redis.Redis) -> None:
    ran: list[int] = []
    for setting in ("dlock.max-lease", "dlock.max-hold"):
        client.config_set(setting, 3_600_000)
        try:
            for retry in (False, True):
                with pytest.raises(redis.ResponseError, match=setting):
                    await decorated(kit, "once", lambda: ran.append(1), "report", DAY, retry_failed=retry)()
        finally:
            client.config_set(setting, 31_536_000_000 if setting == "dlock.max-lease" else 0)
    assert not ran and not info(client, "report")


async def test_a_lost_lock_is_reported(kit: Kit, client: redis.Redis) -> None:
    for kind in (("once", "report", DAY), ("locked", "report")):
        with pytest.raises(redis_dlock.LockNotOwnedError):
            await decorated(kit, kind[0], lambda: client.delete("report"), *kind[1:])()


async def test_one_call_at_a_time(kit: Kit, client: redis.Redis) -> None:
    seen: list[Any] = []

    def work(customer: int) -> None:
        lock = (redis_dlock.asyncio if isinstance(kit, AsyncioKit) else redis_dlock).current_lock()
        seen.append((customer, lock.name, lock.token == info(client, f"customer:{customer}")["token"]))

    run = decorated(kit, "locked", work, lambda customer: f"customer:{customer}")
    await run(1)
    await run(2)
    assert seen == [(1, "customer:1", True), (2, "customer:2", True)] and client.dbsize() == 0
    holder = kit.extra("job", timeout=20)
    assert await holder.acquire()
    assert await decorated(kit, "locked", work, "job", blocking=False, otherwise="busy")(1) == "busy"
    with pytest.raises(redis_dlock.LockError, match="Unable"):
        await decorated(kit, "locked", work, "job", blocking_timeout=2)(1)
    with pytest.raises(redis_dlock.LockError, match="No lock"):
        redis_dlock.current_lock()
    await holder.release()


async def test_a_canceled_task_releases(client: redis.Redis) -> None:
    async with redis.asyncio.Redis(**address()) as own:

        @redis_dlock.asyncio.locked(own, "job")
        async def work() -> None:
            await asyncio.sleep(60)

        working = asyncio.create_task(work())
        await asyncio.to_thread(soon, "it runs", lambda: bool(info(client, "job")))
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        # A grant whose reply the task had not read yet may be given back in the background.
        await asyncio.to_thread(soon, "the lock is released", lambda: not info(client, "job"))


async def test_a_released_lock_stays_for_the_time_of_at_least(kit: Kit, client: redis.Redis) -> None:
    for settings in ({}, {"timeout": 20, "auto_renewal": True}, {"timeout": 20, "reentrant": True}):
        lock = kit.extra("job", at_least=600, **settings)
        assert await lock.acquire()
        assert 599_000 < client.pttl("job") <= 600_000, "the time counts from the grant"
        assert await lock.reacquire() and client.pttl("job") > 590_000
        await lock.release()
        assert 590_000 < client.pttl("job") <= 600_000
        assert not await kit.extra("job", timeout=20).acquire(blocking=False)
        with pytest.raises(redis_dlock.LockError):
            await lock.release()
        client.flushall()
        assert await lock.acquire()
        await lock.release_after(0)
        assert not info(client, "job")


async def test_a_short_lease_is_renewed_and_stays(kit: Kit, client: redis.Redis) -> None:
    # Renewals ask for what is left of `at_least`. So `remaining` does not fall to 6 s while a renewal has no answer.
    lock = kit.extra("job", at_least=600, timeout=6, auto_renewal=True)
    assert await lock.acquire()
    lost, before = lock.lost, client.info("commandstats").get("cmdstat_dlock.renew", {"calls": 0})["calls"]
    assert not await is_lost(lost, 5)
    assert client.info("commandstats")["cmdstat_dlock.renew"]["calls"] > before + 1
    assert client.pttl("job") > 590_000 and lock.remaining > 590
    client.delete("job")
    assert await is_lost(lost, 5), "the loss is noticed although the lease would last for minutes"


async def test_after_the_time_of_at_least_a_release_frees_the_lock(kit: Kit, client: redis.Redis) -> None:
    lock = kit.extra("job", at_least=0.5, timeout=20)
    assert await lock.acquire()
    await asyncio.sleep(0.6)
    await lock.release()
    assert not info(client, "job")
    assert await lock.acquire()
    client.delete("job")
    with pytest.raises(redis_dlock.LockNotOwnedError):
        await lock.release()


def test_permits_and_several_locks_stay(client: redis.Redis) -> None:
    pool = redis_dlock.DSemaphore(client, "pool", 2, at_least=600)
    with pool:
        pass
    assert info(client, "pool")["count"] == 1 and client.pttl("pool") > 590_000
    with pytest.raises(ValueError, match="permit"):
        pool.acquire(permits=2)
    with redis_dlock.acquire_all(client, ["a", "b"], at_least=600):
        pass
    assert client.pttl("a") > 590_000 and client.pttl("b") > 590_000


def test_bad_options_are_refused(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="session"):
        redis_dlock.DLock(client, "job", at_least=10, session=True)
    with pytest.raises(ValueError, match="max_hold"):
        redis_dlock.DLock(client, "job", at_least=10, max_hold=5)
    with pytest.raises(ValueError, match="period"):
        redis_dlock.once(client, "job", 0.5)
    with pytest.raises(ValueError, match="session"):
        redis_dlock.once(client, "job", DAY, session=True)
