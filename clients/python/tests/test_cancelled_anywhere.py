"""A cancellation at any step of the event loop ends a watch, an election and the keeping of a lock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing, suppress
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_dlock.asyncio
from kit import PATIENCE, address, command, info, soon
from redis_dlock.async_talk import within
from redis_dlock.async_watch import Watch
from redis_dlock.observed import Holder


async def cancelled_at(number: int, work: Coroutine[Any, Any, None], again: int = 0) -> bool:
    """Cancels the work as the event loop gets its n-th step. Returns False if the work ended before.

    `again`: cancels the work once more that number of steps later, if it still cleans up.
    """
    loop, task, left, asked = asyncio.get_running_loop(), asyncio.ensure_future(work), number, False
    call_soon = loop.call_soon

    def counted(*args: Any, **options: Any) -> asyncio.Handle:
        nonlocal left, asked
        handle = call_soon(*args, **options)
        left -= 1
        if left == 0:
            asked = task.cancel()
        if again and left == -again:
            task.cancel()
        return handle

    setattr(loop, "call_soon", counted)  # noqa: B010 - mypy lets no method be assigned to
    try:
        done, _ = await asyncio.wait({task}, timeout=PATIENCE)
    finally:
        setattr(loop, "call_soon", call_soon)  # noqa: B010
    assert done, f"cancelled at step {number}, the work goes on"
    assert task.cancelled() == asked, f"the cancellation at step {number} is lost"
    return asked


async def test_a_watch_that_is_cancelled_ends(client: redis.Redis) -> None:
    steps = 0

    async def work(its: Any) -> None:
        seen: list[Holder | None] = []
        async with aclosing(redis_dlock.asyncio.watch(its, "job")) as holders:
            async for holder in holders:
                seen.append(holder)
                if len(seen) == 3:
                    return
                command(client, "DEL", "job") if holder else command(client, "DLOCK.ACQUIRE", "job", "a", "PX", 60000)

    async with redis.asyncio.Redis(**address()) as its:
        while await cancelled_at(steps + 1, work(its)):
            client.delete("job")
            steps += 1
    assert steps > 50, "a watch has more steps"


@pytest.mark.parametrize(
    "settings",
    [{"timeout": 600}, {"timeout": 600, "auto_renewal": True}, {}, None, {"timeout": 600, "reentrant": True}],
    ids=["lease", "renewed", "connection", "session", "reentrant"],
)
async def test_a_lock_that_is_cancelled_twice_is_free(client: redis.Redis, settings: dict[str, Any] | None) -> None:
    steps = 0
    lost: list[Exception] = []

    async def work(its: Any, settings: dict[str, Any]) -> None:
        async with redis_dlock.asyncio.DLock(its, "job", on_lost=lost.append, **settings) as lock:
            if lock.reentrant:
                async with lock:
                    pass

    async with redis.asyncio.Redis(**address()) as other, redis_dlock.asyncio.Session(other) as session:
        while True:
            async with redis.asyncio.Redis(**address(), max_connections=2) as its:
                client_of, its_settings = (other, {"session": session}) if settings is None else (its, settings)
                number, again = steps + 1, 1 + steps % 7
                cancelled = await cancelled_at(number, work(client_of, its_settings), again)
                said = f"cancelled at step {number}, and {again} later"
                await asyncio.to_thread(soon, f"the lock is free: {said}", lambda: not info(client, "job"))
                async with redis_dlock.asyncio.DLock(client_of, "next", timeout=60, auto_renewal=True) as lock:
                    assert lock.remaining > 0
                await asyncio.wait_for(work(client_of, its_settings), PATIENCE)
                assert not lost and not session._bindings, said
                if not cancelled:
                    break
                steps += 1
    assert steps > 5, "each lock has more steps"


class Enough(Exception):
    """Ends an election."""


async def test_an_election_ends_and_stops_each_term_that_began(client: redis.Redis) -> None:
    started = stopped = steps = 0

    async def lead(term: redis_dlock.asyncio.Term) -> None:
        nonlocal started
        started += 1
        if started % 2 == 0:
            raise Enough
        client.delete("leader")
        await asyncio.Event().wait()

    async def stop(term: redis_dlock.asyncio.Term) -> None:
        nonlocal stopped
        await asyncio.sleep(0)
        stopped += 1

    async def work(its: Any) -> None:
        with suppress(Enough):
            await redis_dlock.asyncio.Election(its, "leader", lead, stop, timeout=0.06).run()

    async with redis.asyncio.Redis(**address()) as its:
        while await cancelled_at(steps + 1, work(its)):
            steps += 1
            await asyncio.to_thread(soon, "the term has stopped", lambda: stopped == started)
            await asyncio.to_thread(soon, "the lock is free", lambda: not info(client, "leader"))
            started = stopped = 0
    assert steps > 50, "an election has more steps"


async def test_a_watch_stopped_as_a_reply_comes_ends(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = []
    look = Watch._look

    async def look_and_stop(self: Watch, its: Any) -> list[Any]:
        left = await look(self, its)
        looks.append(left)
        # Stops the watch as a release does that comes at the same moment as the reply.
        self.stop()
        return left

    monkeypatch.setattr(Watch, "_look", look_and_stop)
    lost: list[Exception] = []
    async with redis.asyncio.Redis(**address()) as its:
        lock = redis_dlock.asyncio.DLock(its, "job", timeout=0.6, session=True, on_lost=lost.append)
        assert await lock.acquire()
        hold = lock._hold
        assert hold is not None
        await asyncio.wait({hold.watch._task}, timeout=PATIENCE)
        assert hold.watch._task.cancelled()
        assert len(looks) == 1 and not lost


async def test_work_in_a_limit_returns_raises_and_ends() -> None:
    async def answer() -> str:
        await asyncio.sleep(0)
        return "answer"

    async def fail() -> None:
        raise LookupError

    async def forgets_the_first_cancellation() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(1)
        await asyncio.Event().wait()

    ended: list[int] = []
    assert await within(None, answer()) == await within(PATIENCE, answer()) == "answer"
    with pytest.raises(LookupError):
        await within(PATIENCE, fail())
    with pytest.raises(asyncio.TimeoutError):
        await within(0.01, forgets_the_first_cancellation())
    assert ended == [1]
