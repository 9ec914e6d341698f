"""The programs: one or two for each package, and the command."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import select
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from machines import COMMAND, HOST, die_with_parent

Answer = dict[str, Any]
# How long a program may take to start on a busy machine, in seconds.
STARTS = 120.0


class Died(Exception):
    """The program has ended, so it does not answer: it was killed, or ended by itself."""


def micros() -> int:
    """Returns the time of the machine's one monotonic clock."""
    return time.monotonic_ns() // 1000


class Program:
    """A process that reads requests and writes answers, an object a line."""

    def __init__(self, name: str, words: list[str]) -> None:
        self.name = name
        self.features: set[str] = set()
        self.pid = 0
        self._words = words
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._log = tempfile.TemporaryFile()
        self.killed: set[int] = set()
        # The time of the last kill.
        self.killed_at = 0

    async def start(self) -> None:
        """Starts it, and waits until it says what it can do."""
        self._process = await asyncio.create_subprocess_exec(
            *self._words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=self._log,
            preexec_fn=die_with_parent, limit=1 << 20)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), STARTS)
        if not line:
            raise RuntimeError(f"{self.name} does not start:\n{self.log()}")
        self.features = set(json.loads(line)["features"])
        self._reading = asyncio.create_task(self._read(self._process.stdout))

    async def ask(self, **request: Any) -> Answer:
        """Sends a request and returns its answer."""
        if self.has_ended:
            raise Died
        number = next(self._ids)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps({"id": number, **request}) + "\n").encode())
        try:
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def _read(self, output: asyncio.StreamReader) -> None:
        while line := await output.readline():
            reply = json.loads(line)
            if (answer := self._waiting.get(reply["id"])) is not None and not answer.done():
                answer.set_result(reply)
        await self._process.wait()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(Died())

    @property
    def has_ended(self) -> bool:
        """Returns whether the process is gone."""
        return self._process.returncode is not None

    def log(self) -> str:
        """Returns the end of what it wrote to stderr."""
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace")

    def signal(self, number: int) -> None:
        """Sends a signal."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def kill(self) -> list[int]:
        """Kills it, and returns the ids of the processes that died."""
        self.killed_at = micros()
        self.killed.add(self.pid)
        self.signal(signal.SIGKILL)
        await self._process.wait()
        await self._reading
        return [self.pid]

    async def close(self) -> None:
        """Ends its input, and kills it if it does not end then."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except asyncio.TimeoutError:
            await self.kill()


class Under:
    """A command under `dlock run`, which ends before its lock is released. Only the end of its process shows a loss."""

    def __init__(self, pid: int) -> None:
        self._process: int | None = None
        with contextlib.suppress(ProcessLookupError):
            self._process = os.pidfd_open(pid)

    def said(self) -> Answer:
        """Returns what it says of its lock: it counts as holding the lock for as long as it runs."""
        at = micros()
        lost = self._process is None or bool(select.select([self._process], [], [], 0)[0])
        return {"at": [at, micros()], "remaining": 0.0 if lost else 0.001, "lost": lost}

    def close(self) -> None:
        """Forgets it."""
        if self._process is not None:
            os.close(self._process)


