"""The programs for `run.py --through` and `--by sentinel`: `dlock agent`, a Sentinel, and the servers of a quorum."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from servers import PATIENCE, PROGRAM, Broken, Server, free_port, soon


class Agent:
    """An agent on a free port."""

    def __init__(self, *options: str) -> None:
        program = os.environ.get("DLOCK_PROGRAM") or str(PROGRAM)
        self.port = free_port()
        words = [program, "agent", "--listen", f"127.0.0.1:{self.port}", *options]
        self._process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        soon("the agent listens, or ends", lambda: self._listens() or self._process.poll() is not None)
        if self._process.poll() is not None:
            raise Broken("the agent does not start")

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def close(self) -> None:
        """Kills the agent."""
        self._process.kill()
        self._process.wait()


class Sentinel:
    """A Sentinel that names a primary at this port as `locks`, and never fails over by itself."""

    def __init__(self, primary: int) -> None:
        self._home = tempfile.TemporaryDirectory()
        self.port = free_port()
        # 2: a Sentinel that is alone never gets the votes for a failover.
        file = Path(self._home.name, "sentinel.conf")
        file.write_text(f"port {self.port}\nbind 127.0.0.1\ndir {self._home.name}\n"
                        f"sentinel monitor locks 127.0.0.1 {primary} 2\n")
        binary = os.environ.get("DLOCK_SERVER") or "redis-server"
        self._process = subprocess.Popen([binary, str(file), "--sentinel"], stdout=subprocess.DEVNULL)
        self._client: Any = redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0), socket_timeout=PATIENCE)
        soon("the Sentinel names the primary", self._names_it)

    def _names_it(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self._client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks"))
        return False

    def close(self) -> None:
        """Ends the Sentinel."""
        self._client.close()
        self._process.kill()
        self._process.wait()
        self._home.cleanup()


class Quorum:
    """Three servers that the harness handles like one."""

    def __init__(self, ports: Sequence[int] = (0, 0, 0)) -> None:
        self._members = [Server(port=port, durable=True) for port in ports]
        self.ports = [member.port for member in self._members]

    def info(self, name: str) -> dict[str, Any]:
        """Returns what the first server with the lock says, but with the token that most servers have."""
        infos = [info for member in self._members if (info := member.info(name))]
        if not infos:
            return {}
        tokens = Counter(info["token"] for info in infos)
        return {**infos[0], "token": tokens.most_common(1)[0][0]}

    def call(self, *words: Any) -> Any:
        """Sends a command to all servers, and returns the reply of the last one."""
        return [member.call(*words) for member in self._members][-1]

    def freeze(self) -> None:
        """Stops the processes of all servers."""
        for member in self._members:
            member.freeze()

    def thaw(self) -> None:
        """Lets all servers go on."""
        for member in self._members:
            member.thaw()

    def close(self) -> None:
        """Ends all servers."""
        for member in self._members:
            member.close()
