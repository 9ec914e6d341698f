"""The servers of the conformance suite, and the proxy between them and the package under test."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# All tests in Python take their ports from one function, so that no two take the same.
sys.path.append(str(Path(__file__).parents[2] / "clients/python/tests"))
from machine import free_port, waited_for_a_core  # noqa: E402, F401 - the path comes first; run.py needs the second

MODULE = Path(__file__).parents[2] / "target/release/libdlock.so"
PROGRAM = Path(__file__).parents[2] / "target/release/dlock"
# The longest a result or a condition may take unless a step says otherwise, in seconds.
PATIENCE = 30.0


class Broken(Exception):
    """A scenario was not played as it is written."""


def soon(what: str, condition: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > ends:
            raise Broken(f"not in time: {what}")
        time.sleep(0.003)


class Server:
    """A server on a free port."""

    def __init__(
        self,
        *,
        module: bool = True,
        port: int = 0,
        durable: bool = False,
        cluster: bool = False,
        serve: bool = False,
    ) -> None:
        """`port`: the port to use; 0: a free one. `durable`: locks are kept on disk, so that a quorum counts the server
        at once. `cluster`: the server is the only node of a cluster. `serve`: `dlock serve`, not a server with the
        module.
        """
        self._home = tempfile.TemporaryDirectory()
        binary = os.environ.get("DLOCK_SERVER") or shutil.which("redis-server") or "valkey-server"
        words = [binary, "--bind", "127.0.0.1", "--dir", self._home.name, "--save", ""]
        words += ["--repl-diskless-sync-delay", "0"]
        if module:
            words += ["--loadmodule", os.environ.get("DLOCK_MODULE") or str(MODULE)]
        if durable:
            words += ["--appendonly", "yes", "--appendfsync", "always"]
        if cluster:
            words += ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
        if serve:
            words = [os.environ.get("DLOCK_PROGRAM") or str(PROGRAM), "serve"]
        for _ in range(3):
            self.port = port or free_port()
            self._process = subprocess.Popen([*words, "--port", str(self.port)], stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL if serve else None)
            self.client: Any = redis.Redis(port=self.port, protocol=2, retry=Retry(NoBackoff(), 0),
                                           socket_timeout=PATIENCE)
            soon("the server answers, or ends", lambda: self._answers() or self._process.poll() is not None)
            # The port may have gone to another program first.
            if self._process.poll() is None:
                if cluster:
                    self._own_all_slots()
                return
            self.client.close()
        self.close()
        raise Broken("the server does not start")

    def _own_all_slots(self) -> None:
        self.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        soon("the cluster is up", lambda: "cluster_state:ok" in str(self.call("CLUSTER", "INFO")))

    def announce(self, port: int) -> None:
        """Tells clients another port of this node."""
        self.call("CONFIG", "SET", "cluster-announce-port", port)

    def _answers(self) -> bool:
        """Returns whether this server answers, and not another one at its port."""
        try:
            return bool(self.client.info("server")["process_id"] == self._process.pid)
        except redis.RedisError:
            return False

    def call(self, *words: Any) -> Any:
        """Returns the reply to a command."""
        return self.client.execute_command(*words)

    def replicate(self, primary: Server) -> None:
        """Makes this server a replica of `primary`, and waits until it is in step."""
        self.call("REPLICAOF", "127.0.0.1", primary.port)
        soon("the replica is in step", lambda: self.client.info("replication")["master_link_status"] == "up")
        # The first acknowledgement takes longer than those that follow.
        with primary.client.pipeline(transaction=False) as pipeline:
            soon("it acknowledges", lambda: pipeline.set("x", 1).delete("x").wait(1, 1000).execute()[-1] == 1)

    def info(self, name: str) -> dict[str, Any]:
        """Returns what `DLOCK.INFO … FULL` says; empty if there is no such lock."""
        return _plain(self.call("DLOCK.INFO", name, "FULL")) or {}

    def freeze(self) -> None:
        """Stops the process: connections stay open, and nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets the process go on."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kills the process, even if it is frozen."""
        self.client.close()
        self._process.kill()
        self._process.wait()
        self._home.cleanup()


