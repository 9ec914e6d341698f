"""No call takes longer than docs/time-limits.md says, whatever the server does. The scenarios `outage_…` of the
conformance suite check most of it; here is what they cannot do."""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from cutting import Halves
from kit import Kit, PlainKit, Took, info, soon
from redis_dlock import redis_py
from servers import Server

# As with redis-py up to 6.4: by itself, the client waits forever.
PATIENT: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": None}
# The time that docs/time-limits.md grants beyond a limit, and the tolerance of measuring, in seconds.
SLACK = 0.25 + 0.05
# The time that docs/time-limits.md grants a canceled or interrupted acquisition, and the same tolerance.
CANCELED = 0.1 + 0.05


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
    in_time = interrupted[0].is_within(CANCELED)
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
        in_time = took.is_within(0.5 + CANCELED)
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
    began = time.monotonic()
    with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
        # A call of the client for threads would block the event loop.
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
    """A single thread lasts as long as the server hangs: the pool connects in it, without a limit."""
    server.freeze()
    before = threading.active_count()
    with redis.Redis(port=server.port, **PATIENT) as client:
        for _ in range(3):
            with suppress(redis.RedisError):
                redis_dlock.DLock(client, "job", timeout=20).acquire(blocking_timeout=0.1)
        soon("the cleanups have ended", lambda: threading.active_count() <= before + 1)
        server.thaw()
        soon("all have ended", lambda: threading.active_count() <= before)


# The limit of the calls that do not wait, as docs/time-limits.md has it, in seconds.
CALL = 5.0
# A call that takes longer than this counts as one without a limit.
NEVER = CALL + 6.0


class Calls:
    """Locks that are held, and calls that are made at the same time."""

    def __init__(self, kit: Kit, where: dict[str, Any], own: dict[str, Any], client: Any = None) -> None:
        """`client`: the one of all locks. Without it, each has its own."""
        self._kit, self._where, self._own, self._client = kit, where, own, client
        self.clients: list[Any] = [] if client is None else [client]
        self._calls: list[tuple[str, Any]] = []

    def client(self) -> Any:
        """Returns the client of the next lock."""
        if self._client is not None:
            return self._client
        self.clients.append(self._kit.client_of(self._where, **self._own))
        return self.clients[-1]

    async def add(self, what: str, call: Callable[[Any], Any], **settings: Any) -> None:
        """Holds a lock of its own for a call, which gets the object inside of it."""
        lock = self._kit.extra(what, client=self.client(), **{"timeout": 600, "thread_local": False, **settings})
        assert await lock.acquire()
        self.later(what, functools.partial(call, getattr(lock, "_inner", lock)))

    def later(self, what: str, call: Callable[[], Any]) -> None:
        """Adds a call that is made with the others."""
        self._calls.append((what, call))

    async def made(self) -> tuple[dict[str, Exception | None], list[str], asyncio.Task[Any]]:
        """Makes the calls. Returns their errors, which of them took too long, and the task of those that go on."""
        errors: dict[str, Exception | None] = {}
        late: list[str] = []

        async def make(what: str, call: Callable[[], Any]) -> None:
            took = Took()
            try:
                await (asyncio.to_thread(call) if isinstance(self._kit, PlainKit) else call())
                errors[what] = None
            except Exception as error:  # noqa: BLE001 - the test looks at it
                errors[what] = error
            if took.seconds() > CALL and not await asyncio.to_thread(took.is_within, CALL + SLACK):
                late.append(what)

        # The default executor has four threads more than there are processors, 32 at most: calls would wait for one.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * len(self._calls)))
        tasks = {asyncio.create_task(make(*each), name=each[0]) for each in self._calls}
        _, going_on = await asyncio.wait(tasks, timeout=NEVER)
        late += [f"{each.get_name()} (goes on)" for each in going_on]
        return errors, late, asyncio.ensure_future(asyncio.gather(*going_on))


def leave(lock: Any) -> Any:
    """The end of a `with` block."""
    return (getattr(lock, "__aexit__", None) or lock.__exit__)(None, None, None)


async def every_call(calls: Calls) -> None:
    """Holds a lock for each call that does not wait for one."""
    await calls.add("locked", lambda lock: lock.locked())
    await calls.add("owned", lambda lock: lock.owned())
    await calls.add("extend", lambda lock: lock.extend(600))
    await calls.add("replace", lambda lock: lock.extend(600, replace_ttl=True))
    await calls.add("reacquire", lambda lock: lock.reacquire())
    await calls.add("release", lambda lock: lock.release())
    await calls.add("release_after", lambda lock: lock.release_after(1))
    await calls.add("exit", leave)
    await calls.add("watched", lambda lock: lock.release(), auto_renewal=True)
    await calls.add("session", lambda lock: lock.release(), timeout=None)
    await calls.add("session:exit", leave, session=True)


@pytest.mark.parametrize(
    ("settings", "pool"),
    [({}, "own"), (PATIENT, "own"), (PATIENT, "shared"), (PATIENT, "closed")],
    ids=["defaults", "own", "shared", "closed"],
)
async def test_every_call_has_a_limit_at_a_server_that_hangs(
    kit: Kit, server: Server, settings: dict[str, Any], pool: str
) -> None:
    """Each call has a client of its own, with an open connection. Or all calls share a client, whose pool has one open
    connection, or only closed ones."""
    where = {"host": "127.0.0.1", "port": server.port}
    calls = Calls(kit, where, settings, kit.client_of(where, **settings) if pool != "own" else None)
    await every_call(calls)
    if pool == "closed":
        closing = calls.clients[0].connection_pool.disconnect()
        await closing if asyncio.iscoroutine(closing) else None
    for number, client in enumerate(calls.clients):
        server.client.set(f"user:{number}", number)
    server.freeze()
    try:
        errors, late, going_on = await calls.made()
    finally:
        server.thaw()
    await asyncio.wait({going_on}, timeout=NEVER)
    assert not late
    unanswered = (redis.ConnectionError, redis.TimeoutError)
    assert [what for what, error in errors.items() if not isinstance(error, unanswered)] == []
    for number, client in enumerate(calls.clients):
        assert await client.get(f"user:{number}") == str(number).encode(), "not the reply to a call"


