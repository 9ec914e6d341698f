"""Plays the conformance scenarios against an adapter: see README.md.

    python run.py [--only NAME,…] [--title TITLE] [--through WHAT] [--by HOW] -- ADAPTER…

Needs redis-py. The server and the module are DLOCK_SERVER and DLOCK_MODULE.
"""

from __future__ import annotations

import argparse
import itertools
import json
import queue
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis

from agents import Agent, Quorum, Sentinel
from servers import PATIENCE, Broken, Proxy, Server, soon, waited_for_a_core

HERE = Path(__file__).parent
# How long a result is waited for after its limit, in seconds: the message then says how late it was.
GRACE = 10.0
# The threads and processes that a step passes through, each of which may be late.
HANDS = 3
# A machine is too busy if its processes were late by this many seconds: the time by which a wait may exceed its limit.
LATE = 0.25
# The results on such a machine, if the answer of the server or of its replicas comes after the limit of the wait.
TOO_LATE = {"refused": ("unreachable",), "too-few-replicas": ("unreachable", "refused")}
# How often a scenario is played on such a machine.
TRIES = 3
OPTIONS: dict[str, Any] = {
    "lease": 30000, "wait": None, "mode": "exclusive", "session": False, "named": False, "keep": False,
    "replicas": 0, "replicas_timeout": 1000, "outage": None, "slots": None,
}


# The steps, the settings and the options that are not played over a quorum, each with what a quorum lacks: the message
# is "no … over a quorum".
NOT_OVER_A_QUORUM = {
    "servers": "replicas, nor servers without the module",
    "cap": "caps",
    "slot": "semaphores",
    "kill": "sessions on its servers",
    "demote": "primary",
    "switch": "primary",
    "overwrite": "names shared with old programs",
    "sessions": "sessions on its servers",
    "refuse": "server of its own that refuses writes",
    "extend": "longer leases by renewal",
}
# The agent's error for a named session whose lease is too short. In Go, every session of a scenario is a named one.
SHORT_SESSION = "SESSIONID with a lease of less than twice the session's time"


class Skipped(Exception):
    """The adapter cannot do what the scenario needs."""


class NoAnswer(Exception):
    """The machine was so late that a refusal came after the limit of the wait, and did not count any more."""