def _plain(value: Any) -> Any:
    """Returns a reply with texts for bytes, and a dict for each flat list that is a map: its first field is known."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [_plain(item) for item in value]
        named = items and len(items) % 2 == 0 and items[0] in ("mode", "owner")
        return dict(zip(items[::2], items[1::2])) if named else items
    return value.decode() if isinstance(value, bytes) else value


class Proxy:
    """A proxy before a server, which can lose replies and lead to another server."""

    def __init__(self, port: int) -> None:
        # The port of the server. None: the proxy leads nowhere, and connections are refused.
        self.to: int | None = port
        # The word whose next command loses its reply.
        self._cut: bytes | None = None
        # A pattern, and an action that is due before the next command that matches.
        self._due: tuple[re.Pattern[bytes], Callable[[], None]] | None = None
        self._hanging = False
        self._pairs: dict[socket.socket, socket.socket] = {}
        # How many bytes the server has answered on a client's connection, even if they were not passed on.
        self._answered: dict[socket.socket, int] = {}
        # The clients that have missed a reply.
        self._missed: set[socket.socket] = set()
        self.port = free_port()
        # A socket that was bound to a port by its number keeps the port while it does not listen.
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listens = threading.Event()
        self._listens.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, word: str) -> None:
        """Ends the connection of the next command with this word in place of its reply."""
        self._cut = word.encode()

    def before(self, name: str, action: Callable[[], None]) -> None:
        """Calls `action` before the next command with this name is passed on, when the server has answered the commands
        ahead of it. Even if the action leads the proxy elsewhere, the command goes to the same server."""
        self._due = re.compile(rb"\*\d+\r\n\$\d+\r\n%s\r\n" % re.escape(name.encode()), re.IGNORECASE), action

    def hang(self) -> None:
        """Drops all replies until `resume`."""
        self._hanging = True

    def resume(self) -> None:
        """Passes replies again. Connections that missed one are closed."""
        self._hanging = False
        for client in list(self._missed):
            _close(client, self._pairs.get(client))
        self._missed.clear()

    def lead(self, to: int | None, *, keep: bool = False) -> None:
        """Leads new connections to the port `to`. Present connections are closed, unless `keep` is true."""
        listened, self.to = self._listens.is_set(), to
        if to is None and listened:
            self._listens.clear()
            self._listener.shutdown(socket.SHUT_RDWR)
        elif to is not None and not listened:
            self._listener.listen()
            self._listens.set()
        for pair in [] if keep else list(self._pairs.items()):
            _close(*pair)

    def close(self) -> None:
        """Ends the proxy and its connections."""
        self.lead(None)
        self._listener.close()
        # The thread that accepts wakes up, and ends because the listener is closed.
        self._listens.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                self._listens.wait()
                if self._listener.fileno() < 0:
                    return
                continue
            try:
                if self.to is None:
                    raise OSError("the proxy leads nowhere")
                server = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                _close(client)
                continue
            self._pairs[client] = server
            doomed = threading.Event()
            threading.Thread(target=self._commands, args=(client, server, doomed), daemon=True).start()
            threading.Thread(target=self._replies, args=(client, server, doomed), daemon=True).start()

    def _commands(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        try:
            while data := client.recv(65536):
                if self._cut is not None and self._cut in data:
                    self._cut = None
                    doomed.set()
                server.sendall(self._act(client, server, data))
        except OSError:
            pass
        try:
            server.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _act(self, client: socket.socket, server: socket.socket, data: bytes) -> bytes:
        """Does the action that is due before a command in `data`. Returns the bytes that are still to be passed on."""
        if self._due is None or (found := self._due[0].search(data)) is None:
            return data
        action, self._due = self._due[1], None
        if ahead := data[:found.start()]:
            answered = self._answered.get(client, 0)
            server.sendall(ahead)
            soon("the commands ahead are answered", lambda: self._answered.get(client, 0) > answered)
        action()
        return data[found.start():]

    def _replies(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        try:
            while (data := server.recv(65536)) and not doomed.is_set():
                if self._hanging:
                    self._missed.add(client)
                else:
                    client.sendall(data)
                self._answered[client] = self._answered.get(client, 0) + len(data)
        except OSError:
            pass
        self._pairs.pop(client, None)
        self._answered.pop(client, None)
        _close(client, server)


def _close(*ends: socket.socket | None) -> None:
    for end in ends:
        if end is not None:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
