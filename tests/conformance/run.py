"""Plays the conformance scenarios against an adapter: see README.md.

    python run.py [--only NAME] [--title TITLE] -- ADAPTER…

Needs redis-py. The server and the module are DLOCK_SERVER and DLOCK_MODULE.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

HERE = Path(__file__).parent
MODULE = HERE.parents[1] / "target/release/libdlock.so"
# The longest a result or a condition may take unless a step says otherwise, in seconds.
PATIENCE = 30.0
OPTIONS: dict[str, Any] = {
    "lease": 30000, "wait": None, "mode": "exclusive", "session": False, "keep": False,
    "replicas": 0, "replicas_timeout": 1000,
}


class Broken(Exception):
    """A scenario was not played as it is written."""


class Skipped(Exception):
    """The adapter cannot do what the scenario needs."""


def soon(what: str, condition: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > ends:
            raise Broken(f"not in time: {what}")
        time.sleep(0.003)


class Server:
    """A server on a free port."""

    def __init__(self, *, module: bool = True) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._home = tempfile.TemporaryDirectory()
        binary = os.environ.get("DLOCK_SERVER") or shutil.which("redis-server") or "valkey-server"
        words = [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._home.name, "--save", ""]
        words += ["--repl-diskless-sync-delay", "0"]
        if module:
            words += ["--loadmodule", os.environ.get("DLOCK_MODULE") or str(MODULE)]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        self.client: Any = redis.Redis(port=self.port, protocol=2, retry=Retry(NoBackoff(), 0))
        soon("the server answers", self._answers)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def call(self, *words: Any) -> Any:
        """Returns the reply to a command."""
        return self.client.execute_command(*words)

    def replicate(self, primary: Server) -> None:
        """Becomes a replica that is in step."""
        self.call("REPLICAOF", "127.0.0.1", primary.port)
        soon("the replica is in step", lambda: self.client.info("replication")["master_link_status"] == "up")
        # The first acknowledgement takes longer than those that follow.
        with primary.client.pipeline(transaction=False) as pipeline:
            soon("it acknowledges", lambda: pipeline.set("x", 1).delete("x").wait(1, 1000).execute()[-1] == 1)

    def info(self, name: str) -> dict[str, Any]:
        """Returns what `DLOCK.INFO … FULL` says; empty if there is no such lock."""
        return _plain(self.call("DLOCK.INFO", name, "FULL")) or {}

    def close(self) -> None:
        """Ends it."""
        self.client.close()
        self._process.kill()
        self._process.wait()
        self._home.cleanup()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [_plain(item) for item in value]
        named = items and len(items) % 2 == 0 and items[0] in ("mode", "owner")
        return dict(zip(items[::2], items[1::2])) if named else items
    return value.decode() if isinstance(value, bytes) else value


class Proxy:
    """The way to the server, on which replies get lost."""

    def __init__(self, port: int) -> None:
        # Where it leads. None: nowhere, and it accepts no connection.
        self.to: int | None = port
        self._cut: bytes | None = None
        self._hanging = False
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._missed: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, word: str) -> None:
        """The next reply to a command with this word is lost."""
        self._cut = word.encode()

    def hang(self) -> None:
        """Passes no replies."""
        self._hanging = True

    def resume(self) -> None:
        """Passes replies again. Connections that missed one are closed."""
        self._hanging = False
        for client in list(self._missed):
            _close(client, self._pairs.get(client))
        self._missed.clear()

    def lead(self, to: int | None) -> None:
        """Leads elsewhere. Connections to the place before are closed."""
        self.to = to
        for pair in list(self._pairs.items()):
            _close(*pair)

    def close(self) -> None:
        """Ends it and its connections."""
        self.lead(None)
        _close(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                if self.to is None:
                    _close(client)
                    continue
                server = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                if self._listener.fileno() < 0:
                    return
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
                server.sendall(data)
        except OSError:
            pass
        try:
            server.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _replies(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        try:
            while (data := server.recv(65536)) and not doomed.is_set():
                if self._hanging:
                    self._missed.add(client)
                else:
                    client.sendall(data)
        except OSError:
            pass
        self._pairs.pop(client, None)
        _close(client, server)


def _close(*ends: socket.socket | None) -> None:
    for end in ends:
        if end is not None:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


class Adapter:
    """The program that does what the scenarios say."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.features: list[str] = json.loads(self._process.stdout.readline())["features"]
        self._ids = itertools.count(1)
        self._waiting: dict[int, queue.Queue[dict[str, Any]]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, **request: Any) -> queue.Queue[dict[str, Any]]:
        """Sends a request, and returns where its answer will be."""
        number = next(self._ids)
        self._waiting[number] = queue.Queue()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, **request}) + "\n")
        self._process.stdin.flush()
        return self._waiting[number]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._waiting[answer["id"]].put(answer)
        for each in self._waiting.values():
            each.put({"result": "the adapter has ended"})

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()