class Stalls:
    """Sums up how late the machine lets processes run. A limit in milliseconds is for a machine that is not late."""

    def __init__(self) -> None:
        self._late = 0.0
        threading.Thread(target=self._measure, daemon=True).start()

    @property
    def total(self) -> float:
        """Returns the lateness until now, in seconds."""
        return HANDS * self._late + waited_for_a_core()

    def _measure(self) -> None:
        while True:
            began = time.monotonic()
            time.sleep(0.01)
            late = time.monotonic() - began - 0.01
            self._late += late if late > 0.002 else 0.0


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
            self._waiting[answer["id"]].put({**answer, "at": time.monotonic()})
        for each in self._waiting.values():
            each.put({"result": "the adapter has ended", "at": time.monotonic()})

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
    """A scenario, with servers of its own."""

    def __init__(self, adapter: Adapter, through: str | None, by: str | None) -> None:
        self._adapter = adapter
        # How the adapter finds the server. None: by its address.
        self._by = by
        # The servers behind the agent through which the scenario is played.
        self._through = through
        self._agents: list[Agent | Sentinel] = []
        self._kind = "one"
        self._servers: list[Any] = []
        self._proxy: Proxy | None = None
        # Commands in the background: where the answer will be, when it began, and how late the machine was until then.
        self._pending: dict[str, tuple[queue.Queue[dict[str, Any]], float, float]] = {}
        self._stalls = Stalls()
        self._tokens: dict[str, int] = {}
        self._slots: dict[str, int | None] = {}
        # The change of the server that a step has announced.
        self._happened = threading.Event()

    def setting(self, words: list[str]) -> None:
        """Takes a setting, before the first step."""
        if words[0] == "servers":
            self._kind = words[1]
        elif words[0] == "needs" and words[1] not in self._adapter.features:
            raise Skipped(words[1])
        if self._by == "cluster" and words == ["servers", "replica"]:
            raise Skipped("replicas in its cluster")
        if self._through == "serve" and words in (["servers", "replica"], ["servers", "plain"]):
            raise Skipped(f"{words[1]}: dlock serve is one server, and has the module's commands")
        if self._through == "quorum" and words in (["servers", "replica"], ["servers", "plain"], ["needs", "slots"]):
            raise Skipped(f"{NOT_OVER_A_QUORUM[words[0] if words[0] == 'servers' else 'slot']} over a quorum")

    def step(self, line: str) -> None:
        """Plays a step."""
        words = line.split()
        steps = words[:1] if len(words[0]) > 1 else words[1:2]
        if self._through == "quorum" and steps[0] in NOT_OVER_A_QUORUM:
            raise Skipped(f"{NOT_OVER_A_QUORUM[steps[0]]} over a quorum")
        if self._through == "serve" and steps[0] in ("refuse", "demote"):
            raise Skipped("writes that are refused: dlock serve takes all")
        if self._through == "serve" and steps[0] == "overwrite":
            raise Skipped("keys of other types: dlock serve has locks only")
        if self._by == "cluster" and steps[0] == "demote":
            raise Skipped("REPLICAOF in a cluster")
        if self._proxy is None:
            self._open()
        harness = getattr(self, f"_{words[0]}", None)
        if len(words[0]) > 1 and harness is not None:
            harness(*words[1:])
        elif words[1] == "=>":
            self._judge(words[0], *self._pending.pop(words[0]), " ".join(words[2:]), time.monotonic())
        elif len(words[0]) == 1:
            self._client(words[0], line.split(maxsplit=1)[1])
        else:
            raise Broken("there is no such step")

    def close(self) -> None:
        """Ends the servers."""
        if self._proxy is not None:
            self._proxy.close()
        for agent in self._agents:
            agent.close()
        for server in self._servers:
            server.close()

    def _open(self) -> None:
        if self._through == "quorum":
            quorum = Quorum()
            self._servers = [quorum]
            urls = [word for port in quorum.ports for word in ("-s", f"redis://127.0.0.1:{port}")]
            # A server of a busy machine answers late, and is not down.
            agent = Agent(*urls, "--longest-lease", "700s", "--persistent", "--server-timeout", "250ms")
            self._agents.append(agent)
            self._proxy = Proxy(agent.port)
            self._port = self._proxy.port
            return
        self._servers = [self._start_one()]
        if self._kind == "replica":
            self._servers.append(Server())
            self._servers[1].replicate(self._servers[0])
        self._proxy = Proxy(self._servers[0].port)
        self._port = self._proxy.port
        if self._by == "cluster":
            self._server.announce(self._port)
        if self._by == "sentinel":
            self._agents = [Sentinel(self._port)]
        elif self._through == "sentinel":
            sentinel = Sentinel(self._port)
            self._agents = [Agent("-s", f"redis-sentinel://127.0.0.1:{sentinel.port}/locks"), sentinel]
        elif self._through == "one":
            self._agents = [Agent("-s", f"redis://127.0.0.1:{self._port}")]
        if self._agents:
            self._port = self._agents[0].port

    def _start_one(self) -> Server:
        return Server(module=self._kind != "plain", cluster=self._by == "cluster", serve=self._through == "serve")

    @property
    def _server(self) -> Any:
        return self._servers[0]

    @property
    def _way(self) -> Proxy:
        assert self._proxy is not None
        return self._proxy

    # Steps of a client

    def _client(self, lock: str, text: str) -> None:
        began, late = time.monotonic(), self._stalls.total
        text, _, expected = text.partition(" -> ")
        background = text.endswith(" &")
        do, *words = text.removesuffix(" &").split()
        request: dict[str, Any] = {"do": do, "lock": lock, "port": self._port}
        if self._by is not None:
            request["by"] = self._by
        if do == "acquire":
            request |= {**OPTIONS, "name": words.pop(0)}
        if do == "extend":
            request["lease"] = OPTIONS["lease"]
        for word in words:
            name, given, value = word.partition("=")
            if do not in ("acquire", "extend") or name not in OPTIONS:
                raise Broken(f"there is no such option: {word}")
            if name == "outage" and name not in self._adapter.features:
                raise Skipped(name)
            request[name] = (value if name == "mode" else int(value)) if given else True
        answer = self._adapter.ask(**request)
        if background:
            self._pending[lock] = answer, began, late
        elif expected:
            self._judge(lock, answer, began, late, expected, began)
        else:
            raise Broken("a step of a client ends with -> RESULT or with &")

    def _judge(
        self,
        lock: str,
        answer: queue.Queue[dict[str, Any]],
        began: float,
        late: float,
        expected: str,
        now: float,
    ) -> None:
        """Compares a result with what is expected. `now`: when the step began that waits for the result. `took=` counts
        from the step that asked for it."""
        limits = dict(re.findall(r"\b(within|after|took)=([0-9-]+)", expected))
        wanted = re.sub(r"\b(within|after|took)=[0-9-]+", "", expected).strip().split(" or ")
        within = int(limits.get("within", PATIENCE * 1000)) / 1000
        try:
            got = answer.get(timeout=max(0.0, now + within + GRACE - time.monotonic()))
        except queue.Empty:
            raise Broken(f"no result within {within + GRACE:g} s") from None
        if got["result"] not in wanted or got["at"] - now > within or "took" in limits:
            time.sleep(0.05)  # The thread that measures may be late itself, and count the last stall only now.
        late = self._stalls.total - late
        if late > LATE and got["result"] not in wanted and any(got["result"] in TOO_LATE.get(each, ()) for each in wanted):
            raise NoAnswer(f"{got['result']} {got.get('message', '')}")
        if got["result"] not in wanted:
            if self._through == "quorum" and SHORT_SESSION in got.get("message", ""):
                raise Skipped(f"{SHORT_SESSION} over a quorum")
            raise Broken(f"{got['result']} {got.get('message', '')}")
        if got["at"] - now > within + late:
            raise Broken(f"after {got['at'] - now:.3f} s instead of {within:g} s")
        if "after" in limits and got["at"] - now < int(limits["after"]) / 1000:
            raise Broken(f"earlier than after {limits['after']} ms")
        if "took" in limits:
            shortest, longest = (int(limit) / 1000 for limit in limits["took"].split("-"))
            # The agent answers, even if its server does not, so a client counts from a little later.
            longest += 0.25 if self._through not in (None, "serve") else 0.0
            if not shortest <= got["at"] - began <= longest + late:
                raise Broken(f"took {got['at'] - began:.3f} s, not {shortest:g} s to {longest:g} s")
        if got["result"] == "granted":
            self._tokens[lock], self._slots[lock] = got["token"], got.get("slot")

    # Steps of the harness

    def _waiters(self, name: str, number: str) -> None:
        soon(f"{number} waiters", lambda: int(self._server.info(name).get("waiters", 0)) == int(number))

    def _free(self, name: str) -> None:
        soon(f"{name} is free", lambda: not self._server.info(name))

    def _held(self, name: str, by: str, lock: str) -> None:
        token = self._server.info(name).get("token")
        if by != "by" or token != self._tokens[lock]:
            raise Broken(f"the token on the server is {token}, that of {lock} is {self._tokens[lock]}")

    def _slot(self, lock: str, number: str) -> None:
        holds = self._server.info("pool").get("holds", [])
        there = [hold["slot"] for hold in holds if hold["token"] == self._tokens[lock]]
        if there != [int(number)] or self._slots[lock] != int(number):
            raise Broken(f"{lock} has the number {self._slots[lock]}, on the server {there}")

    def _newer(self, lock: str, than: str, other: str) -> None:
        if than != "than" or self._tokens[lock] <= self._tokens[other]:
            raise Broken(f"{self._tokens[lock]} after {self._tokens[other]}")

    def _delete(self, name: str) -> None:
        self._server.call("DEL", name)

    def _overwrite(self, name: str) -> None:
        self._server.call("SET", name, "x")

    def _demote(self, *when: str) -> None:
        self._change(when, lambda: self._server.call("REPLICAOF", "127.0.0.1", "1"))

    def _switch(self, *when: str) -> None:
        def switch() -> None:
            primary, replica = self._caught_up()
            replica.call("REPLICAOF", "NO", "ONE")
            primary.call("REPLICAOF", "127.0.0.1", replica.port)
            self._servers.reverse()
            self._way.lead(replica.port, keep=True)

        self._change(when, switch)

    def _change(self, when: tuple[str, ...], change: Callable[[], None]) -> None:
        """Changes the server now, or `before WORD`."""
        if not when:
            change()
            return
        before, word = when
        if before != "before":
            raise Broken("before WORD")
        self._happened = threading.Event()

        def happens() -> None:
            change()
            self._happened.set()

        self._way.before(word, happens)

    def _demoted(self) -> None:
        soon("the server is demoted", self._happened.is_set)

    def _promote(self) -> None:
        self._server.call("REPLICAOF", "NO", "ONE")

    def _cap(self, ms: str) -> None:
        self._server.call("CONFIG", "SET", "dlock.max-hold", ms)

    def _kill(self, name: str) -> None:
        session = self._server.info(name)["holds"][0]["session"]
        if isinstance(session, int):
            self._server.call("CLIENT", "KILL", "ID", session)
        else:
            self._server.call("DLOCK.SESSION", session, "CLOSE")

    def _cut(self, word: str) -> None:
        self._way.cut(word)

    def _hang(self) -> None:
        self._way.hang()

    def _resume(self) -> None:
        self._way.resume()

    def _refuse(self) -> None:
        self._server.call("CONFIG", "SET", "min-replicas-to-write", 9)

    def _accept(self) -> None:
        self._server.call("CONFIG", "SET", "min-replicas-to-write", 0)

    def _freeze(self, which: str = "primary") -> None:
        self._servers[("primary", "replica").index(which)].freeze()

    def _thaw(self, which: str = "primary") -> None:
        self._servers[("primary", "replica").index(which)].thaw()

    def _sessions(self, number: str) -> None:
        soon(f"{number} sessions", lambda: int(self._server.client.info("dlock")["dlock_named_sessions"]) == int(number))

    def _bound(self, name: str, *rest: str) -> None:
        """A session after its connection was lost: bound again, or, if that is allowed, `lost` is told."""
        by, lock, *other = rest
        if by != "by" or other not in ([], ["or", "lost"]):
            raise Broken("bound NAME by a [or lost]")

        def settled() -> bool:
            holds = self._server.info(name).get("holds", [])
            held = [hold["session"] for hold in holds if hold["token"] == self._tokens[lock]]
            is_bound = held != [] and (held[0] is not None or "leases" in self._adapter.features)
            if is_bound or self._pending[lock][0].empty():
                return is_bound
            if not other:
                raise Broken(f"{lock} is lost")
            return True

        soon(f"{name} is bound again" + (f", or {lock} is told that it is lost" if other else ""), settled)

    def _stop(self) -> None:
        if self._through == "quorum":
            self._server.close()
            return
        self._way.lead(None)
        self._servers.pop(0).close()

    def _start(self) -> None:
        if self._through == "quorum":
            self._servers = [Quorum(self._server.ports)]
            return
        self._servers.insert(0, self._start_one())
        if self._by == "cluster":
            self._server.announce(self._way.port)
        self._way.lead(self._server.port)

    def _caught_up(self) -> list[Any]:
        """Returns the primary and its replica, which has all that the primary has."""
        primary, replica = self._servers
        soon("the replica has all", lambda: replica.client.info("replication")["slave_repl_offset"]
             == primary.client.info("replication")["master_repl_offset"])
        return [primary, replica]

    def _failover(self, gap: str = "0") -> None:
        primary, replica = self._caught_up()
        if float(gap):
            self._way.lead(None)
            primary.close()
            time.sleep(float(gap) / 1000)
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


