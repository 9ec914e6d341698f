"""Named sessions (`Session`): one heartbeat keeps all locks of a program, over any connection."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import pytest
import redis

import redis_dlock
import redis_dlock.asyncio
from cutting import CuttingProxy, Relay
from kit import AsyncioKit, Kit, Took, address, certain_again, command, info, soon, waiters
from machine import free_port
from servers import Server
from test_lost import is_lost, lost_already


async def eventually(what: str, condition: Any) -> None:
    """Waits until a condition holds, as `soon` does, and lets the event loop run meanwhile."""
    await asyncio.to_thread(soon, what, condition)


async def opened(kit: Kit, client: Any = None, **settings: Any) -> tuple[Any, Any]:
    """Opens a session. Returns the session and its client."""
    own = client or kit.client()
    session = kit.session(client=own, **settings)
    await session.open()
    return session, own


def bound(client: redis.Redis, session: Any) -> list[str]:
    """Returns the keys of the locks that the server has bound to a session."""
    listed = command(client, "DLOCK.SESSION", session.id, "LIST", "COUNT", 0) or []
    return sorted(hold[1].decode() for hold in listed)


def calls(client: redis.Redis, name: str) -> int:
    """Returns how often the module's command of this name was called."""
    return int(client.info("commandstats").get(f"cmdstat_dlock.{name}", {"calls": 0})["calls"])


def are_free(client: redis.Redis, locks: list[Any]) -> bool:
    """Returns whether none of these locks counts as held. Their keys may still be there, because the server deletes
    many keys in pieces."""
    return not any(info(client, lock.name) for lock in locks)


def loaded(server: Server) -> bool:
    """Returns whether a server has loaded its data."""
    try:
        return bool(server.client.ping())
    except redis.BusyLoadingError:
        return False


async def test_one_heartbeat_keeps_all_locks(kit: Kit, client: redis.Redis) -> None:
    session, own = await opened(kit, timeout=3)
    locks = [kit.extra(f"job:{number}", client=own, session=session) for number in range(40)]
    for lock in locks:
        assert await lock.acquire()
    assert 6000 < client.pttl("job:0") <= 9050, "the lease is three times the timeout"
    client.config_resetstat()
    began = time.monotonic()
    await eventually("time goes by", lambda: client.pttl("job:0") < 7000)
    await eventually("the server renews the lock", lambda: client.pttl("job:0") > 8000)
    await eventually("a heartbeat comes", lambda: calls(client, "session") >= 1)
    beats = calls(client, "session")
    # A heartbeat is due each second, a third of the timeout. A late reply repeats it.
    assert beats <= (time.monotonic() - began) / 1.0 + 5, "heartbeats are no more frequent than needed"
    assert calls(client, "renew") == 0
    for lock in locks:
        assert lock.token == info(client, lock.name)["token"]
        assert not lost_already(lock.lost)
    await locks[0].release()
    assert not info(client, "job:0") and len(bound(client, session)) == 39
    await session.close()


async def test_closing_frees_everything_in_one_command(kit: Kit, client: redis.Redis) -> None:
    # The timeout is long, so that no heartbeat is due during the test.
    session, own = await opened(kit, timeout=120)
    told: list[redis_dlock.LockNotOwnedError] = []
    locks = [kit.extra(f"job:{number}", client=own, session=session, on_lost=told.append) for number in range(20)]
    for lock in locks:
        assert await lock.acquire()
    losses = [lock.lost for lock in locks]
    lost = session.lost
    client.config_resetstat()
    await session.close()
    assert are_free(client, locks)
    assert calls(client, "session") == 1 and calls(client, "release") == 0
    assert all(map(lost_already, losses)) and not lost_already(lost)
    await eventually("each callback is called", lambda: len(told) == 20)
    with pytest.raises(redis_dlock.LockNotOwnedError):
        locks[0].token
    with pytest.raises(redis_dlock.LockError, match="closed"):
        await kit.extra("job", client=own, session=session).acquire()
    with pytest.raises(redis_dlock.LockError, match="opened once"):
        await session.open()
    await session.close()


