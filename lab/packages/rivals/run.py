#!/usr/bin/env python3
"""Measures locks on Redis as their users install them, beside dlock, in one run: `make rivals`.

    run.py [--waiters 16] [--passes 3] [--rounds 8] [--only redisson,dlock-java] [--keep]

DLOCK_SERVER and DLOCK_MODULE name the server; only dlock's has the module. Each system has a worker in its language,
in which each waiter has a client of its own. The waiters join one after the other while the first client holds the lock;
each holds it for 5 ms then. A worker is called with

    line PORT KIND WAITERS    prints `ready`, and for each number that it reads a line with that many rounds
    hold PORT KIND            prints `asks` and `has it`, and holds on

The systems take turns in each pass. `--keep` writes figures.json and the table of docs/comparison.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

HOME = Path(__file__).resolve().parent
ROOT = HOME.parents[2]
sys.dont_write_bytecode = True
sys.path += [str(ROOT / "tests/suites"), str(HOME)]
from programs import PROGRAMS, Missing, versions  # noqa: E402 - the path comes first
from servers import Servers  # noqa: E402
from table import FIGURES, PAGE, Seen, put, table  # noqa: E402


class System(NamedTuple):
    """A lock of a package."""

    kind: str
    language: str
    # The kind whose holder is bound to its connection.
    session: str = ""


SYSTEMS = [
    System("redisson", "java"),
    System("redisson-fair", "java"),
    System("dlock-java", "java", "dlock-java-session"),
    System("redsync", "go"),
    System("redislock", "go"),
    System("dlock-go", "go"),
    System("redlock", "node"),
    System("redis-semaphore", "node"),
    System("dlock-node", "node", "dlock-node-session"),
    System("redis-py", "python"),
    System("dlock-python", "python", "dlock-python-session"),
]


class Server:
    """A connection that asks for facts."""

    def __init__(self, port: int) -> None:
        self._stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")

    def cpu(self) -> float:
        """Returns the seconds of the processor that the server has used."""
        self._stream.write(b"INFO CPU\r\n")
        self._stream.flush()
        text = self._stream.read(int(self._stream.readline()[1:]) + 2).decode()
        return sum(float(each) for each in re.findall(r"used_cpu_(?:sys|user):([\d.]+)", text))

    def close(self) -> None:
        self._stream.close()


@contextmanager
def counting(port: int) -> Iterator[list[int]]:
    """Counts the commands that clients send, without those that scripts run, until the block ends."""
    with socket.create_connection(("127.0.0.1", port)) as monitor:
        lines = monitor.makefile("rb")
        monitor.sendall(b"MONITOR\r\n")
        lines.readline()
        count = [0]

        def read() -> None:
            for line in lines:
                if b'"rivals: end"' in line:
                    return
                count[0] += not re.match(rb"\+[\d.]+ \[\d+ lua\]", line)

        reader = threading.Thread(target=read)
        reader.start()
        yield count
        with socket.create_connection(("127.0.0.1", port)) as last:
            last.sendall(b'ECHO "rivals: end"\r\n')
            reader.join()


class Worker:
    """A process that uses a lock. Dies with the block."""

    def __init__(self, program: list[str], *words: object) -> None:
        line = [*program, *map(str, words)]
        self._process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def hear(self) -> str:
        """Returns the next line."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")
        return line.strip()

    def play(self, rounds: int) -> list[dict[str, Any]]:
        """Returns what happened in these rounds."""
        assert self._process.stdin
        self._process.stdin.write(f"{rounds}\n")
        self._process.stdin.flush()
        return json.loads(self.hear())  # type: ignore[no-any-return]

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def line(system: System, program: list[str], options: argparse.Namespace, seen: Seen) -> None:
    """Plays a pass of one system on a server of its own."""
    with Servers(1, module=system.kind.startswith("dlock")) as servers:
        port, server = servers.ports[0], Server(servers.ports[0])
        with Worker(program, "line", port, system.kind, options.waiters) as worker:
            worker.hear()
            worker.play(2)  # until connections are open, and code is compiled
            with counting(port) as count:
                worker.play(2)
            before = server.cpu()
            rounds = worker.play(options.rounds)
            cpu = server.cpu() - before
        server.close()
    seen.add_pass(rounds, count[0] / 2 / options.waiters, cpu * 1e6 / options.rounds / options.waiters)


def after_kill(kind: str, program: list[str], chance: Random) -> float:
    """Returns the seconds from `kill -9` of the holder until the next one has the lock."""
    with Servers(1, module=kind.startswith("dlock")) as servers, Worker(program, "hold", servers.ports[0], kind) as holder:
        holder.hear()
        holder.hear()
        with Worker(program, "hold", servers.ports[0], kind) as waiter:
            waiter.hear()
            time.sleep(1 + chance.uniform(0, 3))
            holder.kill()
            began = time.monotonic()
            waiter.hear()
            return time.monotonic() - began


def kills(programs: dict[str, list[str]], seen: dict[str, Seen]) -> None:
    """Kills a holder of each system. The systems only wait for leases, so some do that at the same time."""
    chance = Random()
    with ThreadPoolExecutor(3) as pool:
        jobs = []
        for system in SYSTEMS:
            if system.kind not in seen:
                continue
            program = programs[system.language]
            jobs.append((seen[system.kind].killed, pool.submit(after_kill, system.kind, program, chance)))
            if system.session:
                jobs.append((seen[system.kind].session, pool.submit(after_kill, system.session, program, chance)))
        for figures, job in jobs:
            figures.append(round(job.result(), 4))


def build(languages: set[str]) -> dict[str, list[str]]:
    """Returns the program of each language that can be built."""
    programs = {}
    for language in sorted(languages):
        try:
            programs[language] = PROGRAMS[language]()
        except Missing as missing:
            print(f"{language} is left out: {missing}", file=sys.stderr)
    return programs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiters", type=int, default=16)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default=",".join(system.kind for system in SYSTEMS))
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    wanted = [system for system in SYSTEMS if system.kind in options.only.split(",")]
    programs = build({system.language for system in wanted})
    seen = {system.kind: Seen() for system in wanted if system.language in programs}
    loads = []
    for _ in range(options.passes):
        for system in wanted:
            if system.kind in seen:
                line(system, programs[system.language], options, seen[system.kind])
                loads.append(os.getloadavg()[0])
        kills(programs, seen)
        print(table({kind: each.figures() for kind, each in seen.items()}), flush=True)
    figures = {kind: each.figures() for kind, each in seen.items()}
    facts = {
        "date": datetime.date.today().isoformat(), "processors": os.cpu_count(), "machine": platform.machine(),
        "load": round(statistics.median(loads), 1), "waiters": options.waiters,
        "rounds": options.passes * options.rounds, "versions": versions(programs),
    }
    print(json.dumps(facts))
    if options.keep:
        if len(seen) < len(SYSTEMS):
            print("not kept: some systems are missing", file=sys.stderr)
            return 1
        FIGURES.write_text(json.dumps({"facts": facts, "systems": figures}, indent=2) + "\n")
        PAGE.write_text(put(table(figures)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
