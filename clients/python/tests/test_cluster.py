"""In a cluster the lock is where its key is, and goes where its slot goes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster as AsyncioCluster
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

import dlock
import dlock.asyncio
from kit import command, info, soon, waiters

MODULE = Path(__file__).parents[3] / "target/release/libdlock.so"
SLOTS = 16384


class Node:
    """A server of the cluster."""

    def __init__(self, home: Path, first: int, last: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1] % 10_000 + 11_000
        binary = os.environ.get("DLOCK_SERVER") or shutil.which("redis-server") or "valkey-server"
        module = os.environ.get("DLOCK_MODULE") or str(MODULE)
        words = [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(home), "--save", ""]
        words += ["--cluster-enabled", "yes", "--cluster-node-timeout", "5000", "--loadmodule", module]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        self.client = redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0))
        soon("it answers", self._answers)
        command(self.client, "CLUSTER", "ADDSLOTSRANGE", first, last)
        self.id: str = command(self.client, "CLUSTER", "MYID").decode()

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def ready(self) -> bool:
        """Whether it knows the whole cluster."""
        state = command(self.client, "CLUSTER", "INFO")
        return b"cluster_state:ok" in state and b"cluster_known_nodes:2" in state

    def close(self) -> None:
        """Ends it."""
        self.client.close()
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Two of them, with half of the slots each."""
    halves = [(0, SLOTS // 2 - 1), (SLOTS // 2, SLOTS - 1)]
    with ExitStack() as stack:
        nodes = [stack.enter_context(closing(Node(tmp_path_factory.mktemp("node"), *half))) for half in halves]
        command(nodes[0].client, "CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
        soon("they know each other", lambda: all(node.ready() for node in nodes))
        yield nodes


def with_slot(nodes: list[Node], name: str) -> tuple[Node, Node]:
    """The node that has the key's slot, and the other one."""
    slots = command(nodes[0].client, "CLUSTER", "KEYSLOT", name)
    owners = command(nodes[0].client, "CLUSTER", "SLOTS")
    here = next(range_[2][1] for range_ in owners if range_[0] <= slots <= range_[1])
    return (nodes[0], nodes[1]) if nodes[0].port == here else (nodes[1], nodes[0])


def move(nodes: list[Node], name: str) -> None:
    """Gives the slot of a key that does not exist to the other node, without telling any client."""
    slot = command(nodes[0].client, "CLUSTER", "KEYSLOT", name)
    here, there = with_slot(nodes, name)
    for node in (there, here):
        command(node.client, "CLUSTER", "SETSLOT", slot, "NODE", there.id)


@pytest.mark.parametrize("timeout", [20, None])
def test_threads(nodes: list[Node], timeout: float | None) -> None:
    client: Any = RedisCluster(host="127.0.0.1", port=nodes[0].port)
    for name in ("a", "b", "c"):
        holder = client.lock(name, timeout=timeout, lock_class=dlock.DLock, thread_local=False)
        assert holder.acquire() and holder.owned() and holder.locked()
        here, _ = with_slot(nodes, name)
        assert info(here.client, name)["token"] == holder.token
        _served_by(here, name, holder, client.lock(name, timeout=timeout, lock_class=dlock.DLock))
        move(nodes, name)
        with client.lock(name, timeout=20, lock_class=dlock.DLock) as lock:
            assert lock.extend(10)
            here, _ = with_slot(nodes, name)
            assert info(here.client, name)["token"] == lock.token
    client.close()


def _served_by(node: Node, name: str, holder: dlock.DLock, waiter: dlock.DLock) -> None:
    def release() -> None:
        soon("it waits", lambda: waiters(node.client, name) == 1)
        holder.release()

    thread = threading.Thread(target=release)
    thread.start()
    assert waiter.acquire(blocking_timeout=20)
    thread.join()
    waiter.release()


@pytest.mark.parametrize("timeout", [20, None])
async def test_tasks(nodes: list[Node], timeout: float | None) -> None:
    client: Any = AsyncioCluster(host="127.0.0.1", port=nodes[0].port)
    for name in ("a", "b", "c"):
        async with client.lock(name, timeout=timeout, lock_class=dlock.asyncio.DLock) as lock:
            here, _ = with_slot(nodes, name)
            assert info(here.client, name)["token"] == lock.token
            other = client.lock(name, timeout=timeout, lock_class=dlock.asyncio.DLock)
            assert await other.acquire(blocking_timeout=0.05) is False
            assert await lock.owned()
        move(nodes, name)
        async with client.lock(name, timeout=20, lock_class=dlock.asyncio.DLock) as lock:
            assert await lock.extend(10)
            here, _ = with_slot(nodes, name)
            assert info(here.client, name)["token"] == lock.token
    await client.aclose()
