"""An acquisition that is interrupted or cancelled leaves no place in the queue and no hold."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import address, info, soon, waiters


class Interrupted(BaseException):
    """As `KeyboardInterrupt`, or the time limit of a task queue."""


@pytest.fixture
def signals() -> Iterator[None]:
    """SIGUSR1 interrupts the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("timeout", [20, None])
def test_an_interrupted_wait(client: redis.Redis, signals: None, timeout: float | None) -> None:
    holder = redis_dlock.DLock(client, "job", timeout=60)
    holder.acquire()

    def interrupt() -> None:
        with redis.Redis(**address()) as other:
            soon("the acquisition waits", lambda: waiters(other, "job") == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted):
        redis_dlock.DLock(client, "job", timeout=timeout).acquire()
    thread.join()
    soon("the acquisition has left the queue", lambda: waiters(client, "job") == 0)
    holder.release()
    assert not info(client, "job")


@pytest.mark.parametrize("timeout", [20, None])
async def test_a_cancelled_wait(client: redis.Redis, timeout: float | None) -> None:
    other = redis.asyncio.Redis(**address())
    holder = redis_dlock.DLock(client, "job", timeout=60)
    holder.acquire()
    task = asyncio.create_task(redis_dlock.asyncio.DLock(other, "job", timeout=timeout).acquire())
    await asyncio.to_thread(soon, "the acquisition waits", lambda: waiters(client, "job") == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(soon, "the acquisition has left the queue", lambda: waiters(client, "job") == 0)
    holder.release()
    assert not info(client, "job")
    await other.aclose()


@pytest.mark.parametrize("timeout", [20, None])
@pytest.mark.parametrize("connected", [False, True])
async def test_an_acquisition_that_is_cancelled_at_any_point(
    client: redis.Redis, timeout: float | None, connected: bool
) -> None:
    """Cancels the acquisition after 0 to 39 turns of the event loop."""
    cancelled = 0
    for turns in range(40):
        other = redis.asyncio.Redis(**address())
        if connected:
            await other.ping()
        lock = redis_dlock.asyncio.DLock(other, "job", timeout=timeout)
        task = asyncio.create_task(lock.acquire())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            assert await task
            await lock.release()
        except asyncio.CancelledError:
            cancelled += 1
        await asyncio.to_thread(soon, f"nothing is left after {turns} turns", lambda: not info(client, "job"))
        await other.aclose()
    assert cancelled > 2


async def test_a_cancelled_release_can_be_repeated(client: redis.Redis) -> None:
    other = redis.asyncio.Redis(**address())
    for turns in range(12):
        lock = redis_dlock.asyncio.DLock(other, "job", timeout=20)
        assert await lock.acquire(blocking=False)
        task = asyncio.create_task(lock.release())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            assert lock.local.token is not None
            await lock.release()
        assert lock.local.token is None
        assert not info(client, "job")
    await other.aclose()