async def test_a_callback_that_exits_does_not_stop_the_calls_of_the_others(kit: Kit) -> None:
    session, own = await opened(kit, timeout=120)
    told: list[redis_dlock.LockNotOwnedError] = []

    def exits(error: redis_dlock.LockNotOwnedError) -> None:
        told.append(error)
        raise asyncio.CancelledError if isinstance(kit, AsyncioKit) else SystemExit

    for number in range(3):
        assert await kit.extra(f"job:{number}", client=own, session=session, on_lost=exits).acquire()
    await session.close()
    await eventually("each callback is called", lambda: len(told) == 3)


async def test_locks_outlive_every_connection(kit: Kit, client: redis.Redis) -> None:
    session, own = await opened(kit, timeout=3)
    lock = kit.extra("job", client=own, session=session)
    assert await lock.acquire()
    lost, token = lock.lost, lock.token
    for _ in range(3):
        client.client_kill_filter(_type="normal", skipme=True)
        before = calls(client, "session")
        await eventually("a heartbeat follows", lambda: calls(client, "session") > before)
    assert not lost_already(lost) and lock.token == token == info(client, "job")["token"]
    await session.close()


async def test_heartbeats_go_on_while_the_pool_is_full(kit: Kit, client: redis.Redis) -> None:
    own = kit.client(max_connections=1)
    session, _ = await opened(kit, own, timeout=2)
    lock = kit.extra("job", client=own, session=session)
    assert await lock.acquire()
    blocked = own.blpop("nothing", timeout=4) if isinstance(kit, AsyncioKit) else None
    thread = None if blocked else threading.Thread(target=own._inner.blpop, args=("nothing", 4))
    working = asyncio.ensure_future(blocked) if blocked else None
    if thread is not None:
        thread.start()
    assert not await is_lost(lock.lost, 3.5)
    if working is not None:
        await working
    if thread is not None:
        thread.join()
    assert lock.token
    await session.close()


async def test_a_hung_server_costs_the_locks_after_the_timeout(kit: Kit) -> None:
    with Server() as server:
        told: list[redis_dlock.LockNotOwnedError] = []
        session, own = await opened(kit, kit.client_of({"port": server.port}), timeout=2, on_lost=told.append)
        lock = kit.extra("job", client=own, session=session, on_lost=told.append)
        assert await lock.acquire()
        lost, session_lost = lock.lost, session.lost
        server.freeze()
        took = Took()
        assert await is_lost(lost) and await is_lost(session_lost)
        assert took.seconds() > 1.0 and took.is_within(2.25)
        with pytest.raises(redis_dlock.LockNotOwnedError):
            lock.token
        await eventually("both callbacks are called", lambda: len(told) == 2)
        with pytest.raises(redis_dlock.LockError, match="no heartbeat"):
            await kit.extra("other", client=own, session=session).acquire()
        assert not session.is_open
        await session.close()
        server.thaw()
        await eventually("the server ends the session too", lambda: not info(server.client, "job"))


async def test_a_short_hang_costs_nothing(kit: Kit) -> None:
    with Server() as server:
        session, own = await opened(kit, kit.client_of({"port": server.port}), timeout=6)
        lock = kit.extra("job", client=own, session=session)
        assert await lock.acquire()
        lost = lock.lost
        server.freeze()
        assert not await is_lost(lost, 2.5)
        server.thaw()
        before = calls(server.client, "session")
        await eventually("heartbeats go on", lambda: calls(server.client, "session") > before + 1)
        assert not lost_already(lost) and lock.token == info(server.client, "job")["token"]
        await session.close()


async def test_after_a_restart_locks_are_bound_again_or_lost(kit: Kit) -> None:
    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        options = ["--dir", home, "--appendonly", "yes", "--appendfsync", "always"]
        server = Server(*options, port=port)
        session, own = await opened(kit, kit.client_of({"port": port}), timeout=12)
        kept = kit.extra("kept", client=own, session=session)
        gone = kit.extra("gone", client=own, session=session)
        for lock in (kept, gone):
            assert await lock.acquire()
        losses, token = (kept.lost, gone.lost), kept.token
        server.close()
        with Server(*options, port=port) as server:
            await eventually("the server has loaded its data", lambda: loaded(server))
            server.client.delete("gone")
            assert await is_lost(losses[1])
            await eventually("the lock is bound again", lambda: bound(server.client, session) == ["kept"])
            await certain_again(kept)
            assert not lost_already(losses[0]) and kept.token == token == info(server.client, "kept")["token"]
            assert not lost_already(session.lost)
            assert await kit.extra("new", client=own, session=session).acquire()
            await session.close()
            assert server.client.dbsize() == 0


