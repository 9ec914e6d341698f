"""Locks over TLS with a self-signed certificate, and locks of the primary that Sentinel names, through a failover."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

import redis_dlock
import redis_dlock.asyncio
from kit import PATIENCE, command, info, refused, soon
from machine import free_port
from servers import Server


# redis-py does not declare the types of its sentinel modules.
plain: Any = redis.sentinel
tasks: Any = redis.asyncio.sentinel


def openssl(home: Path, *words: str) -> None:
    """Runs openssl in the directory `home`."""
    subprocess.run(["openssl", *words], cwd=home, check=True, capture_output=True)


@pytest.fixture(scope="module")
def tls() -> Iterator[tuple[Server, dict[str, Any]]]:
    """A server that speaks TLS besides plain text, and the settings for a client of it."""
    with tempfile.TemporaryDirectory() as directory:
        home, port = Path(directory), free_port()
        openssl(home, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-days", "2", "-subj", "/CN=localhost",
                "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem")
        files = {name: str(home / f"{name}.pem") for name in ("key", "cert")}
        options = ["--tls-port", str(port), "--tls-auth-clients", "no", "--tls-key-file", files["key"]]
        options += ["--tls-cert-file", files["cert"], "--tls-ca-cert-file", files["cert"]]
        try:
            server = Server(*options)
        except AssertionError:
            # A server that is built without TLS ends at once: `--tls-port` is unknown to it.
            pytest.skip("this server has no TLS")
        with server:
            yield server, {"port": port, "ssl": True, "ssl_ca_certs": files["cert"]}


def test_threads_lock_and_wait_over_tls(tls: tuple[Server, dict[str, Any]]) -> None:
    server, settings = tls
    with redis.Redis(**settings) as client:
        for session in (False, True):
            with redis_dlock.DLock(client, "job", timeout=30, session=session) as lock:
                assert info(server.client, "job")["token"] == lock.token
                waiting = redis_dlock.DLock(client, "job", timeout=30)
                # The limit is in seconds: the first waiter waits in the queue, the second is refused at once.
                limit = 0 if session else 1
                assert asyncio.run(refused(lambda: asyncio.to_thread(waiting.acquire, blocking_timeout=limit)))
            soon("the lock is free", lambda: not info(server.client, "job"))
        with redis_dlock.watch(client, "job") as watcher:
            assert next(watcher) is None
            lock = redis_dlock.DLock(client, "job", timeout=30)
            assert lock.acquire()
            assert next(watcher) is not None
            lock.release()
    with redis.Redis(port=settings["port"], ssl=True, retry=Retry(NoBackoff(), 0)) as stranger:
        with pytest.raises(redis.ConnectionError):
            redis_dlock.DLock(stranger, "job", timeout=30).acquire(blocking=False)


async def test_tasks_lock_and_wait_over_tls(tls: tuple[Server, dict[str, Any]]) -> None:
    server, settings = tls
    async with redis.asyncio.Redis(**settings) as client:
        for session in (False, True):
            async with redis_dlock.asyncio.DLock(client, "task", timeout=30, session=session) as lock:
                assert info(server.client, "task")["token"] == lock.token
                waiting = redis_dlock.asyncio.DLock(client, "task", timeout=30)
                assert await refused(lambda: waiting.acquire(blocking_timeout=0 if session else 1))
            await asyncio.to_thread(soon, "the lock is free", lambda: not info(server.client, "task"))


class Sentinel(Server):
    """A Sentinel of the primary `main`."""

    def __init__(self, primary: int) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".conf", delete=False) as file:
            file.write(f"sentinel monitor main 127.0.0.1 {primary} 1\nsentinel down-after-milliseconds main 1000\n")
            file.write("sentinel failover-timeout main 5000\n")
        super().__init__(config=file.name, module=False)


def is_fit(sentinel: redis.Redis, port: int) -> bool:
    """Returns whether Sentinel knows one replica, the one at this port, and that its link to the primary is up. Then
    Sentinel can make it the primary."""
    replicas = [{str(name): value for name, value in each.items()} for each in sentinel.sentinel_slaves("main")]
    return [(each["port"], each["master-link-status"]) for each in replicas] == [(port, "ok")]


def fails_over(sentinel: redis.Redis) -> bool:
    """Asks Sentinel for a failover, and returns whether it begins one. Sentinel refuses until it knows that the replica
    is fit to be the primary."""
    try:
        return bool(command(sentinel, "SENTINEL", "FAILOVER", "main"))
    except redis.ResponseError:
        return False


def has(role: str, client: redis.Redis) -> bool:
    """Returns whether the server has this role. A server that changes its role closes its connections."""
    try:
        return bool(client.info("replication")["role"] == role)
    except redis.ConnectionError:
        return False


async def test_waits_go_on_through_a_failover_by_sentinel() -> None:
    """Two waits have a limit, and two have none. The primary is killed, and Sentinel promotes the replica a second or
    two later."""
    with Server() as primary, Server() as replica:
        replica.replicate(primary)
        with Sentinel(primary.port) as sentinel:
            where = [("127.0.0.1", sentinel.port)]
            threaded, tasked = plain.Sentinel(where), tasks.Sentinel(where)
            soon("Sentinel knows the replica", lambda: is_fit(sentinel.client, replica.port))
            holder = redis_dlock.DLock(primary.client, "job", timeout=600)
            assert holder.acquire()
            # The limits are in seconds; `None` is no limit.
            limits = (None, 150)
            threads = [redis_dlock.DLock(threaded.master_for("main"), "job", timeout=60) for _ in limits]
            others = [redis_dlock.asyncio.DLock(tasked.master_for("main"), "job", timeout=60) for _ in limits]
            waiting = [
                *(asyncio.ensure_future(asyncio.to_thread(take, lock, limit)) for lock, limit in zip(threads, limits)),
                *(asyncio.ensure_future(take_in_task(lock, limit)) for lock, limit in zip(others, limits)),
            ]
            await asyncio.to_thread(soon, "all four wait", lambda: info(primary.client, "job")["waiters"] == 4)
            soon("the replica has the hold", lambda: info(replica.client, "job").get("token") == holder.token)
            primary.close()
            await asyncio.to_thread(soon, "the replica is the primary", lambda: has("master", replica.client))
            await asyncio.to_thread(soon, "all four wait there", lambda: info(replica.client, "job")["waiters"] == 4)
            replica.client.delete("job")
            assert await asyncio.gather(*waiting) == [True] * 4
            for client in (*(lock.redis for lock in threads), *threaded.sentinels):
                client.close()
            for client in (*(lock.redis for lock in others), *tasked.sentinels):
                await client.aclose()


def take(lock: redis_dlock.DLock, limit: float | None) -> bool:
    """Acquires and releases the lock in the same thread, to which its hold belongs."""
    if acquired := lock.acquire(blocking_timeout=limit):
        soon("the client reaches a primary", lambda: reaches_a_primary(lock))
        lock.release()
    return acquired


def reaches_a_primary(lock: redis_dlock.DLock) -> bool:
    """Returns whether the client of the lock reaches a primary. On a busy machine, Sentinel counts a running server as
    down now and then, and names none."""
    try:
        return bool(lock.redis.ping())
    except redis.ConnectionError:
        return False


async def take_in_task(lock: redis_dlock.asyncio.DLock, limit: float | None) -> bool:
    """Acquires and releases the lock in the same task, as `take` does in a thread."""
    if acquired := await lock.acquire(blocking_timeout=limit):
        await asyncio.wait_for(until_it_reaches_a_primary(lock), PATIENCE)
        await lock.release()
    return acquired


async def until_it_reaches_a_primary(lock: redis_dlock.asyncio.DLock) -> None:
    """Waits until the client of the lock reaches a primary."""
    while True:
        try:
            await lock.redis.ping()
            return
        except redis.ConnectionError:
            await asyncio.sleep(0.05)


async def test_a_lock_of_the_primary_that_sentinel_names_survives_a_failover() -> None:
    with Server() as primary, Server() as replica:
        replica.replicate(primary)
        with Sentinel(primary.port) as sentinel:
            where = [("127.0.0.1", sentinel.port)]
            threaded, address = plain.Sentinel(where), ("127.0.0.1", replica.port)
            soon("Sentinel knows the replica", lambda: threaded.discover_slaves("main") == [address])
            lock = redis_dlock.DLock(threaded.master_for("main"), "job", timeout=60, replicas=1, replicas_timeout=20)
            tasked = tasks.Sentinel(where)
            task = redis_dlock.asyncio.DLock(tasked.master_for("main"), "task", timeout=60)
            assert lock.acquire() and await task.acquire()
            token = lock.token
            assert info(primary.client, "job")["token"] == token
            await asyncio.to_thread(soon, "Sentinel begins the failover", lambda: fails_over(sentinel.client))
            await asyncio.to_thread(soon, "the replica is the primary", lambda: has("master", replica.client))
            await asyncio.to_thread(soon, "Sentinel names it", lambda: threaded.discover_master("main") == address)
            await asyncio.to_thread(soon, "the old primary is a replica", lambda: has("slave", primary.client))
            assert info(replica.client, "job")["token"] == token
            lock.release()
            await task.release()
            assert not info(replica.client, "job") and not info(replica.client, "task")
            again = redis_dlock.DLock(threaded.master_for("main"), "job", timeout=60)
            assert again.acquire(blocking_timeout=20)
            assert info(replica.client, "job")["token"] == again.token > token
            again.release()
            for client in (lock.redis, again.redis, *threaded.sentinels):
                client.close()
            for client in (task.redis, *tasked.sentinels):
                await client.aclose()
