"""As `sync_heart`, for asyncio: the task that renews the locks of a client with `auto_renewal`, and looks at those that
are watched."""

from __future__ import annotations

import asyncio
import math
import time
import weakref
from typing import Any

from redis.exceptions import ConnectionError, ResponseError

from . import redis_py
from .async_talk import Line, replies, start, within
from .beating import TOGETHER, Beating, alike
from .heartbeat import Look

# The longest sleep, in seconds, even if nothing is due.
_LONGEST = 3600.0

# The heart of each pool. In a cluster, each node makes connections and has a heart.
_hearts: weakref.WeakKeyDictionary[Any, Heart] = weakref.WeakKeyDictionary()


def of(source: Any) -> Heart:
    """Returns the heart for the connections of a pool, in the event loop that runs."""
    heart = _hearts.get(source)
    if heart is None or heart.loop is not asyncio.get_running_loop():
        heart = _hearts[source] = Heart(source)
    return heart


class Heart:
    """The task for the connections of one pool, and the holds that it looks after. The task ends when there are
    none."""

    def __init__(self, source: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self._source = weakref.ref(source)
        self._watches: set[Beating] = set()
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._line: Line | None = None
        # When the task wakes up by itself; infinite while it does not sleep.
        self._next = math.inf

    def join(self, watch: Beating) -> None:
        """Looks after a hold from now on."""
        self._watches.add(watch)
        if self._task is None or self._task.done():
            self._task = start(self._run())
        elif watch.due() < self._next:
            self.wake()

    def leave(self, watch: Beating) -> None:
        """Stops looking after a hold."""
        self._watches.discard(watch)
        if not self._watches:
            self.wake()

    def wake(self) -> None:
        """Wakes the task up, because something is due earlier. The finalizer of a hold may call this, in any thread."""
        try:
            if asyncio.get_running_loop() is self.loop:
                self._changed.set()
                return
        except RuntimeError:
            pass  # Thread without an event loop.
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._changed.set)

    async def _run(self) -> None:
        try:
            while self._watches:
                now = time.monotonic()
                due = [watch for watch in list(self._watches) if watch.is_due(now + TOGETHER, now)]
                if due and min(watch.due() for watch in due) <= now:
                    await self._look(alike(due))
                else:
                    await self._sleep(now)
        except Exception as error:  # noqa: BLE001 - nobody knows any more whether the locks are held
            for watch in list(self._watches):
                self.leave(watch)
                watch.lose(f"nothing watches it any more: {error!r}")
            raise
        finally:
            # From here on, `join` may begin a new task.
            self._task = None
            await self._close()

    async def _sleep(self, now: float) -> None:
        self._changed.clear()
        self._next = min((watch.due() for watch in list(self._watches)), default=now)
        waking = asyncio.ensure_future(self._changed.wait())
        pause = min(self._next - now, _LONGEST)
        try:
            await asyncio.wait({waking}, timeout=max(0.0, pause))
        finally:
            waking.cancel()
            self._next = math.inf

    async def _look(self, watches: list[Beating]) -> None:
        """Renews or checks some holds in one exchange."""
        looks = [(watch, watch.begin(time.monotonic())) for watch in watches]
        commands = [watch.commands(look) for watch, look in looks]
        until = time.monotonic() + min(watch.answer_within(time.monotonic()) for watch in watches)
        sent = False
        try:
            line = await self._own(until)
            sent = True
            futures = await within(
                max(0.0, until - time.monotonic()), line.send(*(command for each in commands for command in each))
            )
            answers = await replies(futures, until)
            for answer in answers:
                if isinstance(answer, redis_py.LOST):
                    raise answer
        except (*redis_py.LOST, redis_py.Unreachable, asyncio.TimeoutError) as error:
            await self._close()
            for watch, look in looks:
                self._failed(watch, look, error, executed=sent)
            return
        except BaseException:
            await self._close()
            raise
        for (watch, look), each in zip(looks, commands):
            await self._took(watch, look, [answers.pop(0) for _ in each])

    async def _took(self, watch: Beating, look: Look, answers: list[Any]) -> None:
        errors = [answer for answer in answers if isinstance(answer, ResponseError)]
        if errors:
            # The connection may lead to a server that is no primary any more. If the server refused only some of the
            # commands, it executed the others, and a lease may have changed.
            await self._close()
            self._failed(watch, look, errors[0], executed=len(errors) < len(answers))
        else:
            watch.took(look, answers)

    def _failed(self, watch: Beating, look: Look, error: Exception, *, executed: bool) -> None:
        watch.failed(look, error, executed=executed)
        if (there := watch.source()) is not self._source():
            # The slot of the hold's key is on another node now.
            self.leave(watch)
            watch.moves(of(there))

    async def _own(self, until: float) -> Line:
        """Returns the connection of the heart. Connects if there is none."""
        if self._line is None:
            source = self._source()
            if source is None:
                raise redis_py.Unreachable(ConnectionError("the client is gone"))
            line = Line(source, until)
            await line.connect(until)
            self._line = line
        return self._line

    async def _close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()