async def test_after_a_failover_locks_are_bound_on_the_next_primary(kit: Kit) -> None:
    with Server() as primary, Server() as replica:
        replica.replicate(primary)
        proxy = Relay(primary.port)
        session, own = await opened(kit, kit.client_of(proxy.address), timeout=12)
        locks = [kit.extra(f"job:{number}", client=own, session=session) for number in range(120)]
        for lock in locks:
            assert await lock.acquire()
        last = locks[-1]
        token = last.token
        await eventually("the replica has the locks", lambda: info(replica.client, last.name).get("token") == token)
        primary.freeze()
        replica.client.replicaof("NO", "ONE")
        replica.client.delete("job:7")
        proxy.lead(replica.port)
        await eventually("the locks are bound there", lambda: len(bound(replica.client, session)) == 119)
        assert await is_lost(locks[7].lost)
        assert sum(lost_already(lock.lost) for lock in locks) == 1
        await certain_again(last)
        assert last.token == info(replica.client, last.name)["token"]
        await session.close()
        assert are_free(replica.client, locks)
        proxy.close()


async def test_a_deleted_lock_is_lost_with_the_next_heartbeat(kit: Kit, client: redis.Redis) -> None:
    session, own = await opened(kit, timeout=3)
    locks = [kit.extra(f"job:{number}", client=own, session=session) for number in range(3)]
    for lock in locks:
        assert await lock.acquire()
    lost, other = locks[1].lost, locks[2].lost
    client.delete("job:1")
    took = Took()
    assert await is_lost(lost) and took.is_within(2)
    assert not lost_already(other)
    with pytest.raises(redis_dlock.LockNotOwnedError):
        await locks[1].release()
    await session.close()


async def test_a_lock_that_the_server_may_lack_is_lost_unless_it_is_bound_again(
    kit: Kit, client: redis.Redis
) -> None:
    """Heartbeats go on, and tell how many locks the server has. Nobody learns which ones."""
    proxy = CuttingProxy()
    session, own = await opened(kit, kit.client_of(proxy.address), timeout=3)
    locks = [kit.extra(f"job:{number}", client=own, session=session) for number in range(2)]
    for lock in locks:
        assert await lock.acquire()
    losses = [lock.lost for lock in locks]
    proxy.cut("DLOCK.RENEW", times=1_000_000)
    client.delete("job:1")
    certain = time.monotonic() + locks[0].remaining
    await eventually("a heartbeat has found it", lambda: proxy.cuts > 0)
    assert time.monotonic() + max(lock.remaining for lock in locks) <= certain + 0.001
    for lost in losses:
        assert await is_lost(lost)
    assert session.is_open
    proxy.cut("DLOCK.RENEW", 0)
    await session.close()
    proxy.close()


async def test_a_lock_that_a_call_has_not_found_is_lost(kit: Kit, client: redis.Redis) -> None:
    session, own = await opened(kit, timeout=3)
    # The lease is long, so that the session does not ask for a cap.
    lock = kit.extra("job", client=own, session=session, timeout=600)
    assert await lock.acquire()
    lost = lock.lost
    # The number of locks of the session is as the client expects it.
    command(client, "DLOCK.ACQUIRE", "other", "somebody", "PX", 60_000, "SESSIONID", session.id)
    client.delete("job")
    with pytest.raises(redis_dlock.LockNotOwnedError):
        await lock.extend(10)
    assert await is_lost(lost)
    await session.close()


async def test_a_session_that_an_operator_closed_is_opened_again(kit: Kit, client: redis.Redis) -> None:
    session, own = await opened(kit, timeout=3)
    lock = kit.extra("job", client=own, session=session)
    assert await lock.acquire()
    lost = lock.lost
    command(client, "DLOCK.SESSION", session.id, "CLOSE")
    other = kit.extra("other", client=own, session=session)
    assert await other.acquire(), "this acquisition finds that the session was closed"
    assert await is_lost(lost)
    assert bound(client, session) == ["other"] and session.is_open
    await session.close()