@pytest.mark.parametrize("settings", [{}, PATIENT], ids=["defaults", "without timeouts"])
async def test_every_call_has_a_limit_without_a_server(kit: Kit, server: Server, settings: dict[str, Any]) -> None:
    where = {"host": "127.0.0.1", "port": server.port}
    calls = Calls(kit, where, settings)
    await every_call(calls)
    server.close()
    errors, late, _ = await calls.made()
    assert not late and len(errors) == 11
    assert None not in errors.values()


async def test_a_renewal_that_replicas_must_have_has_their_time_on_top(kit: Kit, server: Server) -> None:
    with Server() as replica:
        replica.replicate(server)
        own = kit.client_of({"host": "127.0.0.1", "port": server.port}, **PATIENT)
        lock = kit.extra("job", client=own, timeout=600, replicas=1, replicas_timeout=1)
        assert await lock.acquire()
        server.freeze()
        took = Took()
        with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
            await lock.reacquire()
        assert took.is_within(CALL + 1 + SLACK)
        server.thaw()


async def test_a_session_has_a_second_for_its_begin_and_its_end(kit: Kit, server: Server) -> None:
    where = {"host": "127.0.0.1", "port": server.port}
    sessions = [kit.session(client=kit.client_of(where, **PATIENT), timeout=60) for _ in range(2)]
    await sessions[0].open()
    server.freeze()
    for call in (sessions[1].open, sessions[0].close):
        took = Took()
        with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
            await call()
        assert took.is_within(1 + SLACK)
    server.thaw()


async def test_the_rest_of_a_reply_has_the_same_limit(kit: Kit, client: redis.Redis) -> None:
    way = Halves()
    try:
        own = kit.client_of(way.address, **PATIENT)
        lock = kit.lock("job", client=own, timeout=600)
        way.halve("DLOCK.ACQUIRE")
        took = Took()
        with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
            await lock.acquire(blocking=False)
        assert took.is_within(1 + SLACK)
        await asyncio.to_thread(soon, "nothing stays behind", lambda: not info(client, "job"))
        assert await lock.acquire()
        way.halve("DLOCK.RELEASE")
        took = Took()
        await lock.release()
        assert took.is_within(CALL), "the next copy was answered"
        assert not info(client, "job")
    finally:
        way.close()


def ends_in_time(call: Callable[[], Any]) -> bool:
    """Returns whether a call of the client for threads, which fails, keeps its limit."""
    took, within = Took(), [False]

    def make() -> None:
        with suppress(redis.ConnectionError, redis.TimeoutError):
            call()
        within[0] = took.is_within(CALL + SLACK)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(NEVER)
    return within[0]


@pytest.mark.parametrize("kind", [redis.ConnectionPool, redis.BlockingConnectionPool])
def test_a_call_whose_connection_another_thread_takes_keeps_its_limit(
    server: Server, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """The pool would make another connection, which takes as long as the server hangs."""
    pool = kind(port=server.port, max_connections=2, **PATIENT)
    client = redis.Redis(connection_pool=pool)
    lock = redis_dlock.DLock(client, "job", timeout=600, thread_local=False)
    assert lock.acquire()
    server.freeze()
    thieves: list[threading.Thread] = []
    readable = redis_py._readable

    def look_and_lose(sock: Any) -> bool:
        is_readable = readable(sock)
        if not thieves:
            thieves.append(threading.Thread(target=pool.get_connection, daemon=True))
            thieves[0].start()
            thieves[0].join(0.3)
        return is_readable

    monkeypatch.setattr(redis_py, "_readable", look_and_lose)
    in_time = ends_in_time(lock.release)
    server.thaw()
    assert in_time and thieves
    soon("the other thread has the connection", lambda: not thieves[0].is_alive())
    pool.disconnect()


def test_calls_of_a_held_lock_do_not_wait_for_a_pool_that_blocks(server: Server) -> None:
    kind: Any = redis.BlockingConnectionPool
    pool = kind(port=server.port, max_connections=1, timeout=20)
    lock = redis_dlock.DLock(redis.Redis(connection_pool=pool), "job", timeout=600)
    assert lock.acquire()
    taken: Any = pool.get_connection()
    took = Took()
    assert lock.owned() and lock.extend(60)
    lock.release()
    assert took.is_within(CALL)
    assert not info(server.client, "job")
    pool.release(taken)
    pool.disconnect()


async def test_a_task_that_connects_through_the_pool_delays_no_other(server: Server) -> None:
    """redis-py 6 connects while it keeps the lock of the pool."""
    own: Any = redis.asyncio.Redis(port=server.port, **PATIENT)
    async with own as client:
        lock = redis_dlock.asyncio.DLock(client, "job", timeout=600)
        assert await lock.acquire()
        taken = await client.connection_pool.get_connection()
        server.freeze()
        connecting: asyncio.Task[Any] = asyncio.ensure_future(client.ping())
        await asyncio.sleep(0.1)
        await client.connection_pool.release(taken)
        took = Took()
        with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
            await lock.extend(60)
        assert took.is_within(CALL + SLACK)
        server.thaw()
        assert await connecting