def play(file: Path, adapter: Adapter, through: str | None = None, by: str | None = None) -> None:
    """Plays a scenario; raises `Broken`, `Skipped` or `NoAnswer`."""
    if by is not None and by not in adapter.features:
        raise Skipped(by)
    scenario = Play(adapter, through, by)
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
            except (Broken, NoAnswer) as error:
                raise type(error)(f"line {number}: {text}: {error}") from None
    finally:
        scenario.close()


def play_with_its_own(file: Path, command: list[str], through: str | None, by: str | None) -> None:
    """Plays a scenario with an adapter of its own."""
    adapter = Adapter(command)
    try:
        play(file, adapter, through, by)
    finally:
        adapter.close()


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", help="one scenario, or several: NAME,NAME")
    parser.add_argument("--title", default="", help="what the lines of the output begin with")
    parser.add_argument("--through", choices=["one", "sentinel", "quorum", "serve"],
                        help="an agent is in between, over this; serve: dlock serve is the server")
    parser.add_argument("--by", choices=["sentinel", "cluster"], help="how the adapter finds the server, if not by its address")
    parser.add_argument("adapter", nargs="+")
    arguments = parser.parse_args()
    failed = 0
    names = arguments.only.split(",") if arguments.only else sorted(file.stem for file in (HERE / "scenarios").glob("*"))
    # Scenarios, and how often each was played. The last ones are those for which the machine was too late.
    left = deque((HERE / "scenarios" / f"{name}.txt", 0) for name in names)
    while left:
        file, played = left.popleft()
        began = time.monotonic()
        try:
            play_with_its_own(file, arguments.adapter, arguments.through, arguments.by)
            print(f"{arguments.title} {file.stem}: passed in {time.monotonic() - began:.1f} s", flush=True)
        except Skipped as lacking:
            print(f"skipped: {arguments.title} {file.stem}: no {lacking}", flush=True)
        except NoAnswer as error:
            if played + 1 < TRIES:
                # Other adapters play at the same time. Later there are fewer.
                print(f"{arguments.title} {file.stem}: again, the machine was late: {error}", flush=True)
                left.append((file, played + 1))
            else:
                failed += 1
                print(f"{arguments.title} {file.stem}: FAILED: {TRIES} times: {error}", flush=True)
        except (Broken, redis.RedisError) as error:
            failed += 1
            print(f"{arguments.title} {file.stem}: FAILED: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
