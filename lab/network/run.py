#!/usr/bin/env python3
"""Measures a pair, a hand-off and `dlock run --wait` over a network of 0.5 ms, beside SET NX.

    run.py [--round-trip 0.5] [--times 200]

DLOCK_SERVER, DLOCK_MODULE and DLOCK_PROGRAM name the server, the module and the command. Needs root and `ip`. Prints a
table: the median time of each in milliseconds, by the loopback device and over the network, and the latter in round
trips.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from link import SERVER, Link

PORT = 6379
LEASE = "30000"
RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
# As Redisson does: a waiter hears of the release, and tries then.
TELL = "redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', KEYS[1] .. ':free', 1)"
RELEASE_AND_TELL = RELEASE.replace("return redis.call('DEL', KEYS[1])", TELL)


class Connection:
    """A connection that waits for each reply."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb")

    def run(self, *words: str) -> object:
        """Returns the reply to a command."""
        self.send(*words)
        return self.read()

    def send(self, *words: str) -> None:
        """Sends a command."""
        packed = [f"*{len(words)}\r\n", *(f"${len(word.encode())}\r\n{word}\r\n" for word in words)]
        self._socket.sendall("".join(packed).encode())

    def read(self) -> object:
        """Returns the next reply."""
        line = self._replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise SystemExit(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self._replies.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest.decode()


class Bench:
    """Clients of one server, which measure."""

    def __init__(self, host: str, port: int, times: int) -> None:
        self._where = host, port
        self._times = times
        self._first, self._second = self._connect(), self._connect()
        self._scripts = {text: str(self._first.run("SCRIPT", "LOAD", text)) for text in (RELEASE, RELEASE_AND_TELL)}

    def all(self) -> dict[str, float]:
        """Returns the median of each, in milliseconds."""
        few = max(5, self._times // 10)
        return {
            "`PING`": self._median(lambda: self._timed(lambda: self._first.run("PING"))),
            "pair: `ACQUIRE`, `RELEASE`": self._median(lambda: self._timed(self._dlock_pair)),
            "pair: `SET NX`, script": self._median(lambda: self._timed(self._set_pair)),
            "hand-off: `ACQUIRE BLOCK`": self._median(self._dlock_hand_off),
            "hand-off: pub/sub, then a try (as Redisson)": self._median(self._told_hand_off),
            "hand-off: `SET NX` every 10 ms": self._median(lambda: self._polled_hand_off(0.01), few),
            "hand-off: `SET NX` every 100 ms": self._median(lambda: self._polled_hand_off(0.1), few),
            "`dlock run --wait 10s`: release to start of the command": self._median(self._run_waiting, few),
        }

    def _connect(self) -> Connection:
        return Connection(*self._where)

    def _median(self, one: Callable[[], float], times: int = 0) -> float:
        return statistics.median(one() for _ in range(times or self._times)) * 1000

    @staticmethod
    def _timed(act: Callable[[], object]) -> float:
        began = time.monotonic()
        act()
        return time.monotonic() - began

    def _dlock_pair(self) -> None:
        owner = uuid.uuid4().hex
        self._first.run("DLOCK.ACQUIRE", "pair", owner, "PX", LEASE)
        self._first.run("DLOCK.RELEASE", "pair", owner)

    def _set_pair(self) -> None:
        owner = uuid.uuid4().hex
        self._first.run("SET", "pair", owner, "NX", "PX", LEASE)
        self._first.run("EVALSHA", self._scripts[RELEASE], "1", "pair", owner)

    def _dlock_hand_off(self) -> float:
        """From the holder's release to the grant of the one who waits."""
        self._first.run("DLOCK.ACQUIRE", "lock", "first", "PX", LEASE)
        self._second.send("DLOCK.ACQUIRE", "lock", "second", "PX", LEASE, "BLOCK", "0")
        self._until_one_waits("lock")
        began = time.monotonic()
        self._first.send("DLOCK.RELEASE", "lock", "first")
        self._second.read()
        took = time.monotonic() - began
        self._first.read()
        self._second.run("DLOCK.RELEASE", "lock", "second")
        return took

    def _told_hand_off(self) -> float:
        self._first.run("SET", "told", "first", "NX", "PX", LEASE)
        ear = self._connect()
        ear.run("SUBSCRIBE", "told:free")
        began = time.monotonic()
        self._first.send("EVALSHA", self._scripts[RELEASE_AND_TELL], "1", "told", "first")
        ear.read()
        assert self._second.run("SET", "told", "second", "NX", "PX", LEASE)
        took = time.monotonic() - began
        self._first.read()
        self._second.run("EVALSHA", self._scripts[RELEASE], "1", "told", "second")
        return took

    def _polled_hand_off(self, pause: float) -> float:
        self._first.run("SET", "polled", "first", "NX", "PX", LEASE)
        got = threading.Event()

        def poll() -> None:
            while not self._second.run("SET", "polled", "second", "NX", "PX", LEASE):
                time.sleep(pause)
            got.set()

        waiting = threading.Thread(target=poll)
        waiting.start()
        # The release comes at any time between two tries.
        time.sleep(pause * (1 + int(uuid.uuid4()) % 100 / 100))
        began = time.monotonic()
        self._first.send("EVALSHA", self._scripts[RELEASE], "1", "polled", "first")
        got.wait()
        took = time.monotonic() - began
        waiting.join()
        self._first.read()
        self._second.run("EVALSHA", self._scripts[RELEASE], "1", "polled", "second")
        return took

    def _run_waiting(self) -> float:
        self._first.run("DLOCK.ACQUIRE", "waited", "first", "PX", LEASE)
        words = self._command("--wait", "10s", "waited", "--", "date", "+%s.%N")
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
            self._until_one_waits("waited")
            began = time.time()
            self._first.run("DLOCK.RELEASE", "waited", "first")
            said, _ = program.communicate()
        return float(said) - began

    def _command(self, *words: str) -> list[str]:
        return [os.environ["DLOCK_PROGRAM"], "run", "-s", "redis://{}:{}".format(*self._where), "--quiet", *words]

    def _until_one_waits(self, name: str) -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            info = self._first.run("DLOCK.INFO", name)
            if isinstance(info, list) and dict(zip(info[::2], info[1::2])).get("waiters"):
                return
        raise SystemExit("nobody waits")


@contextmanager
def server(host: str, port: int, before: list[str]) -> Iterator[None]:
    """Runs a server that listens there."""
    with tempfile.TemporaryDirectory() as home:
        words = [os.environ["DLOCK_SERVER"], "--bind", host, "--port", str(port), "--save", "", "--dir", home]
        words += ["--protected-mode", "no", "--loadmodule", os.environ["DLOCK_MODULE"]]
        process = subprocess.Popen([*before, *words], stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def measured(host: str, port: int, before: list[str], times: int) -> dict[str, float]:
    """Measures in a program that is started by `before`, which runs it inside a network."""
    words = [*before, sys.executable, __file__, "--inside", f"{host}:{port}", "--times", str(times)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def inside(where: str, times: int) -> None:
    """Measures in this process, and prints the figures."""
    host, port = where.split(":")
    end = time.monotonic() + 10
    while True:
        try:
            bench = Bench(host, int(port), times)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
    print(json.dumps(bench.all()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round-trip", type=float, default=0.5)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(options.inside, options.times)
    with Link(0.0) as link, server("127.0.0.1", PORT, link.inside("server")):
        near = measured("127.0.0.1", PORT, link.inside("server"), options.times)
    with Link(options.round_trip / 2000) as link, server(SERVER, PORT, link.inside("server")):
        far = measured(SERVER, PORT, link.inside("client"), options.times)
    print("| | loopback, ms | network, ms | round trips |")
    print("|---|--:|--:|--:|")
    for label, time_far in far.items():
        print(f"| {label} | {near[label]:.2f} | {time_far:.2f} | {time_far / far['`PING`']:.1f} |")


if __name__ == "__main__":
    main()
