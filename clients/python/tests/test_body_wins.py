"""The caller of a `with` block gets the error of its body, even if the end of the block fails, too."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import Took, command
from servers import Server

# The end of a block fails soon after its server has died.
HASTY: dict[str, Any] = {"socket_timeout": 0.3, "retry": None}


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of its own for a test that ends it."""
    with Server() as server:
        yield server


def blocks(module: Any, client: Any, session: Any = None) -> dict[str, Any]:
    """Returns the objects that a `with` block may be entered with."""
    return {
        "lease": module.DLock(client, "lease", timeout=20),
        "connection": module.DLock(client, "connection"),
        "renewed": module.DLock(client, "renewed", timeout=20, auto_renewal=True),
        "named": module.DLock(client, "named", session=session),
        "semaphore": module.DSemaphore(client, "semaphore", 2, timeout=20),
        "session": session,
    }


NAMES = ["lease", "connection", "renewed", "named", "semaphore", "session"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_error_of_the_body_wins_in_threads(server: Server, name: str, kind: type[BaseException]) -> None:
    failure = kind("the body")
    client = redis.Redis(port=server.port, **HASTY)
    session = redis_dlock.Session(client, timeout=20)
    with pytest.raises(kind) as raised:
        # The session is open around the block, unless it is the object of the block.
        with session if name != "session" else _Nothing():
            with blocks(redis_dlock, client, session)[name]:
                server.close()
                raise failure
    assert raised.value is failure
    notes = getattr(failure, "__notes__", [])
    assert notes or not hasattr(failure, "add_note"), "the error of the release is not in a note"


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *failure: object) -> None: ...


@pytest.mark.parametrize("name", NAMES)
async def test_a_cancellation_stays_a_cancellation(server: Server, name: str) -> None:
    client = redis.asyncio.Redis(port=server.port, **HASTY)
    session = redis_dlock.asyncio.Session(client, timeout=20)
    entered = asyncio.Event()

    async def work() -> None:
        if name != "session":
            await session.open()
        async with blocks(redis_dlock.asyncio, client, session)[name]:
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await entered.wait()
    server.close()
    task.cancel()
    await asyncio.wait({task}, timeout=20)
    assert task.cancelled()
    await client.aclose()


async def test_a_time_limit_around_a_block_stays_a_timeout(server: Server) -> None:
    client = redis.asyncio.Redis(port=server.port, **HASTY)

    async def work() -> None:
        async with redis_dlock.asyncio.DLock(client, "job", timeout=20):
            server.close()
            await asyncio.sleep(60)

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(work(), 0.5)
    await client.aclose()


async def test_the_error_of_the_body_wins_with_several_locks(server: Server) -> None:
    client = redis.asyncio.Redis(port=server.port, **HASTY)
    with pytest.raises(LookupError):
        async with await redis_dlock.asyncio.acquire_all(client, ["a", "b"], timeout=20):
            server.close()
            raise LookupError
    await client.aclose()


def test_a_lock_that_was_lost_does_not_hide_the_error(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="the body"):
        with redis_dlock.DLock(client, "job", timeout=20):
            client.delete("job")
            raise ValueError("the body")


def test_without_an_error_of_the_body_the_loss_is_raised(client: redis.Redis) -> None:
    with pytest.raises(redis_dlock.LockNotOwnedError):
        with redis_dlock.DLock(client, "job", timeout=20):
            client.delete("job")


def test_an_election_ends_with_the_error_of_the_leader(server: Server) -> None:
    client = redis.Redis(port=server.port, **HASTY)

    def lead(term: redis_dlock.Term) -> None:
        server.close()
        raise LookupError("the leader")

    def stopped(term: redis_dlock.Term) -> None:
        raise ValueError("the end")

    election = redis_dlock.Election(client, "leader", lead, stopped, timeout=20)
    with pytest.raises(LookupError):
        election.run()


def test_a_task_ends_with_its_own_error(server: Server) -> None:
    client = redis.Redis(port=server.port, **HASTY)

    @redis_dlock.locked(client, "job")
    def run() -> None:
        command(server.client, "ACL", "SETUSER", "default", "-dlock.release")
        raise LookupError

    took = Took()
    # The server refuses the release, which is given up soon: the error comes without a long delay.
    with pytest.raises(LookupError):
        run()
    assert took.is_within(6)
