"""Servers beside the one at DLOCK_TEST_HOST and DLOCK_TEST_PORT."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from kit import soon
from machine import free_port

S = TypeVar("S", bound="Server")
MODULE = Path(__file__).parents[3] / "target/release/libdlock.so"


class Server:
    """A server on a free port, or on the one given. Use it in a `with` block."""

    def __init__(
        self, *options: str, module: bool = True, port: int | None = None, config: str | None = None
    ) -> None:
        self._home = tempfile.TemporaryDirectory()
        binary = os.environ.get("DLOCK_SERVER") or shutil.which("redis-server") or "valkey-server"
        words = [binary, *([config, "--sentinel"] if config else [])]
        words += ["--bind", "127.0.0.1", "--dir", self._home.name]
        if not config:
            words += ["--save", "", "--repl-diskless-sync-delay", "0"]
        if module:
            words += ["--loadmodule", os.environ.get("DLOCK_MODULE") or str(MODULE)]
        for _ in range(1 if port else 3):
            self.port = port or free_port()
            self._process = subprocess.Popen([*words, "--port", str(self.port), *options], stdout=subprocess.DEVNULL)
            self.client = redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0))
            soon("it answers, or ends", lambda: self.answers() or self._process.poll() is not None)
            # The port, or that of the bus, may have gone to another program first.
            if self._process.poll() is None:
                return
            self.client.close()
        self.close()
        raise AssertionError("the server does not start")

    def answers(self) -> bool:
        """Returns whether this server answers, and not another one at its port."""
        try:
            return bool(self.client.info("server")["process_id"] == self._process.pid)
        except redis.RedisError:
            return False

    def replicate(self, primary: Server) -> None:
        """Becomes a replica of `primary`, and waits until it has the data of the primary."""
        self.client.replicaof("127.0.0.1", str(primary.port))
        soon("it replicates", lambda: self._online(primary))
        # The first acknowledgement takes longer than those that follow.
        with primary.client.pipeline(transaction=False) as pipeline:
            pipeline.set("replicated", 1)
            pipeline.delete("replicated")
            pipeline.wait(1, 20_000)
            assert pipeline.execute()[-1] == 1

    def _online(self, primary: Server) -> bool:
        replication = primary.client.info("replication")
        known = [each for name, each in replication.items() if name.startswith("slave")]
        return any(each["port"] == self.port and each["state"] == "online" for each in known)

    def freeze(self) -> None:
        """Stops the process: connections stay open, and nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets the process go on."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends it, even if it is frozen."""
        self.client.close()
        self._process.kill()
        self._process.wait()
        self._home.cleanup()

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