async def test_a_wait_outlives_its_session_on_the_server(kit: Kit, client: redis.Redis) -> None:
    session, own = await opened(kit, timeout=3)
    command(client, "DLOCK.ACQUIRE", "job", "somebody")
    lock = kit.extra("job", client=own, session=session)
    plain = None if isinstance(kit, AsyncioKit) else lock._inner
    granted: list[bool] = []
    thread = threading.Thread(target=lambda: granted.append(plain.acquire())) if plain else None
    waiting = None if plain else asyncio.ensure_future(lock.acquire())
    if thread is not None:
        thread.start()
    for _ in range(2):
        await eventually("the request waits", lambda: waiters(client, "job") == 1)
        command(client, "DLOCK.SESSION", session.id, "CLOSE")
    await eventually("the request waits again", lambda: waiters(client, "job") == 1)
    command(client, "DLOCK.RELEASE", "job", "somebody")
    if thread is not None:
        await asyncio.to_thread(thread.join)
    assert granted == [True] if waiting is None else await waiting
    await eventually("the lock is bound", lambda: bound(client, session) == ["job"])
    await session.close()


async def test_a_release_that_failed_is_repeated(kit: Kit, client: redis.Redis) -> None:
    session, own = await opened(kit, timeout=3)
    lock = kit.extra("job", client=own, session=session)
    assert await lock.acquire()
    client.config_set("min-replicas-to-write", 1)
    try:
        with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
            await lock.release()
    finally:
        client.config_set("min-replicas-to-write", 0)
    await eventually("the session releases the lock", lambda: not info(client, "job"))
    assert session.is_open
    await session.close()


async def test_only_beats_keep_a_manual_session(kit: Kit, client: redis.Redis) -> None:
    session, own = await opened(kit, timeout=3, manual=True)
    lock = kit.extra("job", client=own, session=session)
    assert await lock.acquire()
    lost = lock.lost
    ends = time.monotonic() + 5
    while time.monotonic() < ends:
        session._inner.beat() if not isinstance(kit, AsyncioKit) else session.beat()
        assert not await is_lost(lost, 0.05)
    took = Took()
    # The last call of `beat` sends a heartbeat within a second, a third of the timeout of 3 s.
    assert await is_lost(lost) and took.seconds() > 1 and took.is_within(4 + 0.5)
    await eventually("the server frees the lock", lambda: not info(client, "job"))
    await session.close()


