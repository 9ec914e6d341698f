"""Observers of a lock see each change of its holder, and elections have one leader at a time."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import Kit, PlainKit, address, command, info, soon
from redis_dlock import Election, Holder, Term, base, observe
from servers import Server


class Seen:
    """An observer of a lock, in a thread or a task, and the holders that it has seen."""

    def __init__(self, kit: Kit, name: str, **where: Any) -> None:
        self.holders: list[Holder | None] = []
        where = {**address(), **where}
        if isinstance(kit, PlainKit):
            self._redis: Any = redis.Redis(**where)
            self._watcher = redis_dlock.watch(self._redis, name)
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()
        else:
            self._redis = redis.asyncio.Redis(**where)
            self._task = asyncio.ensure_future(self._read_async(name))

    def _read(self) -> None:
        for holder in self._watcher:
            self.holders.append(holder)

    async def _read_async(self, name: str) -> None:
        async for holder in redis_dlock.asyncio.watch(self._redis, name):
            self.holders.append(holder)

    def owners(self) -> list[bytes | None]:
        """Returns the owners that the observer has seen; None: the lock was free."""
        return [holder.owner if holder else None for holder in self.holders]

    async def until(self, condition: Callable[[Seen], bool]) -> None:
        """Waits until the condition holds for what the observer has seen."""
        await asyncio.to_thread(soon, "the change is seen", lambda: condition(self))

    async def close(self) -> None:
        """Ends the observer."""
        if hasattr(self, "_thread"):
            self._watcher.close()
            await asyncio.to_thread(self._thread.join, 20)
            assert not self._thread.is_alive()
            self._redis.close()
        else:
            self._task.cancel()
            done, _ = await asyncio.wait({self._task}, timeout=20)
            assert done, "the observer goes on after it was cancelled"
            await self._redis.aclose()


async def test_each_change_of_holder_is_seen(kit: Kit, client: redis.Redis) -> None:
    seen = Seen(kit, "job")
    await seen.until(lambda it: it.owners() == [None])
    token = command(client, "DLOCK.ACQUIRE", "job", "a", "PX", 60000)
    await seen.until(lambda it: it.owners() == [None, b"a"])
    [holder] = seen.holders[1:]
    assert holder is not None and holder.token == token
    assert abs(holder.since - time.time()) < 60
    # A renewal changes no holder.
    command(client, "DLOCK.RENEW", "job", "a", "PX", 50000)
    command(client, "DLOCK.RELEASE", "job", "a")
    await seen.until(lambda it: it.owners() == [None, b"a", None])
    for owner in ("b", "c"):
        command(client, "DLOCK.ACQUIRE", "job", owner, "PX", 60000)
        await seen.until(lambda it: it.owners()[-1] is not None)
        client.delete("job")
        await seen.until(lambda it: it.owners()[-1] is None)
    command(client, "DLOCK.ACQUIRE", "job", "d", "PX", 60000)
    await seen.until(lambda it: it.owners()[-1] == b"d")
    client.flushall()
    await seen.until(lambda it: it.owners()[3:] == [b"b", None, b"c", None, b"d", None])
    await seen.close()


async def test_a_lapse_is_seen(kit: Kit, client: redis.Redis) -> None:
    seen = Seen(kit, "job")
    command(client, "DLOCK.ACQUIRE", "job", "a", "PX", 2000)
    await seen.until(lambda it: it.owners()[-2:] == [b"a", None])
    await seen.close()


async def test_a_watch_outlives_its_connections_and_the_server(kit: Kit, client: redis.Redis) -> None:
    with Server() as server:
        seen = Seen(kit, "job", port=server.port)
        await seen.until(lambda it: it.owners() == [None])
        server.client.client_kill_filter(_type="normal", skipme=True)
        server.client.client_kill_filter(_type="pubsub", skipme=True)
        command(server.client, "DLOCK.ACQUIRE", "job", "a", "PX", 60000)
        await seen.until(lambda it: it.owners() == [None, b"a"])
        port = server.port
    with Server(port=port) as server:
        command(server.client, "DLOCK.ACQUIRE", "job", "b", "PX", 60000)
        await seen.until(lambda it: it.owners()[-1] == b"b")
        await seen.close()


async def test_a_watch_whose_second_connection_finds_the_first_one_lost_goes_on(kit: Kit, client: redis.Redis) -> None:
    """The first connection is killed when the second is about to name it, in `CLIENT TRACKING ON REDIRECT`."""
    cuts: list[int] = []

    def cut(words: Any) -> None:
        if not cuts and any(b"TRACKING" in word for word in words):
            cuts.append(client.client_kill_filter(_type="pubsub"))

    class Threads(redis.Connection):
        def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            cut(command)
            super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]

    class Tasks(redis.asyncio.Connection):
        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            cut(command)
            await super().send_packed_command(command, check_health)

    pool: Any = redis.ConnectionPool(connection_class=Threads, **address())
    if not isinstance(kit, PlainKit):
        pool = redis.asyncio.ConnectionPool(connection_class=Tasks, **address())
    seen = Seen(kit, "job", connection_pool=pool)
    await seen.until(lambda it: it.owners() == [None])
    assert cuts == [1]
    await seen.close()


async def test_a_watch_does_not_poll(kit: Kit, client: redis.Redis) -> None:
    command(client, "DLOCK.ACQUIRE", "job", "a", "PX", 60000)
    seen = Seen(kit, "job")
    await seen.until(lambda it: it.owners() == [b"a"])
    client.config_resetstat()
    await asyncio.sleep(1)
    assert "cmdstat_dlock.info" not in client.info("commandstats")
    await seen.close()


async def test_holder_returns_the_present_holder(kit: Kit, client: redis.Redis) -> None:
    name = "job"
    async_client = redis.asyncio.Redis(**address())
    for expected in (None, b"a"):
        if expected:
            command(client, "DLOCK.ACQUIRE", name, "a", "PX", 60000)
        if isinstance(kit, PlainKit):
            found = redis_dlock.holder(client, name)
        else:
            found = await redis_dlock.asyncio.holder(async_client, name)
        assert (found and found.owner) == expected
    await async_client.aclose()


# Elections

def test_one_thread_leads_at_a_time(client: redis.Redis) -> None:
    events: list[tuple[str, str, int]] = []
    leading = threading.Lock()

    def candidate(name: str) -> Election:
        def started(term: Term) -> None:
            assert leading.acquire(blocking=False), "two leaders"
            events.append(("started", name, term.token))

        def stopped(term: Term) -> None:
            leading.release()
            events.append(("stopped", name, term.token))

        return Election(client, "leader", started, stopped, timeout=5, candidate=name)

    elections = {name: candidate(name) for name in ("a", "b", "c")}
    threads = {name: threading.Thread(target=each.run, daemon=True) for name, each in elections.items()}
    for thread in threads.values():
        thread.start()
    for turn in range(3):
        soon("there is a leader", functools.partial(lambda turn: len(events) == 2 * turn + 1, turn))
        leader = events[-1][1]
        assert elections[leader].is_leader
        assert [each.is_leader for each in elections.values()].count(True) == 1
        found = elections[leader].leader()
        assert found is not None and (found.owner, found.token) == (leader.encode(), events[-1][2])
        elections[leader].stop()
        threads[leader].join(20)
        assert not threads[leader].is_alive()
    assert [event for event, _, _ in events] == ["started", "stopped"] * 3
    tokens = [token for event, _, token in events if event == "started"]
    assert tokens == sorted(tokens)
    assert not info(client, "leader")


def test_a_term_that_is_lost_ends_and_the_next_one_begins(client: redis.Redis) -> None:
    terms: list[Term] = []

    def started(term: Term) -> None:
        terms.append(term)
        term.ended.wait()

    election = Election(client, "leader", started, timeout=3)
    thread = threading.Thread(target=election.run, daemon=True)
    thread.start()
    soon("the program leads", lambda: len(terms) == 1)
    client.delete("leader")
    soon("the program leads again", lambda: len(terms) == 2)
    assert terms[0].ended.is_set() and not terms[1].ended.is_set()
    assert terms[1].token > terms[0].token
    election.stop()
    thread.join(20)
    assert not thread.is_alive()


def test_a_term_that_never_began_does_not_stop(client: redis.Redis) -> None:
    events: list[str] = []

    class Stops(redis_dlock.DLock):
        """A lock that is granted while the election is stopped."""

        def acquire(self, *arguments: Any, **settings: Any) -> bool:
            granted = super().acquire(*arguments, **settings)
            election.stop()
            return granted

    with mock.patch.object(observe, "DLock", Stops):
        election = Election(client, "leader", lambda term: events.append("started"),
                            lambda term: events.append("stopped"), timeout=20)
        election.run()
    assert events == []
    assert not info(client, "leader")


@pytest.mark.parametrize("through", ["threads", "tasks"])
async def test_an_election_goes_on_without_replicas(client: redis.Redis, through: str) -> None:
    """The lock is granted again, and released again, while too few replicas acknowledge it: nobody leads meanwhile."""
    led: list[str] = []
    settings: dict[str, Any] = {"timeout": 20, "replicas": 1, "replicas_timeout": 0.05}
    before = grants(client)
    if through == "threads":
        plain = Election(client, "leader", lambda term: led.append("a"), **settings)
        running = threading.Thread(target=plain.run, daemon=True)
        running.start()
        soon("another grant", lambda: grants(client) >= before + 2 or not running.is_alive())
        assert running.is_alive()
        plain.stop()
        running.join(20)
    else:
        async def lead(term: redis_dlock.asyncio.Term) -> None:
            led.append("a")

        async with redis.asyncio.Redis(**address()) as its:
            task = asyncio.ensure_future(redis_dlock.asyncio.Election(its, "leader", lead, **settings).run())
            await asyncio.to_thread(soon, "another grant", lambda: grants(client) >= before + 2 or task.done())
            assert not task.done()
            task.cancel()
            await asyncio.wait([task], timeout=20)
    assert led == []


def grants(client: redis.Redis) -> int:
    """Returns how many locks the server has granted."""
    return int(client.info("dlock")["dlock_grants"])


def later() -> Any:
    """Returns a patch that sets the clock of locks a minute ahead, as after a pause of the process. The thread or task
    that renews has not noticed the pause yet."""
    return mock.patch.object(base, "time", mock.Mock(monotonic=lambda: time.monotonic() + 60))


def test_a_leader_that_was_paused_does_not_say_that_it_leads(client: redis.Redis) -> None:
    said: list[tuple[bool, bool, float]] = []

    def say(term: Term) -> None:
        said.append((election.is_leader, term.ended.is_set(), term.remaining))

    def lead(term: Term) -> None:
        say(term)
        with later():
            say(term)
        election.stop()
        say(term)

    election = Election(client, "leader", lead, timeout=20)
    election.run()
    assert [each[:2] for each in said] == [(True, False), (False, False), (False, True)]
    assert said[0][2] > 0 and [each[2] for each in said[1:]] == [0, 0]


async def test_a_task_that_was_paused_does_not_say_that_it_leads(client: redis.Redis) -> None:
    said: list[tuple[bool, float]] = []

    async def lead(term: redis_dlock.asyncio.Term) -> None:
        said.append((election.is_leader, term.remaining))
        with later():
            said.append((election.is_leader, term.remaining))
        await asyncio.Event().wait()

    async with redis.asyncio.Redis(**address()) as its:
        election = redis_dlock.asyncio.Election(its, "leader", lead, timeout=20)
        running = asyncio.ensure_future(election.run())
        await asyncio.to_thread(soon, "the task has led", lambda: len(said) == 2)
        running.cancel()
        await asyncio.wait([running], timeout=20)
    assert said[0][0] and said[0][1] > 0
    assert said[1] == (False, 0.0)


async def test_tasks_lead_one_at_a_time(client: redis.Redis) -> None:
    events: list[str] = []

    async def lead(term: redis_dlock.asyncio.Term) -> None:
        events.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            events.append("cancelled")

    async with redis.asyncio.Redis(**address()) as its:
        elections = [
            redis_dlock.asyncio.Election(its, "leader", lead, lambda term: events.append("stopped"), timeout=3)
            for _ in range(2)
        ]
        tasks = [asyncio.ensure_future(each.run()) for each in elections]
        await asyncio.to_thread(soon, "one leads", lambda: events == ["started"])
        leader = [each.is_leader for each in elections].index(True)
        found = await elections[leader].leader()
        assert found is not None and found.owner == elections[leader].candidate.encode()
        client.delete("leader")
        await asyncio.to_thread(soon, "the next one leads", lambda: events.count("started") == 2)
        await asyncio.to_thread(soon, "the first one has stopped", lambda: events.count("stopped") == 1)
        assert [event for event in events if event != "started"] == ["cancelled", "stopped"]
        for task in tasks:
            task.cancel()
        _, left = await asyncio.wait(tasks, timeout=20)
        assert not left, "an election goes on after it was cancelled"
        # The release of the leader may grant the other one, who releases the lock in the background.
        await asyncio.to_thread(soon, "nobody leads", lambda: not info(client, "leader"))
    await asyncio.to_thread(soon, "all have stopped", lambda: events.count("stopped") == 2)