class Play:
    """One scenario, with servers of its own."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._kind = "one"
        self._servers: list[Server] = []
        self._proxy: Proxy | None = None
        self._pending: dict[str, queue.Queue[dict[str, Any]]] = {}
        self._tokens: dict[str, int] = {}

    def setting(self, words: list[str]) -> None:
        """Takes a setting, before the first step."""
        if words[0] == "servers":
            self._kind = words[1]
        elif words[0] == "needs" and words[1] not in self._adapter.features:
            raise Skipped(words[1])

    def step(self, line: str) -> None:
        """Plays a step."""
        if self._proxy is None:
            self._open()
        words = line.split()
        harness = getattr(self, f"_{words[0]}", None)
        if len(words[0]) > 1 and harness is not None:
            harness(*words[1:])
        elif words[1] == "=>":
            self._expect(words[0], " ".join(words[2:]), time.monotonic())
        elif len(words[0]) == 1:
            self._client(words[0], line.split(maxsplit=1)[1])
        else:
            raise Broken("there is no such step")

    def close(self) -> None:
        """Ends the servers."""
        if self._proxy is not None:
            self._proxy.close()
        for server in self._servers:
            server.close()

    def _open(self) -> None:
        self._servers = [Server(module=self._kind != "plain")]
        if self._kind == "replica":
            self._servers.append(Server())
            self._servers[1].replicate(self._servers[0])
        self._proxy = Proxy(self._servers[0].port)

    @property
    def _server(self) -> Server:
        return self._servers[0]

    @property
    def _way(self) -> Proxy:
        assert self._proxy is not None
        return self._proxy

    # Steps of a client

    def _client(self, lock: str, text: str) -> None:
        began = time.monotonic()
        text, _, expected = text.partition(" -> ")
        background = text.endswith(" &")
        do, *words = text.removesuffix(" &").split()
        request: dict[str, Any] = {"do": do, "lock": lock, "port": self._way.port}
        if do == "acquire":
            request |= {**OPTIONS, "name": words.pop(0)}
        if do == "extend":
            request["lease"] = OPTIONS["lease"]
        for word in words:
            name, given, value = word.partition("=")
            if do not in ("acquire", "extend") or name not in OPTIONS:
                raise Broken(f"there is no such option: {word}")
            request[name] = (value if name == "mode" else int(value)) if given else True
        answer = self._adapter.ask(**request)
        if background:
            self._pending[lock] = answer
        elif expected:
            self._judge(lock, answer, expected, began)
        else:
            raise Broken("a step of a client ends with -> RESULT or with &")

    def _expect(self, lock: str, expected: str, began: float) -> None:
        self._judge(lock, self._pending.pop(lock), expected, began)

    def _judge(self, lock: str, answer: queue.Queue[dict[str, Any]], expected: str, began: float) -> None:
        limits = dict(re.findall(r"\b(within|after)=(\d+)", expected))
        wanted = re.sub(r"\b(within|after)=\d+", "", expected).strip().split(" or ")
        within = int(limits.get("within", PATIENCE * 1000)) / 1000
        try:
            got = answer.get(timeout=max(0.0, began + within - time.monotonic()))
        except queue.Empty:
            raise Broken(f"no result within {within:g} s") from None
        if got["result"] not in wanted:
            raise Broken(f"{got['result']} {got.get('message', '')}")
        if time.monotonic() - began < int(limits.get("after", 0)) / 1000:
            raise Broken(f"earlier than after {limits['after']} ms")
        if got["result"] == "granted":
            self._tokens[lock] = got["token"]

    # Steps of the harness

    def _waiters(self, name: str, number: str) -> None:
        soon(f"{number} waiters", lambda: int(self._server.info(name).get("waiters", 0)) == int(number))

    def _free(self, name: str) -> None:
        soon(f"{name} is free", lambda: not self._server.info(name))

    def _held(self, name: str, by: str, lock: str) -> None:
        token = self._server.info(name).get("token")
        if by != "by" or token != self._tokens[lock]:
            raise Broken(f"the token on the server is {token}, that of {lock} is {self._tokens[lock]}")

    def _newer(self, lock: str, than: str, other: str) -> None:
        if than != "than" or self._tokens[lock] <= self._tokens[other]:
            raise Broken(f"{self._tokens[lock]} after {self._tokens[other]}")

    def _delete(self, name: str) -> None:
        self._server.call("DEL", name)

    def _kill(self, name: str) -> None:
        self._server.call("CLIENT", "KILL", "ID", self._server.info(name)["holds"][0]["session"])

    def _cut(self, word: str) -> None:
        self._way.cut(word)

    def _hang(self) -> None:
        self._way.hang()

    def _resume(self) -> None:
        self._way.resume()

    def _stop(self) -> None:
        self._way.lead(None)
        self._servers.pop(0).close()

    def _start(self) -> None:
        self._servers.insert(0, Server())
        self._way.lead(self._server.port)

    def _failover(self) -> None:
        primary, replica = self._servers
        soon("the replica has all", lambda: replica.client.info("replication")["slave_repl_offset"]
             == primary.client.info("replication")["master_repl_offset"])
        replica.call("REPLICAOF", "NO", "ONE")
        self._servers.reverse()
        self._servers.pop().close()
        self._way.lead(replica.port)

    def _detach(self) -> None:
        self._servers[1].call("REPLICAOF", "NO", "ONE")

    def _sleep(self, ms: str) -> None:
        time.sleep(float(ms) / 1000)


def unrolled(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yields the steps with their numbers. `for` repeats those behind it."""
    for number, line in enumerate(lines, 1):
        words = line.split()
        if words and words[0] == "for":
            _, name, _, first, _, last, _, step = words
            rest = [(number + offset, each) for offset, each in enumerate(lines[number:], 1)]
            for turn in range(int((float(last) - float(first)) / float(step)) + 1):
                value = float(first) + turn * float(step)
                yield from ((at, each.replace(f"${name}", f"{value:g}")) for at, each in rest)
            return
        yield number, line