class Command:
    """`dlock run`: each lock is a process, whose command ends with its input."""

    def __init__(self) -> None:
        self.name = "dlock run"
        self.features = {"slots", "replicas", "cancel"}
        self.pid = 0
        self.has_ended = False
        self.killed_at = 0
        self._runs: dict[str, asyncio.subprocess.Process] = {}
        self._commands: dict[str, Under] = {}

    async def start(self) -> None:
        """Starts nothing: each lock is a program of its own."""

    async def ask(self, *, do: str, worker: str, **request: Any) -> Answer:
        """Does what a program does."""
        if do == "acquire":
            return await self._acquire(worker, request)
        run = self._runs[worker]
        if do == "cancel":
            with contextlib.suppress(ProcessLookupError):
                run.send_signal(signal.SIGINT)
            return {"result": "ok"}
        told = {"result": "held", **self._commands[worker].said()}
        if do == "release":
            assert run.stdin is not None
            run.stdin.close()
            code = await run.wait()
            if code == -signal.SIGKILL:
                raise Died
            _, message = await self._said(run)
            told["result"] = {0: "failed" if "not released" in message else "released", 75: "lost"}.get(code, "failed")
            told["message"] = f"{code} {message}" if code else message
        return told

    async def _acquire(self, worker: str, request: Answer) -> Answer:
        addresses = ",".join(f"{HOST}:{port}" for port in request["ports"])
        url = f"redis://{addresses}" if request["by"] != "sentinel" else f"redis-sentinel://{addresses}/locks"
        url += f"/{request['db']}" if request["db"] else ""
        words = [COMMAND, "-s", url, "run", "--lease", f"{max(3000, request['lease'])}ms"]
        words += ["--wait", f"{request['wait']}ms"] if request["wait"] else ["--no-wait"]
        words += ["--shared"] if request["mode"] == "read" else []
        words += ["--limit", str(request["slots"]), "--slot"] if request["slots"] else []
        words += ["--replicas", str(request["replicas"])] if request["replicas"] else []
        words += [request["name"], "--", "sh", "-c", "echo $DLOCK_TOKEN $$ $DLOCK_SLOT; exec cat"]
        pipe = asyncio.subprocess.PIPE
        run = await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=die_with_parent)
        self._runs[worker] = run
        assert run.stdout is not None
        granted = (await run.stdout.readline()).decode().split()
        if granted:
            if worker in self._commands:
                self._commands[worker].close()
            self._commands[worker] = Under(int(granted[1]))
            slot = int(granted[2]) if len(granted) > 2 else None
            return {"result": "granted", "token": int(granted[0]), "slot": slot, "process": run.pid,
                    **self._commands[worker].said()}
        code, message = await self._said(run)
        if code == -signal.SIGKILL:
            raise Died
        result = {1: "refused", 130: "canceled", -signal.SIGINT: "canceled", 69: "unreachable"}.get(code, "error")
        result = "too-few-replicas" if "replicas acknowledged in time" in message else result
        return {"result": result, "message": f"{code} {message}", "at": [micros(), micros()], "process": run.pid}

    @staticmethod
    async def _said(run: asyncio.subprocess.Process) -> tuple[int, str]:
        assert run.stderr is not None
        message = (await run.stderr.read()).decode(errors="replace").strip()
        return await run.wait(), message

    def log(self) -> str:
        """Returns nothing: each process says what it has to say."""
        return ""

    def signal(self, number: int) -> None:
        """Does nothing: a stopped `dlock run` cannot end its command when the lock is lost, as docs/run.md says."""

    async def kill(self) -> list[int]:
        """Kills each `dlock run` that has not ended, and returns their ids."""
        self.killed_at = micros()
        killed = [run for run in self._runs.values() if run.returncode is None]
        for run in killed:
            with contextlib.suppress(ProcessLookupError):
                run.kill()
        return [run.pid for run in killed]

    async def close(self) -> None:
        """Ends all that run."""
        await self.kill()


def commands(built: Path) -> dict[str, list[str]]:
    """Returns what starts each program, built or copied by `prepare`."""
    python = os.environ.get("DLOCK_PYTHON", "python3")
    return {
        "python threads": [python, str(built / "client.py"), "threads"],
        "python asyncio": [python, str(built / "client.py"), "asyncio"],
        "ioredis": ["node", str(built / "client.mjs"), "ioredis"],
        "node-redis": ["node", str(built / "client.mjs"), "node-redis"],
        "java": ["java", "-Xmx128m", "-cp", f"{built}/java", "Client"],
        "go": [str(built / "go-client")],
        "rust": [str(built / "rust-client")],
        "ruby": ["ruby", f"-I{built}/clients/ruby/lib", str(built / "client.rb")],
        "php": ["php", str(built / "client.php"), str(built / "clients/php/src/DlockStore.php")],
    }
