"""A command that binds a lock to its connection, and that the server executes after the end of this connection, ends no
lock that the program counts on."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.asyncio.cluster import RedisCluster as AsyncioCluster
from redis.cluster import RedisCluster
from redis.exceptions import ConnectionError, TimeoutError

import redis_dlock
import redis_dlock.asyncio
from cutting import CuttingProxy, Delay
from kit import Kit, Plain, PlainKit, certain_again, command, info, soon, waiters
from redis_dlock.attempt import Attempt
from redis_dlock.limits import Limits
from servers import Server
from test_lost import lost_already
from test_tls_and_sentinel import Sentinel

# Each kind of lock with a session of the connection, and the command that acquires it.
KINDS = {
    "exclusive": "acquire",
    "default": "acquire",
    "read": "rlock",
    "write": "wlock",
    "reentrant": "racquire",
    "permits": "sacquire",
    "slot": "sacquire",
    "several": "macquire",
}


def calls(client: redis.Redis, name: str) -> int:
    """Returns how often the server has executed a command."""
    return int(client.info("commandstats").get(f"cmdstat_dlock.{name}", {"calls": 0})["calls"])


def owners(client: redis.Redis, name: str = "job") -> list[str]:
    """Returns the owners that the server has."""
    return [hold["owner"] for hold in info(client, name, "FULL").get("holds", [])]


def made(kit: Kit, delay: Delay, kind: str, **settings: Any) -> Any:
    """Returns a lock of this kind that is not acquired yet. Its client connects through the proxy."""
    own = kit.client_of(delay.address)
    module: Any = redis_dlock if isinstance(own, Plain) else redis_dlock.asyncio
    its = own._inner if isinstance(own, Plain) else own
    settings = {"timeout": 600, "session": True, **settings}
    lock: Any
    if kind == "permits":
        lock = module.DSemaphore(its, "job", 3, **settings).permit(2)
    elif kind == "slot":
        lock = module.DSemaphore(its, "job", 3, slots=True, **settings).permit()
    elif kind == "several":
        # The object that `acquire_all` makes and then acquires.
        lock = module.acquire_all.__globals__["AllOf"](its, ["job", "other"], **settings)
    else:
        if kind == "default":
            settings = {}
        elif kind == "reentrant":
            settings["reentrant"] = True
        elif kind in ("read", "write"):
            settings["mode"] = kind
        return kit.extra("job", client=own, **settings)
    return Plain(lock) if isinstance(own, Plain) else lock


async def arrives(client: redis.Redis, delay: Delay, name: str) -> None:
    """Delivers the command, and waits for the end of its connection, too."""
    before = calls(client, name)
    delay.deliver()
    await asyncio.to_thread(soon, "the copy arrives", lambda: calls(client, name) > before)
    await asyncio.sleep(0.3)


@pytest.mark.parametrize("waits", [False, True], ids=["try", "wait"])
@pytest.mark.parametrize("kind", list(KINDS))
async def test_a_request_that_outlasts_its_connection_releases_nothing(
    kit: Kit, client: redis.Redis, delay: Delay, kind: str, waits: bool
) -> None:
    lock = made(kit, delay, kind)
    delay.keep("SESSION", breaks=True)
    assert await (lock.acquire() if waits else lock.acquire(blocking=False))
    lost = lock.lost
    assert delay.keeps.is_set()
    await arrives(client, delay, KINDS[kind])
    for name in ("job", "other") if kind == "several" else ("job",):
        assert owners(client, name) == [lock.owner.decode()]
        assert info(client, name)["count"] == (2 if kind == "permits" else 1)
    assert lock.remaining > 0 and not lost_already(lost)
    # The hold is bound to the connection that the client has.
    assert info(client, "job", "FULL")["holds"][0]["session"] is not None
    await lock.release()
    await asyncio.to_thread(soon, "nobody has it", lambda: not client.exists("job", "other"))


class HalfOpen(CuttingProxy):
    """A proxy whose server does not notice that a client has lost its connection."""

    def _serve(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while data := client.recv(65536):
                upstream.sendall(data)
                reply = upstream.recv(65536)
                if self._times and self._cut is not None and self._cut in data:
                    self._times -= 1
                    break
                client.sendall(reply)
        except OSError:
            pass
        finally:
            client.close()


async def test_a_grant_on_a_connection_that_broke_does_not_hold_up_the_next_request(
    kit: Kit, client: redis.Redis
) -> None:
    """The server still has the connection, and keeps the lock of the first request for as long as that."""
    proxy = HalfOpen()
    lock = kit.extra("job", client=kit.client_of(proxy.address), timeout=600, session=True)
    proxy.cut("SESSION")
    assert await lock.acquire(blocking=False)
    await asyncio.sleep(1.3)
    assert owners(client) == [lock.owner.decode()]
    await lock.release()
    assert not client.exists("job")
    proxy.close()


async def test_a_wait_that_outlasts_its_connection_releases_nothing(kit: Kit, client: redis.Redis, delay: Delay) -> None:
    """The command that is kept back is one with BLOCK: the lock was held when it was asked for."""
    command(client, "DLOCK.ACQUIRE", "job", "holder", "PX", 60_000)
    lock = made(kit, delay, "exclusive")
    delay.keep("BLOCK", breaks=True)

    def release() -> None:
        soon("the request waits", lambda: delay.keeps.is_set() and waiters(client, "job") == 1)
        command(client, "DLOCK.RELEASE", "job", "holder")

    thread = threading.Thread(target=release)
    thread.start()
    assert await lock.acquire(blocking_timeout=20)
    thread.join()
    lost = lock.lost
    await arrives(client, delay, "acquire")
    assert owners(client) == [lock.owner.decode()] and lock.remaining > 0 and not lost_already(lost)
    await lock.release()


@pytest.mark.parametrize("kind", ["exclusive", "write", "reentrant"])
async def test_a_named_owner_is_not_asked_for_again(kit: Kit, client: redis.Redis, delay: Delay, kind: str) -> None:
    lock = made(kit, delay, kind)
    delay.keep("SESSION", breaks=True)
    with pytest.raises((ConnectionError, TimeoutError)):
        await lock.acquire(token="me", blocking_timeout=5)
    await arrives(client, delay, KINDS[kind])
    await asyncio.to_thread(soon, "nobody has the lock", lambda: not client.exists("job"))
    assert await lock.acquire(token="me", blocking=False)
    assert lock.remaining > 0
    await lock.release()


async def test_an_upgrade_whose_connection_breaks_fails_and_leaves_the_reader(
    kit: Kit, client: redis.Redis, delay: Delay
) -> None:
    reader = kit.extra("job", timeout=600, mode="read")
    assert await reader.acquire()
    writer = made(kit, delay, "write")
    delay.keep("SESSION", breaks=True)
    with pytest.raises((ConnectionError, TimeoutError)):
        await writer.acquire(token=reader.owner, blocking_timeout=5)
    await arrives(client, delay, "wlock")
    await asyncio.to_thread(soon, "only the reader is left", lambda: info(client, "job").get("mode") == "shared")
    assert await reader.owned()
    assert await writer.acquire(token=reader.owner, blocking=False)
    assert writer.remaining > 0
    await writer.release()
    await reader.release()
    assert not client.exists("job")


@pytest.mark.parametrize("ends", ["before the grant", "after the grant"])
async def test_a_silent_connection_that_ends_later_is_as_one_that_broke(
    kit: Kit, client: redis.Redis, delay: Delay, ends: str
) -> None:
    """The repeat of a silent request is sent while the connection of the first is open."""
    command(client, "DLOCK.ACQUIRE", "job", "holder", "PX", 60_000)
    lock = made(kit, delay, "exclusive", wait_slice=1)
    delay.keep("BLOCK")

    def go_on() -> None:
        soon("a repeat waits", lambda: delay.keeps.is_set() and waiters(client, "job") >= 1)
        time.sleep(0.7)
        if ends == "before the grant":
            delay.part()
            soon("another owner waits", lambda: waiters(client, "job") >= 1)
            time.sleep(0.7)
        command(client, "DLOCK.RELEASE", "job", "holder")

    thread = threading.Thread(target=go_on)
    thread.start()
    assert await lock.acquire(blocking_timeout=20)
    thread.join()
    lost = lock.lost
    if ends == "after the grant":
        assert lock.remaining > 0 and not lost_already(lost)
        delay.part()
        ended = time.monotonic()
        while lock.remaining or not lost_already(lost):
            assert time.monotonic() < ended + 5, "the loss is told"
            await asyncio.sleep(0.01)
    await arrives(client, delay, "acquire")
    if ends == "before the grant":
        assert owners(client) == [lock.owner.decode()] and lock.remaining > 0 and not lost_already(lost)
        await lock.release()


async def test_a_lock_is_lost_if_a_command_that_binds_it_may_outlast_its_connection(
    kit: Kit, client: redis.Redis, delay: Delay
) -> None:
    client.config_set("dlock.session-grace", 60_000)
    try:
        lock = made(kit, delay, "exclusive")
        assert await lock.acquire()
        lost = lock.lost
        delay.keep("SESSION", breaks=True)
        client.client_kill_filter(_id=str(info(client, "job", "FULL")["holds"][0]["session"]))
        await asyncio.to_thread(soon, "the binding is kept back", delay.keeps.is_set)
        broken = time.monotonic()
        while not lost_already(lost):
            assert time.monotonic() < broken + 5, "the loss is told"
            assert lock.remaining == 0
            await asyncio.sleep(0.01)
        client.config_set("dlock.session-grace", 0)
        before = calls(client, "renew")
        delay.deliver()
        await asyncio.to_thread(soon, "the binding arrives", lambda: calls(client, "renew") > before)
        await asyncio.to_thread(soon, "its end releases the lock", lambda: not client.exists("job"))
        assert lock.remaining == 0
        with pytest.raises(redis_dlock.LockNotOwnedError):
            await lock.release()
    finally:
        client.config_set("dlock.session-grace", 0)


async def test_a_server_that_still_loads_its_data_ends_no_lock(kit: Kit, client: redis.Redis, delay: Delay) -> None:
    """The error of such a server is an answer: no late copy of the command that binds can follow."""
    client.config_set("dlock.session-grace", 60_000)
    try:
        lock = made(kit, delay, "exclusive")
        assert await lock.acquire()
        lost = lock.lost
        delay.refuse("RENEW", "-LOADING Redis is loading the dataset in memory\r\n")
        client.client_kill_filter(_id=str(info(client, "job", "FULL")["holds"][0]["session"]))
        await asyncio.to_thread(soon, "the binding is refused", delay.keeps.is_set)
        await certain_again(lock)
        assert not lost_already(lost)
        await lock.release()
        delay.keeps.clear()
        delay.refuse("ACQUIRE", "-LOADING Redis is loading the dataset in memory\r\n")
        assert await lock.acquire(token="me")
        assert delay.keeps.is_set()
        await lock.release()
    finally:
        client.config_set("dlock.session-grace", 0)


def test_the_next_request_is_that_of_another_owner() -> None:
    limits = Limits(0.0, 5.0)
    attempt = Attempt(limits, 10.0)
    attempt.nil(0.1, attempt.sends(0.0))
    attempt.sends(0.2)
    turn = attempt.orphaned(1.0)
    assert (turn.do, turn.fresh, attempt.may_be_granted) == ("wait", True, False)
    attempt.granted(1.5, attempt.sends(1.4))
    assert attempt.sent == 1.4, "the grant is not that of the first owner"
    assert Attempt(limits, 10.0).orphaned(5.1).do == "unreachable"


@pytest.mark.parametrize("owner", [None, "me"], ids=["own owner", "named owner"])
async def test_a_request_behind_a_string_whose_first_copy_has_no_answer_keeps_its_grant(
    kit: Kit, client: redis.Redis, delay: Delay, owner: str | None
) -> None:
    """The first copy is silent, the second is refused: a program has locked the key with `SET NX`."""
    client.set("job", "token")
    lock = made(kit, delay, "exclusive", sleep=0.2)
    delay.keep("SESSION")
    before = calls(client, "acquire")

    def go_on() -> None:
        soon("the second copy is refused", lambda: calls(client, "acquire") > before)
        client.delete("job")

    thread = threading.Thread(target=go_on)
    thread.start()
    assert await lock.acquire(blocking_timeout=20, token=owner)
    thread.join()
    assert delay.keeps.is_set()
    await arrives(client, delay, "acquire")
    assert owners(client) == [lock.owner.decode()] and lock.remaining > 0
    await lock.release()
    assert not client.exists("job")


@pytest.mark.parametrize("finds", ["cluster", "sentinel"])
async def test_a_server_that_is_found_by_others_is_asked_as_another_owner_too(
    kit: Kit, delay: Delay, finds: str
) -> None:
    """The proxy stands before a server of a cluster, or before the primary that Sentinel names."""
    port, plain = delay.address["port"], isinstance(kit, PlainKit)
    cluster = ("--cluster-enabled", "yes", "--cluster-announce-port", str(port)) if finds == "cluster" else ()
    with ExitStack() as stack:
        server = stack.enter_context(Server(*cluster))
        delay.lead(server.port)
        own: Any
        others: list[Any] = []
        if finds == "cluster":
            command(server.client, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            soon("it is ready", lambda: b"cluster_state:ok" in command(server.client, "CLUSTER", "INFO"))
            own = (RedisCluster if plain else AsyncioCluster)(**delay.address)
        else:
            sentinel = stack.enter_context(Sentinel(port))
            module: Any = redis.sentinel if plain else redis.asyncio.sentinel
            found = module.Sentinel([("127.0.0.1", sentinel.port)])
            own, others = found.master_for("main"), found.sentinels
        lock: Any = (redis_dlock if plain else redis_dlock.asyncio).DLock(own, "job", timeout=600, session=True)
        lock = Plain(lock) if plain else lock
        delay.keep("SESSION", breaks=True)
        assert await lock.acquire(blocking_timeout=20)
        await arrives(server.client, delay, "acquire")
        assert owners(server.client) == [lock.owner.decode()]
        await lock.release()
        await asyncio.to_thread(soon, "nobody has it", lambda: not server.client.exists("job"))
        for each in (own, *others):
            await Plain(each).close() if plain else await each.aclose()
