"""No call takes longer than docs/time-limits.md says, whatever the server does. The scenarios `outage_…` of the
conformance suite check most of it; here is what they cannot do."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import Kit, Took, info, soon
from servers import Server

# As with redis-py up to 6.4: by itself, the client waits forever.
PATIENT: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": None}
# The time that the rule grants, and the tolerance of measuring, in seconds.
SLACK = 0.25 + 0.05


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that may be frozen."""
    with Server() as server:
        yield server


class Interrupted(BaseException):
    """As `KeyboardInterrupt`."""


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGUSR1 interrupts the main thread, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("settings", [{"timeout": 600}, {"timeout": 600, "session": True}], ids=["lease", "session"])
@pytest.mark.parametrize(
    ("held", "hangs"), [(True, "before"), (True, "meanwhile"), (False, "before")], ids=["held", "waiting", "free"]
)
def test_an_interrupt_does_not_wait_for_a_server_that_hangs(
    server: Server, interrupts: None, settings: dict[str, Any], held: bool, hangs: str
) -> None:
    client = redis.Redis(port=server.port, **PATIENT)
    client.ping()
    holder = redis_dlock.DLock(server.client, "job", timeout=600)
    assert not held or holder.acquire()
    interrupted: list[Took] = []

    def interrupt() -> None:
        if hangs == "meanwhile":
            soon("it waits", lambda: info(server.client, "job")["waiters"] == 1)
            server.freeze()
        time.sleep(0.3)
        interrupted.append(Took())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    if hangs == "before":
        server.freeze()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted):
        redis_dlock.DLock(client, "job", **settings).acquire()
    in_time = interrupted[0].is_within(SLACK)
    thread.join()
    server.thaw()
    assert in_time
    if held:
        soon("it has left the queue", lambda: info(server.client, "job")["waiters"] == 0)
        holder.release()
    soon("nothing stays behind", lambda: not info(server.client, "job"))
    client.close()


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize("settings", [{"timeout": 600}, {"timeout": 600, "session": True}], ids=["lease", "session"])
async def test_a_timeout_around_an_acquisition_is_kept(
    server: Server, settings: dict[str, Any], connected: bool
) -> None:
    async with redis.asyncio.Redis(port=server.port, **PATIENT) as client:
        if connected:
            await client.ping()
        server.freeze()
        took = Took()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(redis_dlock.asyncio.DLock(client, "job", **settings).acquire(), 0.5)
        in_time = took.is_within(0.5 + SLACK)
        server.thaw()
        assert in_time
        await asyncio.to_thread(soon, "nothing stays behind", lambda: not info(server.client, "job"))


@pytest.mark.parametrize("settings", [{}, PATIENT], ids=["defaults", "without timeouts"])
@pytest.mark.parametrize("limit", [0.0, 0.3, 1.0])
async def test_a_limit_is_neither_shorter_nor_longer(
    kit: Kit, server: Server, settings: dict[str, Any], limit: float
) -> None:
    """While the server hangs, and while there is none."""
    where = {"host": "127.0.0.1", "port": server.port}
    for outage in (server.freeze, server.close):
        outage()
        took = Took()
        with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
            await kit.lock("job", client=kit.client_of(where, **settings), timeout=20).acquire(blocking_timeout=limit)
        assert limit <= took.seconds()
        assert took.is_within((limit or 1.0) + SLACK)


def test_a_limit_is_kept_with_a_pool_that_blocks(server: Server) -> None:
    kind: Any = redis.BlockingConnectionPool
    pool = kind(port=server.port, max_connections=1, timeout=20)
    taken = pool.get_connection()
    client = redis.Redis(connection_pool=pool)
    took = Took()
    assert redis_dlock.DLock(client, "job", timeout=20).acquire(blocking_timeout=15)
    assert took.is_within(10), "the pool has no connection for 20 s, a wait has its own"
    pool.release(taken)
    pool.disconnect()


async def test_a_wait_without_a_limit_fails_when_no_server_has_answered_for_a_time(kit: Kit, server: Server) -> None:
    own = kit.client_of({"host": "127.0.0.1", "port": server.port}, **PATIENT)
    assert redis_dlock.DLock(server.client, "job", timeout=600).acquire()
    lock = kit.extra("job", client=own, timeout=20, outage=1.5)
    freezing = asyncio.create_task(asyncio.to_thread(_freeze_later, server))
    # Threads keep the event loop waiting.
    began = time.monotonic()
    with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
        if hasattr(lock, "_inner"):
            await asyncio.to_thread(lock._inner.acquire)
        else:
            await lock.acquire()
    frozen = await freezing
    assert 2.5 < time.monotonic() - began, "as long as the server answers, it waits"
    assert frozen.is_within(1.5 + SLACK)
    server.thaw()
    await asyncio.to_thread(soon, "it has left the queue", lambda: info(server.client, "job")["waiters"] == 0)


def _freeze_later(server: Server) -> Took:
    soon("it waits", lambda: info(server.client, "job")["waiters"] == 1)
    time.sleep(2.5)
    assert info(server.client, "job")["waiters"] == 1
    server.freeze()
    return Took()


async def test_wrong_credentials_are_an_error_at_once(kit: Kit, server: Server) -> None:
    server.client.config_set("requirepass", "secret")
    own = kit.client_of({"host": "127.0.0.1", "port": server.port}, password="wrong")
    began = time.monotonic()
    with pytest.raises(redis.AuthenticationError):
        await kit.lock("job", client=own, timeout=20).acquire()
    assert time.monotonic() - began < 5, "not after the time for an outage"


def test_outage_is_checked(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="outage"):
        redis_dlock.DLock(client, "job", outage=0)


def test_waits_leave_no_threads_behind(server: Server) -> None:
    """Only one waits for as long as the server hangs: that in which the pool connects, without a limit."""
    server.freeze()
    before = threading.active_count()
    with redis.Redis(port=server.port, **PATIENT) as client:
        for _ in range(3):
            with suppress(redis.RedisError):
                redis_dlock.DLock(client, "job", timeout=20).acquire(blocking_timeout=0.1)
        soon("the cleanups have ended", lambda: threading.active_count() <= before + 1)
        server.thaw()
        soon("all have ended", lambda: threading.active_count() <= before)
