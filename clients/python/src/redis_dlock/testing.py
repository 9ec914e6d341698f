"""A lock server of its own for tests, without Redis: `dlock serve`.

    with LockServer() as server:
        client = server.client()
        DLock(client, "job:1", timeout=30).acquire()
        server.advance(31)  # the lease ends without waiting
        assert DLock(client, "job:1").acquire(blocking=False)

With pytest, `pytest_plugins = ["redis_dlock.testing"]` in conftest.py gives tests the fixture `dlock_server`. The
command is `DLOCK_COMMAND`, or `dlock` on the path; without it, `LockServer` raises `FileNotFoundError`, and the fixture
skips.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import redis

__all__ = ["LockServer"]

# How long the command may take until it listens, in seconds.
_START = 30.0


class LockServer:
    """A server in memory on a free port. Its clock can be moved on."""

    def __init__(self, *options: str, command: str | None = None) -> None:
        """`options`: of `dlock serve`. `command`: the program to start."""
        program = shutil.which(command or os.environ.get("DLOCK_COMMAND") or "dlock")
        if program is None:
            raise FileNotFoundError("there is no command dlock: install it, or set DLOCK_COMMAND")
        words = [program, "serve", "--port", "0", "--print-port", "--test-clock", *options]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        # The finalizer also runs at the end of the program, which the server would outlive.
        self._end = weakref.finalize(self, _end, process)
        limit = threading.Timer(_START, process.kill)
        limit.start()
        assert process.stdout is not None
        with process.stdout:
            line = process.stdout.readline()
        limit.cancel()
        if not line:
            raise RuntimeError(f"dlock serve ended with code {process.wait()}")
        self.port = int(line)
        self._clients: list[redis.Redis] = []

    @property
    def url(self) -> str:
        """Returns the URL of the server."""
        return f"redis://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> redis.Redis:
        """Returns a client, which is closed with the server. `options`: of `redis.Redis`."""
        client = redis.Redis(port=self.port, **options)
        self._clients.append(client)
        return client

    def advance(self, seconds: float) -> None:
        """Moves the server's clock on: leases that end in that time have ended, and the next waiters have the locks."""
        with redis.Redis(port=self.port) as client:
            client.execute_command("DLOCK.CLOCK", "ADVANCE", round(seconds * 1000))

    def close(self) -> None:
        """Ends the server."""
        for client in self._clients:
            client.close()
        self._end()

    def __enter__(self) -> LockServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


try:
    import pytest
except ImportError:
    pass
else:

    @pytest.fixture
    def dlock_server() -> Iterator[LockServer]:
        """Starts a lock server in memory for a test."""
        try:
            server = LockServer()
        except FileNotFoundError as missing:
            pytest.skip(str(missing))
        with server:
            yield server
