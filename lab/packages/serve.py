#!/usr/bin/env python3
"""Measures `dlock serve` beside a server with the module: time, processor and memory of each, in turns.

    serve.py [--rounds 7]

DLOCK_SERVER and DLOCK_MODULE name the server, DLOCK_PROGRAM the command. Elapsed times need a quiet machine;
the times of the processor are the server's own, and depend less on one.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "tests/suites"))
from servers import answers, free_port  # noqa: E402 - the path comes first

PAIRS, CLIENTS, HELD, WAITERS = 2000, 64, 100_000, 10_000
SERVE, MODULE = "dlock serve", "module"


class Server:
    """A server process, and what it has used."""

    def __init__(self, kind: str, home: str) -> None:
        self.port = free_port()
        words = [os.environ["DLOCK_PROGRAM"], "serve", "--max-clients", "11000", "--set", "max-waiters=20000"]
        if kind == MODULE:
            words = [os.environ["DLOCK_SERVER"], "--bind", "127.0.0.1", "--save", "", "--dir", home, "--maxclients", "11000",
                     "--loadmodule", os.environ["DLOCK_MODULE"], "max-waiters", "20000"]
        began = time.monotonic()
        self.process = subprocess.Popen([*words, "--port", str(self.port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not answers(self.port):
            if self.process.poll() is not None or time.monotonic() > began + 30:
                raise SystemExit(f"{kind} does not start")
            time.sleep(0.0005)
        self.start_ms = (time.monotonic() - began) * 1000

    def cpu_us(self) -> float:
        """Returns the time of the processor that it has used."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1000

    def resident(self) -> int:
        """Returns its memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def connect(self) -> socket.socket:
        """Returns a connection."""
        connection = socket.create_connection(("127.0.0.1", self.port), 60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


@contextmanager
def running(kind: str) -> Iterator[Server]:
    """Runs a server."""
    with tempfile.TemporaryDirectory() as home:
        server = Server(kind, home)
        try:
            yield server
        finally:
            server.process.kill()
            server.process.wait()


def token(connection: socket.socket) -> None:
    """Reads the reply that is a number."""
    reply = connection.recv(64)
    if reply[:1] != b":" or reply[-1:] != b"\n":
        raise SystemExit(f"the server says {reply!r}")


def pairs(server: Server, count: int) -> dict[str, float]:
    """Has this number of clients acquire and release a lock each, all at once, again and again."""
    connections = [server.connect() for _ in range(count)]
    words = [(f"DLOCK.ACQUIRE k{at} a PX 30000\r\n".encode(), f"DLOCK.RELEASE k{at} a\r\n".encode()) for at in range(count)]
    times, rounds = [], PAIRS // count
    cpu = server.cpu_us()
    for _ in range(rounds):
        began = time.perf_counter()
        for which in (0, 1):
            for connection, own in zip(connections, words):
                connection.sendall(own[which])
            for connection in connections:
                token(connection)
        times.append((time.perf_counter() - began) / count * 1e6)
    return {f"pair, {count} at once: CPU, µs": (server.cpu_us() - cpu) / rounds / count,
            f"pair, {count} at once: time, µs": statistics.median(times)}


def hand_off(server: Server) -> dict[str, float]:
    """Has 64 clients wait for one lock, which goes round."""
    connections = [server.connect() for _ in range(CLIENTS + 1)]
    ask = [f"DLOCK.ACQUIRE job a{at} PX 30000 BLOCK 0\r\n".encode() for at in range(len(connections))]
    for connection, own in zip(connections, ask):
        connection.sendall(own)
        time.sleep(0.002)
    token(connections[0])
    times, cpu = [], server.cpu_us()
    for turn in range(PAIRS):
        at, then = turn % len(connections), (turn + 1) % len(connections)
        began = time.perf_counter()
        connections[at].sendall(f"DLOCK.RELEASE job a{at}\r\n".encode())
        token(connections[then])
        times.append((time.perf_counter() - began) * 1e6)
        token(connections[at])
        connections[at].sendall(ask[at])
    return {"hand-off, 64 wait: CPU, µs": (server.cpu_us() - cpu) / PAIRS,
            "hand-off, 64 wait: time, µs": statistics.median(times)}


def memory(kind: str) -> dict[str, float]:
    """Returns the memory of held locks and of requests that wait, each with a connection, and the CPU of waiting."""
    with running(kind) as server:
        client, before = server.connect(), server.resident()
        for first in range(0, HELD, 1000):
            names = range(first, first + 1000)
            client.sendall(b"".join(b"DLOCK.ACQUIRE lock:%d owner:%d PX 3000000\r\n" % (at, at) for at in names))
            left = len(names)
            while left:
                left -= client.recv(1 << 16).count(b"\n")
        held = (server.resident() - before) / HELD
    with running(kind) as server:
        client, before = server.connect(), server.resident()
        client.sendall(b"DLOCK.ACQUIRE job a PX 3000000\r\n")
        token(client)
        waiters = [server.connect() for _ in range(WAITERS)]
        for at, waiter in enumerate(waiters):
            waiter.sendall(b"DLOCK.ACQUIRE job w%d PX 30000 BLOCK 0\r\n" % at)
        while True:
            client.sendall(b"INFO dlock\r\n")
            if b"dlock_waiters:%d\r\n" % WAITERS in client.recv(1 << 16):
                break
            time.sleep(0.1)
        waiting, cpu = (server.resident() - before) / WAITERS, server.cpu_us()
        time.sleep(5)
        idle = (server.cpu_us() - cpu) / 5e6 * 100
    return {f"memory of one of {HELD} held locks, bytes": held,
            f"memory of one of {WAITERS} waiters, bytes": waiting,
            f"CPU while {WAITERS} wait, % of a core": idle}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    seen: dict[str, dict[str, list[float]]] = {SERVE: {}, MODULE: {}}
    for _ in range(options.rounds):
        for kind, figures in seen.items():
            with running(kind) as server:
                row = {"start, ms": server.start_ms}
                for part in (pairs(server, 1), pairs(server, CLIENTS), hand_off(server)):
                    row |= part
            for what, figure in row.items():
                figures.setdefault(what, []).append(figure)
    for kind, figures in seen.items():
        figures |= {what: [figure] for what, figure in memory(kind).items()}
    load = Path("/proc/loadavg").read_text().split()[0]
    print(f"medians of {options.rounds} rounds; load {load}\n\n| | {SERVE} | {MODULE} |\n|---|--:|--:|")
    for what in seen[SERVE]:
        print(f"| {what} | " + " | ".join(f"{statistics.median(seen[kind][what]):,.1f}" for kind in seen) + " |")


if __name__ == "__main__":
    main()
