"""A server that becomes a replica while a lock of it is acquired, kept or released: its answers do not count."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError, TimeoutError

import redis_dlock
from cutting import Delay
from kit import Kit, Took, command, info, soon, waiters
from servers import Server

NO_ANSWER = (ConnectionError, TimeoutError)
# Errors of a server that is no primary; "in time": the limit has cut the last try short.
NO_PRIMARY = "read only replica|WAIT cannot be used|UNBLOCKED|in time"


def at(server: Server) -> dict[str, Any]:
    """Returns the address of a server, as arguments of a client."""
    return {"host": "127.0.0.1", "port": server.port}


class Servers:
    """Two servers, and a way to the first one."""

    def __init__(self, primary: Server, replica: Server) -> None:
        self.primary, self.replica = primary, replica
        self.way = Delay(primary.port)

    def swap(self, *, leads: bool = False) -> None:
        """Makes the replica the primary. `leads`: new connections on the way lead to it."""
        self.replica.client.replicaof("NO", "ONE")
        self.primary.client.replicaof("127.0.0.1", str(self.replica.port))
        if leads:
            self.way.lead(self.replica.port)

    def demote_then(self, *, leads: bool) -> None:
        """Swaps the servers when a command is kept back and the replica has the grant. Delivers the command then."""
        soon("the command is on its way", self.way.keeps.is_set)
        soon("the replica has the grant", lambda: bool(info(self.replica.client, "job")))
        self.swap(leads=leads)
        self.way.deliver()


@pytest.fixture
def servers() -> Iterator[Servers]:
    """A primary and its replica."""
    with Server() as primary, Server() as replica:
        replica.replicate(primary)
        servers = Servers(primary, replica)
        yield servers
        servers.way.close()


def calling(lock: Any, method: str, **settings: Any) -> asyncio.Future[Any]:
    """Calls a method of a lock, in a thread if the lock is one of threads."""
    inner = getattr(lock, "_inner", None)
    call = getattr(lock if inner is None else inner, method)
    return asyncio.ensure_future(call(**settings) if inner is None else asyncio.to_thread(call, **settings))


class Asked:
    """A lock whose acquisition is stopped midway: the way keeps one of its commands back."""

    def __init__(self, kit: Kit, servers: Servers, **settings: Any) -> None:
        self._servers = servers
        told = {"timeout": 30, "replicas": 1, "replicas_timeout": 20, "thread_local": False, **settings}
        self.lock = kit.extra("job", client=kit.client_of(servers.way.address), **told)
        self._holder = kit.extra("job", client=kit.client_of(at(servers.primary)), timeout=60)

    async def begin(self, word: str, *, waits: bool, **settings: Any) -> asyncio.Future[Any]:
        """Begins to acquire the lock, and keeps the command `word` back. `waits`: another owner has the lock first."""
        if waits:
            assert await self._holder.acquire()
        else:
            self._servers.way.keep(word)
        acquiring = calling(self.lock, "acquire", **settings)
        if waits:
            await asyncio.to_thread(soon, "it is queued", lambda: waiters(self._servers.primary.client, "job") == 1)
            self._servers.way.keep(word)
            await self._holder.release()
        return acquiring


# The command that is kept back, and whether the acquisition waits for another owner first.
COMMANDS = [("WAIT", False), ("WAIT", True), ("RENEW", True)]


@pytest.mark.parametrize(("word", "waits"), COMMANDS)
@pytest.mark.parametrize("session", [False, True])
async def test_a_lock_is_acquired_from_the_new_primary(
    kit: Kit, servers: Servers, word: str, waits: bool, session: bool
) -> None:
    asked = Asked(kit, servers, session=session)
    acquiring = await asked.begin(word, waits=waits)
    await asyncio.to_thread(servers.demote_then, leads=True)
    assert await acquiring
    assert info(servers.replica.client, "job")["token"] == asked.lock.token
    assert asked.lock.remaining > 0
    await asked.lock.release()
    await asyncio.to_thread(soon, "it is released", lambda: not info(servers.replica.client, "job"))


@pytest.mark.parametrize(("word", "waits"), COMMANDS)
async def test_a_server_that_stays_a_replica_is_no_answer(kit: Kit, servers: Servers, word: str, waits: bool) -> None:
    limits: dict[str, Any] = {} if waits else {"blocking_timeout": 4}
    asked = Asked(kit, servers, outage=4)
    acquiring = await asked.begin(word, waits=waits, **limits)
    await asyncio.to_thread(servers.demote_then, leads=False)
    took = Took()
    with pytest.raises(NO_ANSWER, match=NO_PRIMARY):
        await acquiring
    assert took.is_within(4.25)
    with pytest.raises(redis_dlock.LockError):
        await asked.lock.release()


async def test_a_wait_for_replicas_that_a_demotion_ends_is_no_answer(kit: Kit, servers: Servers) -> None:
    asked = Asked(kit, servers)
    servers.replica.freeze()
    acquiring = calling(asked.lock, "acquire")
    waits = lambda: any(each["cmd"] == "wait" for each in servers.primary.client.client_list())  # noqa: E731
    await asyncio.to_thread(soon, "it waits for the replicas", waits)
    servers.primary.client.replicaof("127.0.0.1", str(servers.replica.port))
    servers.replica.thaw()
    servers.swap(leads=True)
    assert await acquiring
    assert info(servers.replica.client, "job")["token"] == asked.lock.token
    await asked.lock.release()


async def test_a_grant_that_the_new_primary_lacks_does_not_count(kit: Kit, servers: Servers) -> None:
    asked = Asked(kit, servers)
    acquiring = await asked.begin("WAIT", waits=False, blocking_timeout=20)

    def change() -> None:
        soon("the command is on its way", servers.way.keeps.is_set)
        soon("the replica has the grant", lambda: bool(info(servers.replica.client, "job")))
        servers.replica.client.replicaof("NO", "ONE")
        servers.replica.client.flushall()
        assert command(servers.replica.client, "DLOCK.ACQUIRE", "job", "other", "PX", 60000)
        servers.swap(leads=True)
        servers.way.deliver()
        soon("it waits on the new primary", lambda: waiters(servers.replica.client, "job") == 1)
        assert not acquiring.done()
        command(servers.replica.client, "DLOCK.RELEASE", "job", "other")

    await asyncio.to_thread(change)
    assert await acquiring
    assert info(servers.replica.client, "job")["token"] == asked.lock.token
    await asked.lock.release()


@pytest.mark.parametrize("settings", [{}, {"replicas": 1}, {"session": True}, {"replicas": 1, "session": True}])
async def test_what_a_demoted_server_says_of_a_lock_that_is_held_is_no_answer(
    kit: Kit, servers: Servers, settings: dict[str, Any]
) -> None:
    own = kit.client_of(at(servers.primary))
    lock = kit.extra("job", client=own, timeout=30, replicas_timeout=20, **settings)
    assert await lock.acquire()
    servers.swap()
    with pytest.raises(NO_ANSWER, match=NO_PRIMARY):
        await lock.extend(20)
    with pytest.raises(NO_ANSWER, match=NO_PRIMARY):
        await lock.release()


async def test_a_release_that_only_a_replica_has_read_has_not_released(kit: Kit, servers: Servers) -> None:
    lock = kit.extra("job", client=kit.client_of(servers.way.address), timeout=30)
    assert await lock.acquire()
    await asyncio.to_thread(soon, "it is replicated", lambda: bool(info(servers.replica.client, "job")))
    servers.replica.client.replicaof("NO", "ONE")
    servers.replica.client.delete("job")
    servers.swap(leads=True)
    with pytest.raises(redis_dlock.LockNotOwnedError):
        await lock.release()


async def test_a_server_that_is_a_replica_for_long_is_an_outage(kit: Kit, servers: Servers) -> None:
    took, attempts = Took(), []
    for settings, limits in (({}, {}), ({"session": True}, {}), ({"replicas": 1}, {}), ({}, {"blocking_timeout": 4})):
        own = kit.client_of(at(servers.replica))
        attempts.append(calling(kit.extra("job", client=own, timeout=30, outage=4, **settings), "acquire", **limits))
    await asyncio.wait(attempts)
    assert took.is_within(4.25)
    for attempt in attempts:
        with pytest.raises(NO_ANSWER, match=NO_PRIMARY):
            await attempt