async def test_all_kinds_of_locks_use_a_session(kit: Kit, client: redis.Redis) -> None:
    session, own = await opened(kit, timeout=3)
    module: Any = redis_dlock.asyncio if isinstance(kit, AsyncioKit) else redis_dlock
    inner = session if isinstance(kit, AsyncioKit) else session._inner
    raw = own if isinstance(kit, AsyncioKit) else own._inner
    permit = module.DSemaphore(raw, "pool", 5, session=inner).permit(3)
    both = module.acquire_all(raw, ["a", "b"], session=inner)
    if isinstance(kit, AsyncioKit):
        assert await permit.acquire()
        both = await both
    else:
        assert permit.acquire()
    read = kit.extra("doc", client=own, session=session, mode="read", timeout=60)
    again = kit.extra("again", client=own, session=session, reentrant=True)
    for lock in (read, again, again):
        assert await lock.acquire()
    assert bound(client, session) == ["a", "again", "b", "doc", "pool"]
    assert client.pttl("doc") > 50_000, "a longer lease stays"
    assert await read.extend(1, replace_ttl=True)
    assert 8000 < client.pttl("doc") <= 9050, "and is never shorter than the session needs"
    await again.release()
    assert again.token and bound(client, session) == ["a", "again", "b", "doc", "pool"]
    await again.release()
    client.delete("b")
    assert await is_lost(both.lost), "both are lost when one is gone"
    assert permit.token
    await session.close()
    assert client.dbsize() == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_unexpected_error_in_the_heartbeats_loses_all_locks(
    kit: Kit, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, own = await opened(kit, timeout=3)
    lock = kit.extra("job", client=own, session=session)
    assert await lock.acquire()
    lost, of_session = lock.lost, session.lost

    def fails(*_: Any) -> None:
        raise ZeroDivisionError

    inner = session if isinstance(kit, AsyncioKit) else session._inner
    monkeypatch.setattr(inner, "_is_due", fails)
    assert await is_lost(lost, 5) and await is_lost(of_session, 5)
    with pytest.raises(redis_dlock.LockError, match="ZeroDivisionError"):
        await kit.extra("other", client=own, session=session).acquire()
    await session.close()


async def test_what_a_session_does_not_accept(kit: Kit, client: redis.Redis) -> None:
    own = kit.client()
    for timeout in (0.2, 3601):
        with pytest.raises(ValueError, match="timeout"):
            kit.session(client=own, timeout=timeout)
    session = kit.session(client=own)
    with pytest.raises(redis_dlock.LockError, match="not opened"):
        session.lost if isinstance(kit, AsyncioKit) else session._inner.lost
    with pytest.raises(redis_dlock.LockError, match="not opened"):
        await kit.extra("job", client=own, session=session).acquire()
    with pytest.raises(ValueError, match="another pool"):
        kit.extra("job", session=session)


async def test_without_a_server_a_session_does_not_open(kit: Kit) -> None:
    own = kit.client_of({"port": free_port()})
    session = kit.session(client=own)
    took = Took()
    with pytest.raises(redis.ConnectionError):
        await session.open()
    assert took.is_within(1.25)
    with Server(module=False) as server:
        with pytest.raises(redis_dlock.LockError, match="module"):
            await kit.session(client=kit.client_of({"port": server.port})).open()


def test_threads_share_a_session(client: redis.Redis) -> None:
    pool = redis.Redis(**address())
    with redis_dlock.Session(pool, timeout=3) as session:

        def work(number: int) -> None:
            for _ in range(20):
                with redis_dlock.DLock(pool, f"job:{number % 4}", session=session) as lock:
                    assert lock.token == info(client, lock.name)["token"]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not session.lost.is_set() and client.dbsize() == 0
    pool.close()


# A program that holds the lock `job` by a session with a timeout of 1.5 s, and prints when the lock is lost.
HOLD = """
import sys, redis, redis_dlock
client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))
session = redis_dlock.Session(client, timeout=1.5).open()
lock = redis_dlock.DLock(client, "job", session=session)
assert lock.acquire()
lost = lock.lost
print("held", flush=True)
lost.wait()
print("lost", flush=True)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_dies_or_hangs_keeps_nothing(client: redis.Redis, ending: signal.Signals) -> None:
    program = [sys.executable, "-c", HOLD, os.environ["DLOCK_TEST_HOST"], os.environ["DLOCK_TEST_PORT"]]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"held\n"
            process.send_signal(ending)
            took = Took()
            lock = redis_dlock.DLock(client, "job", timeout=10, blocking_timeout=20)
            assert lock.acquire()
            # The timeout of the session, the time in which the server notices its end, and 0.1 s for the grant.
            assert took.is_within(1.5 + 0.2 + 0.1)
            if ending == signal.SIGSTOP:
                process.send_signal(signal.SIGCONT)
                assert process.stdout.readline() == b"lost\n"
            lock.release()
        finally:
            process.kill()


def _in_child(session: redis_dlock.Session, answers: multiprocessing.queues.SimpleQueue[object]) -> None:
    """Uses the session of the parent process, and puts what happens into the queue."""
    try:
        redis_dlock.DLock(session.redis, "other", session=session).acquire()
        answers.put("acquired")
    except redis_dlock.LockError as error:
        answers.put(str(error))
    session.close()
    answers.put("closed")


def test_a_child_has_no_part_in_the_session_of_its_parent(client: redis.Redis) -> None:
    fork = multiprocessing.get_context("fork")
    with redis_dlock.Session(client) as session, redis_dlock.DLock(client, "job", session=session) as lock:
        answers = fork.SimpleQueue()
        child = fork.Process(target=_in_child, args=(session, answers))
        child.start()
        child.join()
        assert "forked" in str(answers.get()) and answers.get() == "closed"
        assert info(client, "job")["token"] == lock.token
