"""As `observe`, for asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import LockError, LockNotOwnedError, ResponseError, TimeoutError

from . import observed as holders
from . import owners, redis_py
from .async_lock import DLock
from .async_talk import Talk, start, within
from .async_wire import Wire
from .commands import Name
from .errors import DeadlockError, ReplicasError
from .observed import Holder


async def holder(redis: Any, name: Name) -> Holder | None:
    """Returns the holder of a lock; None: it is free. Costs one command."""
    return holders.read((await Wire(redis, name).ask([holders.question(name)], redis_py.latest()))[0])[0]


async def watch(redis: Any, name: Name) -> AsyncGenerator[Holder | None, None]:
    """Yields the holders of a lock: the present one at once, then each change. None: it is free.

        async for leader in watch(redis, "leader"):
            print(leader.owner if leader else "no leader")

    As `redis_dlock.watch`. It ends with its task, or with `aclose()`.
    """
    wire = Wire(redis, name)
    known: list[Holder | None] = []
    pause = 0.0
    while True:
        link = Link(wire)
        try:
            await within(2 * holders.ANSWER, link.open())
            while True:
                found, seconds = await within(None, link.ask(name))
                pause = 0.0
                if known != [found]:
                    known = [found]
                    yield found
                else:
                    await within(None, link.wait(seconds))
        except Exception as error:
            if not holders.may_repeat(error):
                raise
        finally:
            await link.close()
        await asyncio.sleep(pause)
        pause = min(max(2 * pause, redis_py.OUTAGE_PAUSE), holders.LONGEST_PAUSE)


class Link:
    """Two connections: one asks for keys, and the server tells the other one of their changes."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._asking: Any = None
        self._listening: Any = None

    async def open(self) -> None:
        """Connects both."""
        await self._wire._look(redis_py.latest())
        source = self._wire._source()
        settings = holders.settings_of(source, Retry(NoBackoff(), 0))
        self._asking = source.connection_class(**settings)
        self._listening = source.connection_class(**settings)
        self._questions = Talk(self._asking)
        await self._listening.connect()
        [number] = await Talk(self._listening).exchange(("CLIENT", "ID"))
        await Talk(self._listening).exchange(("SUBSCRIBE", holders.INVALIDATED))
        await self._asking.connect()
        await self._questions.exchange(("CLIENT", "TRACKING", "ON", "REDIRECT", number))

    async def ask(self, name: Name) -> tuple[Holder | None, float]:
        """Returns the holder, and the seconds after which the question should be repeated."""
        return holders.read((await self._questions.exchange(holders.question(name)))[0])

    async def wait(self, seconds: float) -> None:
        """Waits for a change, for this time at most."""
        try:
            await self._listening.read_response(disable_decoding=True, timeout=seconds, disconnect_on_error=False)
        except (asyncio.TimeoutError, TimeoutError):
            pass

    async def close(self) -> None:
        """Closes both."""
        for each in (self._asking, self._listening):
            if each is not None:
                await each.disconnect(nowait=True)


@dataclass(frozen=True)
class Term:
    """The time for which a process is the leader."""

    # The fencing token: greater than that of every earlier leader. Send it with every write.
    token: int
    _lock: DLock | None = field(default=None, repr=False, compare=False)

    @property
    def remaining(self) -> float:
        """The seconds for which the term certainly lasts if nothing renews it any more; 0 when it has ended."""
        return holders.left_of(self._lock)


class Election:
    """As `redis_dlock.Election`, for asyncio.

    `on_started(term)` is a coroutine function, and does the leader's work. It is cancelled when the term ends, or must
    be assumed to have ended. If it returns earlier, the process stays the leader.
    """

    def __init__(
        self,
        redis: Any,
        name: Name,
        on_started: Callable[[Term], Awaitable[Any]],
        on_stopped: Callable[[Term], Any] | None = None,
        *,
        timeout: float = 10.0,
        candidate: str | None = None,
        **settings: Any,
    ) -> None:
        """The parameters are those of `redis_dlock.Election`."""
        redis_py.check_client(redis, asyncio=True)
        self.candidate = candidate or owners.new().decode()
        self._term: Term | None = None
        self._redis, self._name = redis, name
        self._on_started, self._on_stopped = on_started, on_stopped
        self._settings = {"timeout": timeout, "auto_renewal": True, **settings}

    @property
    def is_leader(self) -> bool:
        """Returns whether this process is the leader, as far as it knows."""
        return self._term is not None and self._term.remaining > 0

    async def leader(self) -> Holder | None:
        """Asks the server for the present leader."""
        return await holder(self._redis, self._name)

    async def run(self) -> None:
        """Takes part until the task is cancelled, which ends the term and releases the lock."""
        while True:
            lock = DLock(self._redis, self._name, **self._settings)
            try:
                await lock.acquire(token=self.candidate)
                token = lock.token
            except (DeadlockError, LockNotOwnedError, ReplicasError, *redis_py.LOST):
                # The server or its replicas are away, or it still has the last term, whose lease ends soon.
                await asyncio.sleep(holders.LONGEST_PAUSE)
                continue
            await self._lead(lock, token)

    async def _lead(self, lock: DLock, token: int) -> None:
        term, lost = Term(token, lock), lock.lost
        self._term = term
        work = asyncio.ensure_future(self._on_started(term))
        try:
            await asyncio.wait({work, lost}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                await lost
        finally:
            self._term = None
            # The end goes on if the caller is cancelled once more.
            await asyncio.shield(start(self._end(work, term, lock)))

    async def _end(self, work: asyncio.Future[Any], term: Term, lock: DLock) -> None:
        work.cancel()
        await asyncio.wait({work})
        try:
            if self._on_stopped is not None:
                result = self._on_stopped(term)
                if inspect.isawaitable(result):
                    await result
        finally:
            try:
                await lock.release()
            except (LockError, ResponseError, *redis_py.LOST):
                pass  # The lease has ended, or ends the term soon.
