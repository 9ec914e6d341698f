"""In a cluster, a lock is on the node that has the slot of its key. Clients find the node, also after the slot
moved."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster as AsyncioCluster
from redis.cluster import RedisCluster

import redis_dlock
import redis_dlock.asyncio
from kit import Took, command, info, refused, soon, waiters
from servers import Server

SLOTS = 16384


class Node(Server):
    """A server of the cluster."""

    def __init__(self, first: int, last: int, epoch: int) -> None:
        super().__init__("--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
        command(self.client, "CLUSTER", "ADDSLOTSRANGE", first, last)
        command(self.client, "CLUSTER", "SET-CONFIG-EPOCH", epoch)
        self.id: str = command(self.client, "CLUSTER", "MYID").decode()

    def ready(self) -> bool:
        """Returns whether this node knows the whole cluster."""
        return b"cluster_state:ok" in command(self.client, "CLUSTER", "INFO") and knows(self, 2)


def knows(server: Server, nodes: int) -> bool:
    """Returns whether a server knows this many nodes, and the latest epoch, that of the second node. A replica that
    does not know this epoch would take over with the same number, and the cluster would undo the takeover."""
    state = command(server.client, "CLUSTER", "INFO")
    return b"cluster_known_nodes:%d" % nodes in state and b"cluster_current_epoch:2" in state


@contextmanager
def two_nodes() -> Iterator[list[Node]]:
    """Starts a cluster of two servers with half of the slots each."""
    halves = [(0, SLOTS // 2 - 1, 1), (SLOTS // 2, SLOTS - 1, 2)]
    with ExitStack() as stack:
        nodes = [stack.enter_context(Node(*half)) for half in halves]
        command(nodes[0].client, "CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
        soon("the nodes know each other", lambda: all(node.ready() for node in nodes))
        yield nodes


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Node]]:
    with two_nodes() as nodes:
        yield nodes


def with_slot(nodes: list[Node], name: str) -> tuple[Node, Node]:
    """Returns the node that has the key's slot, and the other one."""
    slot = command(nodes[0].client, "CLUSTER", "KEYSLOT", name)
    ranges = command(nodes[0].client, "CLUSTER", "SLOTS")
    here = next(owner[1] for first, last, owner, *_ in ranges if first <= slot <= last)
    return (nodes[0], nodes[1]) if nodes[0].port == here else (nodes[1], nodes[0])


def move(nodes: list[Node], name: str) -> None:
    """Gives the slot of a key that does not exist to the other node, without telling any client."""
    slot = command(nodes[0].client, "CLUSTER", "KEYSLOT", name)
    here, there = with_slot(nodes, name)
    # A node that imports a slot gets a higher epoch: without it, gossip of the old node could take the slot back.
    command(there.client, "CLUSTER", "SETSLOT", slot, "IMPORTING", here.id)
    command(here.client, "CLUSTER", "SETSLOT", slot, "MIGRATING", there.id)
    for node in (there, here):
        command(node.client, "CLUSTER", "SETSLOT", slot, "NODE", there.id)


@pytest.mark.parametrize("timeout", [20, None])
def test_threads_find_the_node_of_a_lock(nodes: list[Node], timeout: float | None) -> None:
    client: Any = RedisCluster(host="127.0.0.1", port=nodes[0].port)
    for name in ("a", "b", "c"):
        holder = client.lock(name, timeout=timeout, lock_class=redis_dlock.DLock, thread_local=False)
        assert holder.acquire() and holder.owned() and holder.locked()
        here, _ = with_slot(nodes, name)
        assert info(here.client, name)["token"] == holder.token
        _served_by(here, name, holder, client.lock(name, timeout=timeout, lock_class=redis_dlock.DLock))
        move(nodes, name)
        with client.lock(name, timeout=20, lock_class=redis_dlock.DLock) as lock:
            assert lock.extend(10)
            here, _ = with_slot(nodes, name)
            assert info(here.client, name)["token"] == lock.token
    client.close()


def _served_by(node: Node, name: str, holder: redis_dlock.DLock, waiter: redis_dlock.DLock) -> None:
    def release() -> None:
        soon("the second lock waits", lambda: waiters(node.client, name) == 1)
        holder.release()

    thread = threading.Thread(target=release)
    thread.start()
    assert waiter.acquire(blocking_timeout=20)
    thread.join()
    waiter.release()


@pytest.mark.parametrize("timeout", [20, None])
async def test_tasks_find_the_node_of_a_lock(nodes: list[Node], timeout: float | None) -> None:
    client: Any = AsyncioCluster(host="127.0.0.1", port=nodes[0].port)
    for name in ("a", "b", "c"):
        async with client.lock(name, timeout=timeout, lock_class=redis_dlock.asyncio.DLock) as lock:
            here, _ = with_slot(nodes, name)
            assert info(here.client, name)["token"] == lock.token
            other = client.lock(name, timeout=timeout, lock_class=redis_dlock.asyncio.DLock)
            assert await refused(lambda: other.acquire(blocking_timeout=0.05))
            assert await lock.owned()
        move(nodes, name)
        async with client.lock(name, timeout=20, lock_class=redis_dlock.asyncio.DLock) as lock:
            assert await lock.extend(10)
            here, _ = with_slot(nodes, name)
            assert info(here.client, name)["token"] == lock.token
    await client.aclose()


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_every_call_has_a_limit_when_the_server_of_the_key_hangs(kind: str) -> None:
    """The client has no time limits of its own, as with redis-py up to 7."""
    settings: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": None}
    with two_nodes() as cluster:
        here, _ = with_slot(cluster, "job")
        if kind == "threads":
            plain = RedisCluster(host="127.0.0.1", port=cluster[0].port, **settings)
            held: Any = redis_dlock.DLock(plain, "job", timeout=600, thread_local=False)
            assert held.acquire()
        else:
            own = AsyncioCluster(host="127.0.0.1", port=cluster[0].port, **settings)
            held = redis_dlock.asyncio.DLock(own, "job", timeout=600)
            assert await held.acquire()
        calls = (held.locked, held.owned, lambda: held.extend(60), held.reacquire, held.release)
        here.freeze()
        took = Took()
        tasks = [asyncio.ensure_future(asyncio.to_thread(call) if kind == "threads" else call()) for call in calls]
        _, going_on = await asyncio.wait(tasks, timeout=12)
        # Each call has five seconds (`redis_py.ANSWER`).
        in_time = took.is_within(5.3)
        here.thaw()
        assert in_time and not going_on
        assert [isinstance(each.exception(), (redis.ConnectionError, redis.TimeoutError)) for each in tasks] == [True] * 5
        if kind == "threads":
            plain.close()
        else:
            await own.aclose()
