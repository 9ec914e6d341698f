"""The adapters of the conformance suite (tests/conformance/README.md): python conformance_adapter.py sync | asyncio"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TextIO

import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio

Answer = dict[str, Any]


def settings(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of the lock class. A lock without a timeout would be bound to a session."""
    outage = {} if request["outage"] is None else {"outage": request["outage"] / 1000}
    # A permit is always shared.
    mode = {"mode": request["mode"]} if request["slots"] is None else {}
    return {
        **outage,
        **mode,
        "timeout": request["lease"] / 1000,
        "session": request["session"],
        "auto_renewal": request["keep"],
        "replicas": request["replicas"],
        "replicas_timeout": request["replicas_timeout"] / 1000,
    }


def waiting(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `acquire`."""
    wait = request["wait"]
    return {"blocking": wait != 0, "blocking_timeout": None if wait in (None, 0) else wait / 1000}


def result_of(error: BaseException, task: str) -> Answer:
    """Returns the result that an error stands for."""
    if isinstance(error, redis_dlock.ReplicasError):
        result = "too-few-replicas"
    elif "is the dlock module loaded" in str(error):
        result = "no-module"
    elif isinstance(error, (asyncio.CancelledError, KeyboardInterrupt)):
        result = "canceled"
    elif isinstance(error, redis_dlock.LockNotOwnedError):
        result = "lost"
    elif task != "acquire":
        result = "failed"
    else:
        result = "unreachable" if isinstance(error, (redis.ConnectionError, redis.TimeoutError)) else "error"
    return {"result": result, "message": repr(error)}


def granted(lock: Any) -> Answer:
    """Returns the answer to a grant."""
    slot = {"slot": lock.slot} if hasattr(type(lock), "slot") else {}
    return {"result": "granted", "token": lock.token, **slot}


def answer(number: int, reply: Answer) -> None:
    """Writes an answer, in one piece."""
    sys.stdout.write(json.dumps({"id": number, **reply}) + "\n")
    sys.stdout.flush()


class Processes:
    """An interrupt reaches the main thread of a process, so each lock has one. The named session's locks share one."""

    features = ["cancel", "outage", "named", "slots"]

    def __init__(self) -> None:
        # For each worker, its process and the pipe for its requests; for each lock, the name of its worker.
        self._workers: dict[str, tuple[int, TextIO]] = {}
        self._homes: dict[str, str] = {}
        # Inherited by each process, until it has a handler of its own.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def run(self) -> None:
        """Serves requests until the end of the input."""
        for line in sys.stdin:
            request = json.loads(line)
            if request["do"] == "acquire":
                self._homes[request["lock"]] = "named" if request["named"] else request["lock"]
            process, requests = self._worker(self._homes[request["lock"]])
            if request["do"] == "cancel":
                os.kill(process, signal.SIGINT)
                answer(request["id"], {"result": "ok"})
            else:
                requests.write(line)
                requests.flush()

    def _worker(self, name: str) -> tuple[int, TextIO]:
        if name not in self._workers:
            reading, writing = os.pipe()
            # A process with only one thread can fork safely.
            process = os.fork()
            if process == 0:
                os.close(writing)
                for _, requests in self._workers.values():
                    requests.close()
                Threads(shares=name == "named").run(os.fdopen(reading))
                os._exit(0)
            os.close(reading)
            self._workers[name] = process, os.fdopen(writing, "w")
        return self._workers[name]


class Threads:
    """The main thread acquires, if a session is not shared; each other request has a thread of its own."""

    def __init__(self, shares: bool) -> None:
        self._locks: dict[str, redis_dlock.DLock] = {}
        self._session: redis_dlock.Session | None = None
        self._shares = shares
        self._to_acquire: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        # Whether the main thread acquires, and may be interrupted; how often it has begun; whether it is in `_again`.
        self._acquires = False
        self._turns = 0
        self._drops = False

    def run(self, requests: TextIO) -> None:
        """Serves requests until their end."""
        signal.signal(signal.SIGINT, self._interrupt)
        sys.unraisablehook = self._again
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()
        while (request := self._to_acquire.get()) is not None:
            self._do(request)

    def _read(self, requests: TextIO) -> None:
        for line in requests:
            request = json.loads(line)
            if request["do"] == "acquire" and not self._shares:
                self._to_acquire.put(request)
            else:
                threading.Thread(target=self._do, args=(request,), daemon=True).start()
        self._to_acquire.put(None)

    def _interrupt(self, number: int, frame: object) -> None:
        if self._acquires and not self._drops:
            self._acquires = False
            raise KeyboardInterrupt

    def _again(self, dropped: Any) -> None:
        """The interpreter drops an interrupt that comes in a destructor, or in this function: it comes once more, later."""
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            self._drops = self._acquires = True
            threading.Thread(target=self._interrupt_later, args=(self._turns,), daemon=True).start()
            self._drops = False

    def _interrupt_later(self, turn: int) -> None:
        while self._acquires and self._turns == turn:
            time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

    def _do(self, request: dict[str, Any]) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        try:
            if is_main:
                self._turns += 1
                self._acquires = True
            reply = self._tasks[request["do"]](request)
            self._acquires = self._acquires and not is_main
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - it is the answer
            self._acquires = self._acquires and not is_main
            reply = result_of(error, request["do"])
        with _writing:
            answer(request["id"], reply)

    @property
    def _tasks(self) -> dict[str, Callable[[dict[str, Any]], Answer]]:
        return {"acquire": self._acquire, "release": self._release, "extend": self._extend, "lost": self._lost}

    def _acquire(self, request: dict[str, Any]) -> Answer:
        lock = self._lock(request)
        self._locks[request["lock"]] = lock
        return granted(lock) if lock.acquire(**waiting(request)) else {"result": "refused"}

    def _lock(self, request: dict[str, Any]) -> redis_dlock.DLock:
        if request["named"]:
            if self._session is None or not self._session.is_open:
                self._session = redis_dlock.Session(redis.Redis(port=request["port"])).open()
            shared = {**settings(request), "session": self._session}
            return redis_dlock.DLock(self._session.redis, request["name"], thread_local=False, **shared)
        client = redis.Redis(port=request["port"])
        if request["slots"] is not None:
            pool = redis_dlock.DSemaphore(client, request["name"], request["slots"], slots=True, **settings(request))
            return pool.permit()
        return redis_dlock.DLock(client, request["name"], thread_local=False, **settings(request))

    def _release(self, request: dict[str, Any]) -> Answer:
        self._locks[request["lock"]].release()
        return {"result": "released"}

    def _extend(self, request: dict[str, Any]) -> Answer:
        self._locks[request["lock"]].extend(request["lease"] / 1000, replace_ttl=True)
        return {"result": "extended"}

    def _lost(self, request: dict[str, Any]) -> Answer:
        self._locks[request["lock"]].lost.wait()
        return {"result": "lost"}


_writing = threading.Lock()


class Tasks:
    """Each request is a task."""

    features = ["cancel", "outage", "named", "slots"]

    def __init__(self) -> None:
        self._locks: dict[str, redis_dlock.asyncio.DLock] = {}
        self._session: redis_dlock.asyncio.Session | None = None
        self._acquiring: dict[str, asyncio.Task[bool]] = {}
        self._working: set[asyncio.Task[None]] = set()

    def run(self) -> None:
        """Serves requests until the end of the input."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        while line := await asyncio.to_thread(sys.stdin.readline):
            task = asyncio.create_task(self._do(json.loads(line)))
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        for task in self._working:
            task.cancel()

    async def _do(self, request: dict[str, Any]) -> None:
        try:
            reply = await self._tasks[request["do"]](request)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is the answer
            reply = result_of(error, request["do"])
        answer(request["id"], reply)

    @property
    def _tasks(self) -> dict[str, Callable[[dict[str, Any]], Awaitable[Answer]]]:
        return {
            "acquire": self._acquire,
            "release": self._release,
            "extend": self._extend,
            "lost": self._lost,
            "cancel": self._cancel,
        }

    async def _acquire(self, request: dict[str, Any]) -> Answer:
        lock = await self._lock(request)
        self._locks[request["lock"]] = lock
        self._acquiring[request["lock"]] = asyncio.create_task(lock.acquire(**waiting(request)))
        return granted(lock) if await self._acquiring[request["lock"]] else {"result": "refused"}

    async def _lock(self, request: dict[str, Any]) -> redis_dlock.asyncio.DLock:
        if request["named"]:
            if self._session is None or not self._session.is_open:
                self._session = redis_dlock.asyncio.Session(redis.asyncio.Redis(port=request["port"]))
                await self._session.open()
            shared = {**settings(request), "session": self._session}
            return redis_dlock.asyncio.DLock(self._session.redis, request["name"], **shared)
        client = redis.asyncio.Redis(port=request["port"])
        if request["slots"] is not None:
            named = request["name"], request["slots"]
            return redis_dlock.asyncio.DSemaphore(client, *named, slots=True, **settings(request)).permit()
        return redis_dlock.asyncio.DLock(client, request["name"], **settings(request))

    async def _release(self, request: dict[str, Any]) -> Answer:
        await self._locks[request["lock"]].release()
        return {"result": "released"}

    async def _extend(self, request: dict[str, Any]) -> Answer:
        await self._locks[request["lock"]].extend(request["lease"] / 1000, replace_ttl=True)
        return {"result": "extended"}

    async def _lost(self, request: dict[str, Any]) -> Answer:
        await self._locks[request["lock"]].lost
        return {"result": "lost"}

    async def _cancel(self, request: dict[str, Any]) -> Answer:
        self._acquiring[request["lock"]].cancel()
        return {"result": "ok"}


if __name__ == "__main__":
    adapter = Processes() if sys.argv[1] == "sync" else Tasks()
    print(json.dumps({"features": adapter.features}), flush=True)
    adapter.run()
