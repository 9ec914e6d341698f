"""The permissions that docs/permissions.md names are enough."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import Kit, address, command, info, refused
from servers import Server

PAGE = (Path(__file__).parents[3] / "docs/permissions.md").read_text()
# The permissions of the user `worker` of the page: the words with a plus in the commands that create this user.
LOCKS = [word for line in re.findall(r"> ACL SETUSER worker (.*)", PAGE) for word in line.split() if word[0] == "+"]
# The row for Python in the table of the packages: what locks need besides, and what a watch needs besides.
[(FOR_LOCKS, FOR_WATCH)] = re.findall(r"^\| Python \| (.*) \| (.*) \|$", PAGE, flags=re.MULTILINE)


def rules(cell: str) -> list[str]:
    """Returns the ACL rules in a cell of that table."""
    return [rule.replace("\\|", "|") for part in re.findall(r"`([+&][^`]*)`", cell) for rule in part.split()]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with a replica and two users: `locker` with the permissions for locks, `watcher` also with those for a
    watch."""
    with Server() as server, Server() as replica:
        replica.replicate(server)
        setuser = ["ACL", "SETUSER"]
        for user, more in (("locker", []), ("watcher", rules(FOR_WATCH))):
            words = ["reset", "on", ">secret", "~job:*", *LOCKS, *rules(FOR_LOCKS), *more]
            server.client.execute_command(*setuser, user, *words)  # type: ignore[no-untyped-call]
        yield server


def where(server: Server, user: str) -> dict[str, Any]:
    """Returns the settings of a client of this user."""
    return {"host": address()["host"], "port": server.port, "username": user, "password": "secret"}


def denied(server: Server) -> list[str]:
    """Returns the denied commands, except `CLIENT SETINFO`, which redis-py sends unasked and goes on without."""
    return [name for entry in server.client.acl_log() if "setinfo" not in (name := str(entry["object"]))]


async def test_a_user_of_the_page_locks(kit: Kit, server: Server) -> None:
    own = kit.client_of(where(server, "locker"))
    for settings in ({"timeout": 20}, {"timeout": 20, "session": True}, {}, {"timeout": 20, "replicas": 1}):
        for mode in ("exclusive", "read", "write"):
            lock = kit.extra("job:1", client=own, mode=mode, outage=3, **settings)
            assert await lock.acquire()
            writer = kit.extra("job:1", client=own, mode="write", timeout=20)
            assert await refused(lambda: writer.acquire(blocking_timeout=0.05))
            assert await lock.owned()
            await lock.release()
    assert denied(server) == []


def test_a_user_of_the_page_watches(server: Server) -> None:
    with redis.Redis(**where(server, "watcher")) as client:
        lock = redis_dlock.DLock(client, "job:1", timeout=20)
        with redis_dlock.watch(client, "job:1") as watcher:
            assert next(watcher) is None
            assert lock.acquire()
            holder = next(watcher)
            assert holder is not None and holder.token == lock.token
            lock.release()
            assert next(watcher) is None
    assert denied(server) == []


async def test_a_task_of_a_user_of_the_page_watches(server: Server) -> None:
    async with redis.asyncio.Redis(**where(server, "watcher")) as client:
        lock = redis_dlock.asyncio.DLock(client, "job:1", timeout=20)
        holders = redis_dlock.asyncio.watch(client, "job:1")
        assert await asyncio.wait_for(anext(holders), 20) is None
        assert await lock.acquire()
        holder = await asyncio.wait_for(anext(holders), 20)
        assert holder is not None and holder.token == lock.token
        await holders.aclose()
        await lock.release()
    assert denied(server) == []


def test_a_watch_without_its_permissions_is_refused(server: Server) -> None:
    with redis.Redis(**where(server, "locker")) as client:
        with pytest.raises(redis.exceptions.NoPermissionError), redis_dlock.watch(client, "job:1") as watcher:
            next(watcher)
    server.client.acl_log_reset()


async def test_a_user_who_may_not_renew_gets_what_is_certain(kit: Kit, server: Server) -> None:
    command(server.client, "ACL", "SETUSER", "locker", "-dlock.renew")
    own = kit.client_of(where(server, "locker"))
    try:
        assert command(server.client, "DLOCK.ACQUIRE", "job:1", "other", "PX", 1200)
        lock = kit.extra("job:1", client=own, timeout=30)
        assert await lock.acquire()
        # After a wait, the lease counts from the sending of the request. Only a renewal could prove more.
        assert 0 < lock.remaining < 29 and lock.token
        await lock.release()
        assert command(server.client, "DLOCK.ACQUIRE", "job:1", "other", "PX", 1200)
        # After the wait, nothing is certain of a lease that is shorter than the wait.
        with pytest.raises(redis.exceptions.NoPermissionError):
            await kit.extra("job:1", client=own, timeout=0.9).acquire()
        assert not info(server.client, "job:1"), "nothing is left"
    finally:
        command(server.client, "ACL", "SETUSER", "locker", "+dlock.renew")
        server.client.acl_log_reset()
