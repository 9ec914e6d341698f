"""A program of chaos with the Python package (README.md): python client.py threads | asyncio"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import threading
import time
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

import redis_dlock
import redis_dlock.asyncio

Answer = dict[str, Any]


def micros() -> int:
    """Returns the time of the machine's one monotonic clock."""
    return time.monotonic_ns() // 1000


def claim(lock: Any, is_set: Any) -> Answer:
    """Returns what the lock says of itself, between two times. A lock that was never acquired is lost."""
    before, token = micros(), None
    try:
        # In this order: a lock that is lost between the two is told as lost.
        remaining = lock.remaining
        lost = is_set(lock.lost)
        token = None if lost else lock.token
    except redis.exceptions.LockError:
        remaining, lost = 0.0, True
    return {"at": [before, micros()], "remaining": remaining * 1000, "lost": lost, "token": token}


def result_of(error: BaseException, do: str) -> Answer:
    """Returns the result that an error stands for."""
    if isinstance(error, redis_dlock.ReplicasError):
        result = "too-few-replicas"
    elif isinstance(error, asyncio.CancelledError):
        result = "canceled"
    elif isinstance(error, redis.exceptions.LockError):
        result = "lost"
    elif isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
        result = "unreachable" if do == "acquire" else "failed"
    else:
        result = "error"
    return {"result": result, "message": repr(error)}


def answer(number: int, reply: Answer) -> None:
    """Writes an answer, in one piece."""
    with _writing:
        sys.stdout.write(json.dumps({"id": number, **reply}) + "\n")
        sys.stdout.flush()


_writing = threading.Lock()


class Program:
    """The part that threads and tasks have in common: the client, the session and the lock objects that they share."""

    def __init__(self, package: Any, clients: Any) -> None:
        self._package = package
        self._clients = clients
        self._shared: dict[str, Any] = {}

    def client(self, request: Answer) -> Any:
        """Returns the one client of a database."""
        key = f"client {request['db']}"
        if key not in self._shared:
            host, ports, db = "127.0.0.1", request["ports"], request["db"]
            if request["by"] == "sentinel":
                sentinels = [(host, each) for each in ports]
                made = self._clients.sentinel.Sentinel(sentinels, socket_timeout=2).master_for("locks", db=db)
            elif request["by"] == "cluster":
                made = self._clients.RedisCluster(host=host, port=ports[0])
            else:
                made = self._clients.Redis(host=host, port=ports[0], db=db)
            self._shared[key] = made
        return self._shared[key]

    def lock(self, request: Answer, session: Any) -> Any:
        """Returns the lock object, which all workers share that ask for the same. A permit is an object of its own."""
        options = {"timeout": request["lease"] / 1000, "auto_renewal": request["keep"], "replicas": request["replicas"]}
        options["session"] = False if session is None else session
        client = self.client(request)
        if request["slots"] is not None:
            pool = self._package.DSemaphore(client, request["name"], request["slots"], slots=True, **options)
            return pool.permit()
        same = [request[name] for name in ("db", "name", "mode", "lease", "keep")]
        key = json.dumps([*same, id(session)])
        if key not in self._shared:
            self._shared[key] = self._package.DLock(client, request["name"], mode=request["mode"], **options)
        return self._shared[key]


def waiting(request: Answer) -> dict[str, Any]:
    """Returns the arguments of `acquire`."""
    return {"blocking": request["wait"] != 0, "blocking_timeout": request["wait"] / 1000 or None}