def play(file: Path, adapter: Adapter) -> None:
    """Plays a scenario; raises `Broken` or `Skipped`."""
    scenario = Play(adapter)
    try:
        for number, line in unrolled(file.read_text().splitlines()):
            text = line.split("#")[0].strip()
            if not text:
                continue
            try:
                if text.split()[0] in ("servers", "needs"):
                    scenario.setting(text.split())
                else:
                    scenario.step(text)
            except Broken as error:
                raise Broken(f"line {number}: {text}: {error}") from None
    finally:
        scenario.close()


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", help="one scenario")
    parser.add_argument("--title", default="", help="what the lines of the output begin with")
    parser.add_argument("adapter", nargs="+")
    arguments = parser.parse_args()
    failed = 0
    for file in sorted((HERE / "scenarios").glob(f"{arguments.only or '*'}.txt")):
        adapter = Adapter(arguments.adapter)
        began = time.monotonic()
        try:
            play(file, adapter)
            print(f"{arguments.title} {file.stem}: passed in {time.monotonic() - began:.1f} s", flush=True)
        except Skipped as lacking:
            print(f"skipped: {arguments.title} {file.stem}: no {lacking}", flush=True)
        except (Broken, redis.RedisError) as error:
            failed += 1
            print(f"{arguments.title} {file.stem}: FAILED: {error}", flush=True)
        finally:
            adapter.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
