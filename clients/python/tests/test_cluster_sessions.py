"""A `Session` in a cluster: one heartbeat for each server that has locks of it, which follow their slots."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from redis.asyncio.cluster import RedisCluster as AsyncioCluster
from redis.cluster import RedisCluster

import redis_dlock
from kit import AsyncioKit, Kit, Plain, Took, command, info, soon
from servers import Server
from test_cluster import Node, knows, two_nodes, with_slot
from test_lost import is_lost, lost_already
from test_named_sessions import calls

NAMES = [f"job:{number}" for number in range(20)]


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    with two_nodes() as nodes:
        yield nodes


def cluster_of(kit: Kit, node: Node) -> Any:
    """Returns a client of the cluster, which the kit closes."""
    if isinstance(kit, AsyncioKit):
        kit._clients.append(AsyncioCluster(host="127.0.0.1", port=node.port))
        return kit._clients[-1]
    kit._clients.append(RedisCluster(host="127.0.0.1", port=node.port))
    return Plain(kit._clients[-1])


async def holding(kit: Kit, own: Any, timeout: float) -> tuple[Any, list[Any]]:
    """Opens a session and acquires twenty locks with it, on both servers."""
    session = kit.session(client=own, timeout=timeout)
    await session.open()
    locks = [kit.extra(name, client=own, session=session) for name in NAMES]
    for lock in locks:
        assert await lock.acquire()
    return session, locks


def split(nodes: list[Node], locks: list[Any]) -> tuple[list[Any], list[Any]]:
    """Returns the locks on the first and those on the second server."""
    first = [lock for lock in locks if with_slot(nodes, lock.name)[0] is nodes[0]]
    return first, [lock for lock in locks if lock not in first]


def bound(client: redis.Redis) -> set[str]:
    """Returns the names of the locks that a server has bound to a named session: only then `session` is a text."""
    keys = [key.decode() if isinstance(key, bytes) else key for key in client.keys("job:*")]
    holds = {key: info(client, key, "FULL").get("holds", []) for key in keys}
    return {key for key, found in holds.items() if found and isinstance(found[0]["session"], str)}


def migrate(nodes: list[Node], name: str) -> None:
    """Moves the slot of a lock, and the lock, to the other server."""
    slot = command(nodes[0].client, "CLUSTER", "KEYSLOT", name)
    here, there = with_slot(nodes, name)
    command(there.client, "CLUSTER", "SETSLOT", slot, "IMPORTING", here.id)
    command(here.client, "CLUSTER", "SETSLOT", slot, "MIGRATING", there.id)
    assert command(here.client, "MIGRATE", "127.0.0.1", there.port, name, 0, 5000) == b"OK"
    for node in (there, here):
        command(node.client, "CLUSTER", "SETSLOT", slot, "NODE", there.id)


async def test_one_heartbeat_for_each_server(kit: Kit, nodes: list[Node]) -> None:
    own = cluster_of(kit, nodes[0])
    session, locks = await holding(kit, own, timeout=3)
    for node, some in zip(nodes, split(nodes, locks)):
        assert bound(node.client) == {lock.name for lock in some} and some
        node.client.config_resetstat()
    first = locks[0].name
    client = with_slot(nodes, first)[0].client
    # The lease is three timeouts, 9 s. The server extends it when a third has passed.
    await asyncio.to_thread(soon, "2 s of the lease have passed", lambda: client.pttl(first) < 7000)
    await asyncio.to_thread(soon, "the server extends the lease", lambda: client.pttl(first) > 8000)
    for node in nodes:
        await asyncio.to_thread(soon, "heartbeats go on", lambda: calls(node.client, "session") > 1)
        # The session sends one heartbeat each second, for any number of locks.
        assert calls(node.client, "session") <= 10 and calls(node.client, "renew") == 0
    for lock in locks:
        assert lock.token == info(with_slot(nodes, lock.name)[0].client, lock.name)["token"]
    await locks[0].release()
    for node in nodes:
        node.client.config_resetstat()
    assert session.is_open
    await session.close()
    for node in nodes:
        # The end is one command. A heartbeat may have been due as well.
        assert 1 <= calls(node.client, "session") <= 2 and calls(node.client, "release") == 0
    assert not any(info(with_slot(nodes, lock.name)[0].client, lock.name) for lock in locks)
    assert all(lost_already(lock.lost) for lock in locks[1:])
    with pytest.raises(redis_dlock.LockError, match="closed"):
        await kit.extra("other", client=own, session=session).acquire()


async def test_a_lock_is_bound_on_the_server_that_its_slot_moves_to(kit: Kit, nodes: list[Node]) -> None:
    session, locks = await holding(kit, cluster_of(kit, nodes[0]), timeout=6)
    losses, tokens = [lock.lost for lock in locks], [lock.token for lock in locks]
    moved = [some[0] for some in split(nodes, locks)]
    for lock in moved:
        migrate(nodes, lock.name)
    for lock in moved:
        there = with_slot(nodes, lock.name)[0]
        await asyncio.to_thread(soon, "the lock is bound on the other server", lambda: lock.name in bound(there.client))
    before = [calls(node.client, "session") for node in nodes]
    for node, count in zip(nodes, before):
        await asyncio.to_thread(soon, "each server gets heartbeats", lambda: calls(node.client, "session") > count + 1)
    assert not any(map(lost_already, losses)) and [lock.token for lock in locks] == tokens
    await moved[0].release()
    await session.close()
    assert not any(node.client.keys("job:*") for node in nodes)


@contextmanager
def replica_of(nodes: list[Node]) -> Iterator[Server]:
    """A replica of the first server."""
    with Server("--cluster-enabled", "yes", "--cluster-node-timeout", "5000") as replica:
        command(replica.client, "CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
        soon("all nodes know the replica", lambda: all(knows(each, 3) for each in [replica, *nodes]))
        soon("REPLICATE is accepted", lambda: command(replica.client, "CLUSTER", "REPLICATE", nodes[0].id) == b"OK")
        soon("the replica is in sync", lambda: replica.client.info("replication")["master_link_status"] == "up")
        yield replica


def takes_over(replica: Server, before: Node) -> bool:
    """Makes a replica take over, and returns whether the old primary replicates it. The cluster undoes a takeover if
    another node has the same epoch: the next call asks for it again."""
    if replica.client.info("replication")["role"] == "slave":
        assert command(replica.client, "CLUSTER", "FAILOVER", "TAKEOVER") == b"OK"
    return bool(before.client.info("replication")["role"] == "slave")


async def test_a_session_begins_on_the_next_primary(kit: Kit, nodes: list[Node]) -> None:
    """When the session opens, the client still takes the old primary for the primary."""
    with replica_of(nodes) as replica:
        own = cluster_of(kit, nodes[1])
        name = next(name for name in NAMES if with_slot(nodes, name)[0] is nodes[0])
        lock = kit.extra(name, client=own)
        assert await lock.acquire()
        await lock.release()
        soon("the replica takes over", lambda: takes_over(replica, nodes[0]))
        clients = [replica.client, *(node.client for node in nodes)]
        # For up to two seconds, a new primary reports that the cluster is down.
        soon("it is up", lambda: all(b"cluster_state:ok" in command(each, "CLUSTER", "INFO") for each in clients))
        session = kit.session(client=own, timeout=12)
        await session.open()
        # An acquisition without a wait looks for a server for a second. redis-py, reading the slots again, needs more.
        lock = kit.extra(name, client=own, session=session, blocking_timeout=10)
        assert await lock.acquire() and bound(replica.client) == {name}
        await session.close()


async def test_locks_are_bound_on_the_next_primary(kit: Kit, nodes: list[Node]) -> None:
    with replica_of(nodes) as replica:
        session, locks = await holding(kit, cluster_of(kit, nodes[1]), timeout=12)
        losses, tokens = [lock.lost for lock in locks], [lock.token for lock in locks]
        of_first = {lock.name for lock in split(nodes, locks)[0]}
        soon("the replica has all its locks", lambda: len(replica.client.keys("job:*")) == len(of_first))
        nodes[0].freeze()
        assert command(replica.client, "CLUSTER", "FAILOVER", "TAKEOVER") == b"OK"
        soon("the cluster is up", lambda: b"cluster_state:ok" in command(replica.client, "CLUSTER", "INFO"))
        await asyncio.to_thread(soon, "the locks are bound there", lambda: bound(replica.client) == of_first)
        assert not any(map(lost_already, losses)) and [lock.token for lock in locks] == tokens
        await session.close()
        assert not replica.client.keys("job:*") and not nodes[1].client.keys("job:*")


async def test_a_server_that_hangs_costs_only_its_locks(kit: Kit, nodes: list[Node]) -> None:
    own = cluster_of(kit, nodes[0])
    session, locks = await holding(kit, own, timeout=2)
    hanging, others = split(nodes, locks)
    losses, kept = [lock.lost for lock in hanging], [lock.lost for lock in others]
    nodes[0].freeze()
    for lost in losses:
        assert await is_lost(lost)
    assert not any(map(lost_already, kept)) and not lost_already(session.lost)
    with pytest.raises(redis_dlock.LockNotOwnedError):
        hanging[0].token
    assert others[0].token
    nodes[0].thaw()
    await asyncio.to_thread(soon, "the server frees its locks, too", lambda: not nodes[0].client.keys("job:*"))
    again = kit.extra(hanging[0].name, client=own, session=session, blocking_timeout=20)
    assert await again.acquire() and again.token
    await session.close()
    assert not any(node.client.keys("job:*") for node in nodes)


async def test_a_close_fails_within_a_second_if_all_servers_hang(kit: Kit, nodes: list[Node]) -> None:
    own = cluster_of(kit, nodes[0])
    session, _ = await holding(kit, own, 60)
    for node in nodes:
        node.freeze()
    took = Took()
    with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
        await session.close()
    in_time = took.is_within(1.3)
    for node in nodes:
        node.thaw()
    assert in_time
