"""Servers with the module, for the time of a suite or of another program of this repository."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

# All tests in Python take ports in the same way.
sys.path.append(str(Path(__file__).resolve().parents[2] / "clients/python/tests"))
from machine import free_port  # noqa: E402 - the path comes first

# How long a server may take to start, in seconds.
DEADLINE = 30


def answers(port: int, module: bool = True) -> bool:
    """Returns whether a server answers, and if `module`, whether it knows the command of the module."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            # INFO of a lock that is free is nil, in one of its forms; a server without the module answers an error.
            connection.sendall(b"DLOCK.INFO none\r\n" if module else b"PING\r\n")
            return connection.recv(1) in ((b"*", b"%", b"_", b"$") if module else (b"+",))
    except OSError:
        return False


class Servers:
    """Servers on free ports. Use them in a `with` block."""

    def __init__(self, number: int, settings: Mapping[str, str] = os.environ, module: bool = True) -> None:
        """`settings`: the paths `DLOCK_SERVER` and `DLOCK_MODULE`. `module`: whether they load it."""
        self._module = module
        self._words = [settings["DLOCK_SERVER"], "--bind", "127.0.0.1", "--save", ""]
        if module:
            self._words += ["--loadmodule", settings["DLOCK_MODULE"]]
        self._homes: list[tempfile.TemporaryDirectory[str]] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self.ports = [self._start() for _ in range(number)]

    def _start(self) -> int:
        home = tempfile.TemporaryDirectory()
        self._homes.append(home)
        for _ in range(3):
            port = free_port()
            process = subprocess.Popen([*self._words, "--port", str(port), "--dir", home.name], stdout=subprocess.DEVNULL)
            end = time.monotonic() + DEADLINE
            # The port may have gone to another program first. The process then ends.
            while process.poll() is None and time.monotonic() < end:
                if answers(port, self._module):
                    self._processes.append(process)
                    return port
                time.sleep(0.02)
            process.kill()
            process.wait()
        raise SystemExit("the server does not start")

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for home in self._homes:
            home.cleanup()
