"""A wait that is given up around the moment of its grant leaves no hold: the next owner has the lock at once, and not with
the end of a lease."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from cutting import Slow
from kit import PATIENCE, address, info, soon, waiters

# How long the lock may be held by a wait that was given up, in seconds, on a machine that is busy. The lease is longer.
NEXT = 10.0
LEASES: list[dict[str, Any]] = [{"timeout": 600}, {"timeout": None}, {"timeout": 600, "session": True}]
OFFSETS = [offset / 10_000 for offset in range(-20, 41, 2)]


class Interrupted(BaseException):
    """As `KeyboardInterrupt`."""


@pytest.fixture
def signals() -> Iterator[None]:
    """SIGUSR1 interrupts the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture(params=[0.0, 0.01], ids=["near", "far"])
def way(client: redis.Redis, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The address of the server: directly, or by a way that takes a while."""
    if not request.param:
        yield address()
        return
    way = Slow(request.param)
    yield way.address
    way.close()


def the_next_has_it(client: redis.Redis, name: str) -> None:
    """Fails unless another owner gets the lock in a short time."""
    lock = redis_dlock.DLock(client, name, timeout=5, blocking_timeout=NEXT)
    assert lock.acquire(), f"{name} is kept: {info(client, name, 'FULL')}"
    lock.release()


def pause_until(when: float) -> None:
    """Sleeps until this time, to less than a millisecond."""
    time.sleep(max(0.0, when - time.monotonic() - 0.0005))
    while time.monotonic() < when:
        pass


def release_at(lock: redis_dlock.DLock, when: float) -> None:
    """Releases a lock at that time."""
    pause_until(when)
    lock.release()


# An interrupt in redis-py's own `disconnect` leaves it to the interpreter to close the socket, which warns of that.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("settings", LEASES, ids=["lease", "session", "both"])
def test_an_interrupt(
    client: redis.Redis, signals: None, way: dict[str, Any], settings: dict[str, Any]
) -> None:
    with redis.Redis(**way) as own:
        own.ping()
        for number, offset in enumerate(OFFSETS):
            name = f"job:{number}"
            holder = redis_dlock.DLock(client, name, timeout=60, thread_local=False)
            assert holder.acquire()

            def release_and_interrupt() -> None:
                soon("it waits", lambda: waiters(client, name) == 1)
                now = time.monotonic() + 0.005
                releasing = threading.Thread(target=release_at, args=(holder, now))
                releasing.start()
                pause_until(now + offset + (way != address()) * 0.01)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
                releasing.join()

            thread = threading.Thread(target=release_and_interrupt)
            lock = redis_dlock.DLock(own, name, **settings)
            with suppress(Interrupted):
                thread.start()
                lock.acquire()
                # If the grant was first, the interrupt ends this wait or the sleep.
                thread.join()
                time.sleep(PATIENCE)
            thread.join()
            with suppress(redis_dlock.LockError):
                lock.release()
            the_next_has_it(client, name)


@pytest.mark.parametrize("settings", LEASES, ids=["lease", "session", "both"])
async def test_a_cancellation(client: redis.Redis, way: dict[str, Any], settings: dict[str, Any]) -> None:
    async with redis.asyncio.Redis(**way) as own:
        await own.ping()
        for number, offset in enumerate(OFFSETS):
            name = f"job:{number}"
            holder = redis_dlock.DLock(client, name, timeout=60, thread_local=False)
            assert holder.acquire()
            lock = redis_dlock.asyncio.DLock(own, name, **settings)
            task = asyncio.create_task(lock.acquire())
            await asyncio.to_thread(soon, "it waits", lambda: waiters(client, name) == 1)
            grants = asyncio.create_task(asyncio.to_thread(holder.release)) if offset > 0 else None
            await asyncio.sleep(abs(offset) + (way != address()) * 0.01)
            task.cancel()
            if grants is None:
                await asyncio.to_thread(holder.release)
            with suppress(asyncio.CancelledError):
                if await task:
                    await lock.release()
            await asyncio.to_thread(the_next_has_it, client, name)


async def test_a_cancellation_at_each_step_after_the_grant(client: redis.Redis) -> None:
    """The reply is there; it is read in a number of turns of the event loop."""
    cancelled = 0
    async with redis.asyncio.Redis(**address()) as own:
        await own.ping()
        for settings in LEASES:
            for turns in range(25):
                name = f"job:{turns}"
                holder = redis_dlock.DLock(client, name, timeout=60, thread_local=False)
                assert holder.acquire()
                lock = redis_dlock.asyncio.DLock(own, name, **settings)
                task = asyncio.create_task(lock.acquire())
                await asyncio.to_thread(soon, "it waits", lambda: waiters(client, name) == 1)
                holder.release()
                soon("the server has granted it", lambda: waiters(client, name) == 0)
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    assert await task
                    await lock.release()
                except asyncio.CancelledError:
                    cancelled += 1
                await asyncio.to_thread(the_next_has_it, client, name)
    assert cancelled > 6


@pytest.mark.parametrize("settings", LEASES, ids=["lease", "session", "both"])
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_a_limit_that_ends_with_the_grant(
    client: redis.Redis, way: dict[str, Any], settings: dict[str, Any], kind: str
) -> None:
    """The server ends the wait, or grants it, and the client gives up, or not."""
    plain, own = redis.Redis(**way), redis.asyncio.Redis(**way)
    limit = 0.1
    for number, offset in enumerate(OFFSETS):
        name = f"job:{number}"
        holder = redis_dlock.DLock(client, name, timeout=60, thread_local=False)
        assert holder.acquire()
        # Every other grant comes around the time when the client gives up, which is 0.15 s after the limit.
        late = 0.15 * (number % 2)
        began = time.monotonic()
        granting = threading.Thread(target=release_at, args=(holder, began + limit + late + offset))
        granting.start()
        lock: Any = None
        with suppress(redis.TimeoutError, redis.ConnectionError):
            if kind == "asyncio":
                lock = redis_dlock.asyncio.DLock(own, name, **settings)
                if await lock.acquire(blocking_timeout=limit):
                    await lock.release()
            else:
                lock = redis_dlock.DLock(plain, name, **settings)
                if lock.acquire(blocking_timeout=limit):
                    lock.release()
        await asyncio.to_thread(granting.join)
        await asyncio.to_thread(the_next_has_it, client, name)
    await own.aclose()
    plain.close()


@pytest.mark.parametrize("timeout", [0.05, 0.1])
async def test_a_reply_that_comes_after_the_client_gave_up(client: redis.Redis, timeout: float) -> None:
    """The client gives up before the reply: each direction takes 0.4 s."""
    way = Slow(0.4)
    try:
        async with redis.asyncio.Redis(**way.address) as own:
            for settings in LEASES:
                for wait in (True, False):
                    name = f"job:{settings}:{wait}"
                    lock = redis_dlock.asyncio.DLock(own, name, **settings)
                    with suppress(redis.TimeoutError, redis.ConnectionError, asyncio.TimeoutError):
                        await asyncio.wait_for(lock.acquire(blocking=wait), timeout + 0.9)
                        await lock.release()
                    await asyncio.to_thread(the_next_has_it, client, name)
    finally:
        way.close()


_ASYNCIO = """
import asyncio, sys
import redis.asyncio
from redis_dlock.asyncio import DLock

async def main():
    client = redis.asyncio.Redis(port=int(sys.argv[1]))
    await client.ping()
    await DLock(client, "job", timeout=600).acquire()
    print("granted", flush=True)

asyncio.run(main())
"""
_ENDING = """
import asyncio, signal, sys
import redis.asyncio
from redis_dlock.asyncio import DLock

async def main():
    client = redis.asyncio.Redis(port=int(sys.argv[1]))
    await client.ping()
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, ends.set)
    waiting = asyncio.create_task(DLock(client, "job", timeout=600).acquire())
    await asyncio.wait({waiting, asyncio.create_task(ends.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if waiting.done():
        print("granted", flush=True)

asyncio.run(main())
"""
_THREADS = """
import sys
import redis
from redis_dlock import DLock

client = redis.Redis(port=int(sys.argv[1]))
client.ping()
DLock(client, "job", timeout=600).acquire()
print("granted", flush=True)
"""


@pytest.mark.parametrize("program", [_THREADS, _ASYNCIO, _ENDING], ids=["threads", "asyncio", "asyncio that ends"])
def test_a_program_that_ends_with_an_interrupt(client: redis.Redis, program: str) -> None:
    """The wait is granted when the interrupt comes, and the server is not near."""
    way = Slow(0.04)
    try:
        for delay in (0.0, 0.02, 0.03, 0.035):
            holder = redis_dlock.DLock(client, "job", timeout=60)
            assert holder.acquire()
            path = os.pathsep.join([str(Path(redis_dlock.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
            child = subprocess.Popen(
                [sys.executable, "-c", program, str(way.address["port"])],
                env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            soon("it waits", lambda: waiters(client, "job") == 1)
            holder.release()
            time.sleep(delay)
            child.send_signal(signal.SIGINT)
            printed, errors = child.communicate(timeout=PATIENCE)
            assert b"destroyed" not in errors and b"never" not in errors, errors.decode()
            if printed:
                client.delete("job")  # The interrupt was too late: the program had acquired the lock.
            the_next_has_it(client, "job")
    finally:
        way.close()
