"""Clients and locks for tests that run with the lock of threads and with that of asyncio, and functions that show what
the server has."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from machine import waited_for_a_core

# How long a test waits for a condition, in seconds: enough for a busy machine.
PATIENCE = float(os.environ.get("DLOCK_TEST_PATIENCE", "60"))
# The number of threads and processes that an operation passes through. Each of them may be as late as `Took` measures.
HANDS = 3


def address() -> dict[str, Any]:
    """Returns the settings by which a client reaches the server."""
    return {"host": os.environ["DLOCK_TEST_HOST"], "port": int(os.environ["DLOCK_TEST_PORT"])}


def soon(what: str, condition: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, f"not in time: {what}"
        time.sleep(0.003)


async def certain_again(lock: Any) -> None:
    """Waits until a client knows that its lock is bound again, which the server knows before its answer arrives."""
    ends = time.monotonic() + PATIENCE
    while lock.remaining == 0:
        assert time.monotonic() < ends, "not in time: the lock is certain again"
        await asyncio.sleep(0.003)


async def refused(acquire: Callable[[], Awaitable[bool]]) -> bool:
    """Returns whether a server refuses a lock. On a busy machine the answer may come too late, which the client reports
    as a missing answer: then the lock is asked for again."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        try:
            return not await acquire()
        except (redis.ConnectionError, redis.TimeoutError):
            pass
    return False


class Took:
    """Measures how long something takes. `is_within` allows for the delays of the machine."""

    # The seconds by which this process was woken too late so far. `waited_for_a_core` measures all processes.
    _late = 0.0
    _measures = False

    def __init__(self) -> None:
        if not Took._measures:
            Took._measures = True
            threading.Thread(target=self._measure, daemon=True).start()
        self._began, self._late_then, self._waited_then = time.monotonic(), Took._late, waited_for_a_core()

    @staticmethod
    def _measure() -> None:
        while True:
            began = time.monotonic()
            time.sleep(0.01)
            late = time.monotonic() - began - 0.01
            # A millisecond is no delay.
            Took._late += late if late > 0.001 else 0.0

    def seconds(self) -> float:
        """Returns the seconds since this object was made."""
        return time.monotonic() - self._began

    def is_within(self, limit: float) -> bool:
        """Returns whether at most that many seconds have passed since this object was made, without the delays."""
        took = self.seconds()
        # The thread that measures may be late itself. It gets the time to count its last delay.
        time.sleep(0.05)
        waited = waited_for_a_core() - self._waited_then
        return took <= limit + HANDS * (Took._late - self._late_then) + waited


def command(client: Any, *words: Any) -> Any:
    """Returns the reply to a command."""
    return client.execute_command(*words)


def info(client: redis.Redis, name: str, *options: Any) -> dict[str, Any]:
    """Returns what `DLOCK.INFO` says of a lock; empty if nobody has it or waits for it."""
    return _plain(command(client, "DLOCK.INFO", name, *options)) or {}


def _plain(value: Any) -> Any:
    """Returns a reply with texts for keys and values, and maps for the flat arrays of RESP2."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [_plain(item) for item in value]
        # A flat array that begins with one of these names is a map: the reply of `DLOCK.INFO`, a hold or a waiter.
        named = items and len(items) % 2 == 0 and items[0] in ("mode", "owner")
        return dict(zip(items[::2], items[1::2])) if named else items
    return value.decode() if isinstance(value, bytes) else value


def waiters(client: redis.Redis, name: str) -> int:
    """Returns how many requests wait in the queue of a lock."""
    return int(info(client, name).get("waiters", 0))


class Plain:
    """Wraps a synchronous object, so that its methods can be awaited."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            return found(*args, **kwargs)

        return call

    async def __aenter__(self) -> Plain:
        entered = self._inner.__enter__()
        return self if entered is self._inner else Plain(entered)

    async def __aexit__(self, *failure: Any) -> None:
        self._inner.__exit__(*failure)


class Kit:
    """Makes clients and locks."""

    def __init__(self) -> None:
        self._clients: list[Any] = []

    def client(self, **settings: Any) -> Any:
        """Returns a new client of the server."""
        return self.client_of(address(), **settings)

    def client_of(self, where: dict[str, Any], **settings: Any) -> Any:
        """Returns a new client of the server at another address."""
        raise NotImplementedError

    def lock(self, name: str, *, client: Any = None, **settings: Any) -> Any:
        """Returns a lock as a user of redis-py gets it: `redis.lock(name, lock_class=DLock)`."""
        raise NotImplementedError

    def extra(self, name: str, *, client: Any = None, **settings: Any) -> Any:
        """Returns a lock with settings that redis-py's own lock lacks: `DLock(redis, name, …)`."""
        raise NotImplementedError

    def session(self, *, client: Any = None, **settings: Any) -> Any:
        """Returns a named session, which is not open yet."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the clients of threads."""

    async def aclose(self) -> None:
        """Closes the clients of asyncio, in the event loop."""


class PlainKit(Kit):
    """Makes clients and locks of threads: `redis_dlock.DLock`."""

    def client_of(self, where: dict[str, Any], **settings: Any) -> Any:
        self._clients.append(redis.Redis(**where, **settings))
        return Plain(self._clients[-1])

    def lock(self, name: str, *, client: Any = None, **settings: Any) -> Any:
        client = client or self.client()
        return Plain(client._inner.lock(name, lock_class=redis_dlock.DLock, **settings))

    def extra(self, name: str, *, client: Any = None, **settings: Any) -> Any:
        if isinstance(settings.get("session"), Plain):
            settings["session"] = settings["session"]._inner
        return Plain(redis_dlock.DLock((client or self.client())._inner, name, **settings))

    def session(self, *, client: Any = None, **settings: Any) -> Any:
        return Plain(redis_dlock.Session((client or self.client())._inner, **settings))

    def close(self) -> None:
        for client in self._clients:
            client.close()


class AsyncioKit(Kit):
    """Makes clients and locks of asyncio: `redis_dlock.asyncio.DLock`."""

    def client_of(self, where: dict[str, Any], **settings: Any) -> Any:
        self._clients.append(redis.asyncio.Redis(**where, **settings))
        return self._clients[-1]

    def lock(self, name: str, *, client: Any = None, **settings: Any) -> Any:
        return (client or self.client()).lock(name, lock_class=redis_dlock.asyncio.DLock, **settings)

    def extra(self, name: str, *, client: Any = None, **settings: Any) -> Any:
        return redis_dlock.asyncio.DLock(client or self.client(), name, **settings)

    def session(self, *, client: Any = None, **settings: Any) -> Any:
        return redis_dlock.asyncio.Session(client or self.client(), **settings)

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()