class Threads(Program):
    """Each worker is a thread."""

    def __init__(self) -> None:
        super().__init__(redis_dlock, redis)
        self._workers: dict[str, queue.SimpleQueue[Answer]] = {}
        self._sharing = threading.Lock()

    def run(self) -> None:
        """Serves requests until the end of the input."""
        for line in sys.stdin:
            request = json.loads(line)
            if request["worker"] not in self._workers:
                self._workers[request["worker"]] = queue.SimpleQueue()
                threading.Thread(target=self._work, args=(self._workers[request["worker"]],), daemon=True).start()
            self._workers[request["worker"]].put(request)

    def _work(self, requests: queue.SimpleQueue[Answer]) -> None:
        lock: Any = None
        while True:
            request = requests.get()
            try:
                if request["do"] == "acquire":
                    with self._sharing:
                        lock = self.lock(request, self._session(request) if request["named"] else None)
                    reply = self._acquire(lock, request)
                else:
                    reply = {"result": "held", **claim(lock, lambda lost: lost.is_set())}
                    if request["do"] == "release":
                        lock.release()
                        reply["result"] = "released"
            except Exception as error:  # noqa: BLE001 - it is the answer
                reply = {"at": [micros(), micros()], **(reply if request["do"] == "release" else {}),
                         **result_of(error, request["do"])}
            answer(request["id"], reply)

    def _acquire(self, lock: Any, request: Answer) -> Answer:
        if not lock.acquire(**waiting(request)):
            return {"result": "refused"}
        told = claim(lock, lambda lost: lost.is_set())
        slot = {} if request["slots"] is None else {"slot": lock.slot}
        return {**told, "result": "granted", "token": lock.token, **slot}

    def _session(self, request: Answer) -> Any:
        key = f"session {request['db']}"
        if key not in self._shared or not self._shared[key].is_open:
            self._shared[key] = redis_dlock.Session(self.client(request), timeout=request["timeout"] / 1000).open()
        return self._shared[key]


class Tasks(Program):
    """Each worker is a task."""

    def __init__(self) -> None:
        super().__init__(redis_dlock.asyncio, redis.asyncio)
        self._workers: dict[str, asyncio.Queue[Answer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._acquiring: dict[str, asyncio.Task[Any]] = {}
        self._sharing = asyncio.Lock()

    async def run(self) -> None:
        """Serves requests until the end of the input."""
        while line := await asyncio.to_thread(sys.stdin.readline):
            request = json.loads(line)
            worker = request["worker"]
            if request["do"] == "cancel":
                if worker in self._acquiring:
                    self._acquiring[worker].cancel()
                answer(request["id"], {"result": "ok"})
                continue
            if worker not in self._workers:
                self._workers[worker] = asyncio.Queue()
                self._tasks.add(asyncio.create_task(self._work(worker, self._workers[worker])))
            self._workers[worker].put_nowait(request)

    async def _work(self, worker: str, requests: asyncio.Queue[Answer]) -> None:
        lock: Any = None
        while True:
            request = await requests.get()
            try:
                if request["do"] == "acquire":
                    async with self._sharing:
                        lock = self.lock(request, await self._session(request) if request["named"] else None)
                    reply = await self._cancelable(worker, lock, request)
                else:
                    reply = {"result": "held", **claim(lock, lambda lost: lost.done())}
                    if request["do"] == "release":
                        await lock.release()
                        reply["result"] = "released"
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is the answer
                reply = {"at": [micros(), micros()], **(reply if request["do"] == "release" else {}),
                         **result_of(error, request["do"])}
            answer(request["id"], reply)

    async def _cancelable(self, worker: str, lock: Any, request: Answer) -> Answer:
        task = asyncio.current_task()
        assert task is not None
        self._acquiring[worker] = task
        try:
            granted = await lock.acquire(**waiting(request))
        finally:
            del self._acquiring[worker]
        if not granted:
            return {"result": "refused"}
        slot = {} if request["slots"] is None else {"slot": lock.slot}
        told = claim(lock, lambda lost: lost.done())
        return {**told, "result": "granted", "token": lock.token, **slot}

    async def _session(self, request: Answer) -> Any:
        key = f"session {request['db']}"
        if key not in self._shared or not self._shared[key].is_open:
            session = redis_dlock.asyncio.Session(self.client(request), timeout=request["timeout"] / 1000)
            self._shared[key] = await session.open()
        return self._shared[key]


if __name__ == "__main__":
    features = ["named", "slots", "replicas"]
    if sys.argv[1] == "threads":
        print(json.dumps({"features": features}), flush=True)
        Threads().run()
    else:
        print(json.dumps({"features": [*features, "cancel"]}), flush=True)
        asyncio.run(Tasks().run())
