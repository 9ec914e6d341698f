"""The servers of each deployment, and the ways to them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from judge import of_majority
from way import Way

TOP = Path(__file__).parents[2]
sys.path.append(str(TOP / "tests/conformance"))
from servers import MODULE, Broken, _plain, free_port  # noqa: E402 - the path comes first

HOST = "127.0.0.1"
SERVER = os.environ.get("DLOCK_SERVER") or shutil.which("redis-server") or "valkey-server"
COMMAND = os.environ.get("DLOCK_PROGRAM") or str(TOP / "target/release/dlock")
PATIENCE = 30.0
# Sentinels and nodes of a cluster count a silent server as down after this time, in ms.
DOWN_AFTER = 2000
# How long a replica has to say that it has all, in s: it says so each second.
ACKNOWLEDGED_IN = 1.5


def die_with_parent() -> None:
    """Lets the kernel kill a new process when the run ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


async def soon(what: str, condition: Any) -> None:
    """Waits until an awaited condition holds."""
    ends = asyncio.get_running_loop().time() + PATIENCE
    while not await condition():
        if asyncio.get_running_loop().time() > ends:
            raise Broken(f"not in time: {what}")
        await asyncio.sleep(0.02)


class Machine:
    """A server that keeps its locks on disk, and may be killed and started again. `way`: the port that others know."""

    def __init__(self, way: int, *words: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="dlock-chaos-")
        self.port = free_port()
        self.client: Any = None
        self._words = [SERVER, "--bind", HOST, "--port", str(self.port), "--dir", self._home.name, "--save", ""]
        self._words += ["--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"]
        self._words += ["--loadmodule", os.environ.get("DLOCK_MODULE") or str(MODULE), "--logfile", "log"]
        self._words += ["--replica-announce-port", str(way), *words]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Starts it, and waits until it answers."""
        self._process = subprocess.Popen(self._words, stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)
        self.client = redis.asyncio.Redis(port=self.port, protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=5)
        await soon("a server answers", self._answers)

    async def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool((await self.client.info("server"))["process_id"] == self._process.pid)
        return False

    async def call(self, *words: Any) -> Any:
        """Returns the reply to a command that is sent to the server itself, not through its way."""
        return await self.client.execute_command(*words)

    async def version(self) -> str:
        """Returns the server's name and version."""
        info = await self.client.info("server")
        return f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"

    async def role(self) -> str:
        """Returns `master` or `slave`; nothing if it does not answer."""
        with contextlib.suppress(redis.RedisError):
            return str((await self.client.info("replication"))["role"])
        return ""

    async def locks(self, db: int) -> list[dict[str, Any]]:
        """Returns what the server says of every lock that is held or waited for."""
        client = redis.asyncio.Redis(port=self.port, db=db, protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=5)
        found = []
        try:
            async for key in client.scan_iter(count=1000):
                info = _plain(await client.execute_command("DLOCK.INFO", key, "FULL"))
                if info:
                    found.append({**info, "lock": f"{db}/{key.decode()}"})
        finally:
            await client.aclose()
        return found

    def signal(self, number: int) -> None:
        """Sends a signal to the process."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def freeze(self) -> None:
        """Stops the process: connections stay open, and nothing is answered."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets the process go on."""
        self.signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kills it."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
        if self.client is not None:
            with contextlib.suppress(redis.RedisError, OSError):
                await self.client.aclose()

    async def close(self) -> None:
        """Ends it for good."""
        await self.kill()
        self._home.cleanup()


class Deployment:
    """Servers and ways, as programs find them."""

    by: str | None = None
    replicas = 0
    databases = [0]
    features = {"named", "slots"}
    # Faults of its servers and its agent, beside those of ways and programs.
    faults = ["freeze", "restart"]
    # Whether the death of a server, or of an agent, is enough to lose a grant.
    loses = False
    # Whether all locks are on one server.
    is_one = False
    # A server that takes this long for an answer is slow, in microseconds: its disk is busy, or the machine.
    slow = 200_000

    def __init__(self, choices: random.Random) -> None:
        self._choices = choices
        self.machines: list[Machine] = []
        self.ways: list[Way] = []
        self.ports: list[int] = []

    async def machine(self, *words: str) -> Machine:
        """Starts another server behind a way of its own."""
        port = free_port()
        cluster = "--cluster-enabled" in words
        announced = ["--cluster-announce-port", str(port)] if cluster else []
        made = Machine(port, *words, *announced)
        if cluster:
            bus = str(made.port + 10000)
            made._words += ["--cluster-port", bus, "--cluster-announce-bus-port", bus]
        way = Way(port, made.port, self._choices)
        await way.open()
        await made.start()
        self.machines.append(made)
        self.ways.append(way)
        return made

    async def start(self) -> None:
        """Starts everything."""
        raise NotImplementedError

    async def another_way(self, to: int) -> None:
        """Opens one more way to a port, for some of the programs."""
        way = Way(free_port(), to, self._choices)
        await way.open()
        self.ways.append(way)

    def ports_of(self, number: int) -> list[int]:
        """Returns the ports that the program of this number has to know."""
        return self.ports

    async def locks(self) -> list[dict[str, Any]]:
        """Returns the locks of all servers that grant."""
        found = []
        for machine in self.machines:
            if await machine.role() == "master":
                for db in self.databases:
                    found += await machine.locks(db)
        return found

    async def restart(self, at: int) -> None:
        """Kills a server and starts it again."""
        machine = self.machines[at % len(self.machines)]
        await machine.kill()
        await asyncio.sleep(self._choices.uniform(0, 0.5))
        await machine.start()

    def heal(self) -> None:
        """Ends what was done to servers and ways."""
        for machine in self.machines:
            machine.thaw()
        for way in self.ways:
            way.heal()

    async def is_whole(self) -> bool:
        """Returns whether programs can lock as if nothing had been done."""
        return True

    async def close(self) -> None:
        """Ends everything."""
        self.heal()
        for way in self.ways:
            await way.close()
        for machine in self.machines:
            await machine.close()


class One(Deployment):
    """A server, and three ways to it, over which the programs are spread."""

    databases = [0, 5]
    is_one = True

    async def start(self) -> None:
        """Starts everything."""
        await self.machine()
        for _ in range(2):
            await self.another_way(self.machines[0].port)
        self.ports = [way.port for way in self.ways]

    def ports_of(self, number: int) -> list[int]:
        """Returns the port that the program of this number has to know."""
        return [self.ports[number % len(self.ports)]]


class Sentinel(Deployment):
    """A primary and a replica, and three Sentinels. Grants and renewals count when the replica has them."""

    by = "sentinel"
    replicas = 1
    databases = [0, 5]
    faults = ["freeze", "failover", "handover"]
    loses = True

    async def start(self) -> None:
        """Starts the servers, then the Sentinels."""
        first, second = await self.machine(), await self.machine()
        await second.call("REPLICAOF", HOST, self.ways[0].port)
        await soon("the replica is in step", lambda: in_step(second))
        self._homes: list[tempfile.TemporaryDirectory[str]] = []
        self._sentinels: list[subprocess.Popen[bytes]] = []
        for _ in range(3):
            home, port = tempfile.TemporaryDirectory(prefix="dlock-chaos-"), free_port()
            file = Path(home.name, "sentinel.conf")
            file.write_text(f"port {port}\nbind {HOST}\ndir {home.name}\nlogfile log\n"
                            f"sentinel monitor locks {HOST} {self.ways[0].port} 2\n"
                            f"sentinel down-after-milliseconds locks {DOWN_AFTER}\n"
                            f"sentinel failover-timeout locks 6000\n")
            words = [SERVER, str(file), "--sentinel"]
            self._sentinels.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, preexec_fn=die_with_parent))
            self._homes.append(home)
            self.ports.append(port)
        await soon("the Sentinels know everybody", self._know)

    async def _ask(self, *words: Any) -> Any:
        client = redis.asyncio.Redis(port=self.ports[0], protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=2)
        try:
            return await client.execute_command(*words)
        finally:
            await client.aclose()

    async def _know(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            info = plain(await self._ask("INFO", "sentinel")).replace("=", ":")
            return "slaves:1" in info and "sentinels:3" in info
        return False

    async def _primary(self) -> int:
        """Returns the number of the primary that Sentinel names."""
        address = await self._ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks")
        return [way.port for way in self.ways].index(int(address[1]))

    async def failover(self) -> None:
        """Kills the primary, and starts it again when its replica has taken over."""
        try:
            at = await self._primary()
        except redis.RedisError:
            return
        await self.machines[at].kill()

        async def moved() -> bool:
            # A Sentinel of a busy machine may be late: it is asked again.
            with contextlib.suppress(redis.RedisError):
                return await self._primary() != at
            return False

        try:
            await soon("the replica takes over", moved)
        finally:
            await self.machines[at].start()

    async def handover(self) -> None:
        """Moves the primary with the command. A refusal is no fault: the replica may just have been away."""
        words = [COMMAND, "-s", f"redis-sentinel://{HOST}:{self.ports[0]}/locks", "failover"]
        process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await process.wait()

    async def is_whole(self) -> bool:
        """Returns whether the primary that Sentinel names has its replica."""
        with contextlib.suppress(redis.RedisError, ValueError):
            at = await self._primary()
            primary, replica = self.machines[at], self.machines[1 - at]
            return await primary.role() == "master" and await in_step(replica) and await acknowledges(primary)
        return False

    async def close(self) -> None:
        """Ends the Sentinels first."""
        for process in self._sentinels:
            process.kill()
            process.wait()
        for home in self._homes:
            home.cleanup()
        await super().close()


class Cluster(Deployment):
    """Three primaries with a replica each."""

    by = "cluster"
    replicas = 1
    faults = ["freeze", "failover"]
    loses = True

    async def start(self) -> None:
        """Starts the nodes, and waits until all have their places."""
        conf = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(DOWN_AFTER)]
        conf += ["--cluster-require-full-coverage", "no"]
        nodes = [await self.machine(*conf) for _ in range(6)]
        for at, node in enumerate(nodes[:3]):
            await node.call("CLUSTER", "ADDSLOTSRANGE", at * 16384 // 3, (at + 1) * 16384 // 3 - 1)
            await node.call("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
        for node, way in zip(nodes[1:], self.ways[1:]):
            await nodes[0].call("CLUSTER", "MEET", HOST, way.port, node.port + 10000)
        names = [(await node.call("CLUSTER", "MYID")).decode() for node in nodes]
        for at, node in enumerate(nodes[3:]):
            async def known(node: Machine = node, at: int = at) -> bool:
                with contextlib.suppress(redis.RedisError):
                    await node.call("CLUSTER", "REPLICATE", names[at])
                    return True
                return False

            await soon("a replica has its primary", known)
        self.ports = [way.port for way in self.ways[:3]]
        await soon("the cluster is whole", self.is_whole)

    async def failover(self) -> None:
        """Kills a primary, and starts it again when its replica has taken over."""
        primaries = [machine for machine in self.machines if await machine.role() == "master"]
        victim = self._choices.choice(primaries)
        await victim.kill()

        async def moved() -> bool:
            return sum([await machine.role() == "master" for machine in self.machines if machine is not victim]) == 3

        try:
            await soon("a replica takes over", moved)
        finally:
            await victim.start()

    async def is_whole(self) -> bool:
        """Returns whether each node agrees that all slots are served, and each primary has its replica."""
        with contextlib.suppress(redis.RedisError):
            primaries = 0
            for machine in self.machines:
                info = plain(await machine.call("CLUSTER", "INFO"))
                if "cluster_state:ok" not in info or "cluster_slots_ok:16384" not in info:
                    return False
                if await machine.role() == "master":
                    primaries += 1
                    if not await acknowledges(machine):
                        return False
            return primaries == 3
        return False


class Quorum(Deployment):
    """Three servers, and an agent through which the programs lock."""

    features: set[str] = set()
    faults = ["freeze", "restart", "agent stopped", "agent killed"]
    # An agent that was killed knows none of the locks of before.
    loses = True
    # The agent waits no longer for a server.
    slow = 100_000

    async def start(self) -> None:
        """Starts the servers, then the agent, and opens three ways to it."""
        for _ in range(3):
            await self.machine()
        self._port = free_port()
        self._agent = await self._start()
        for _ in range(3):
            await self.another_way(self._port)
        self.ports = [way.port for way in self.ways[3:]]

    def ports_of(self, number: int) -> list[int]:
        """Returns the port of one of the ways to the agent, for the program of this number."""
        return [self.ports[number % len(self.ports)]]

    async def _start(self) -> subprocess.Popen[bytes]:
        urls = [word for way in self.ways[:3] for word in ("-s", f"redis://{HOST}:{way.port}")]
        words = [COMMAND, "agent", "--listen", f"{HOST}:{self._port}", *urls, "--longest-lease", "15s", "--persistent"]
        agent = subprocess.Popen(words, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)

        async def listens() -> bool:
            try:
                _, writer = await asyncio.open_connection(HOST, self._port)
            except OSError:
                return False
            writer.close()
            return True

        await soon("the agent listens", listens)
        return agent

    def agent(self, number: int) -> None:
        """Sends a signal to the agent."""
        self._agent.send_signal(number)

    async def agent_again(self) -> None:
        """Kills the agent and starts another one."""
        self._agent.kill()
        self._agent.wait()
        self._agent = await self._start()

    async def locks(self) -> list[dict[str, Any]]:
        """Returns the locks that a majority has."""
        return of_majority([await machine.locks(0) for machine in self.machines])

    def heal(self) -> None:
        """Lets the agent go on, too."""
        super().heal()
        if hasattr(self, "_agent") and self._agent.poll() is None:
            self.agent(signal.SIGCONT)

    async def close(self) -> None:
        """Ends the agent first."""
        self._agent.kill()
        self._agent.wait()
        await super().close()


def plain(info: Any) -> str:
    """Returns the text of an answer, whether the driver has parsed it or not."""
    return str(info).replace("'", "").replace(": ", ":")


async def in_step(replica: Machine) -> bool:
    """Returns whether the link of a replica to its primary is up."""
    with contextlib.suppress(redis.RedisError):
        return bool((await replica.client.info("replication")).get("master_link_status") == "up")
    return False


async def acknowledges(primary: Machine) -> bool:
    """Returns whether a replica has all that its primary has written by now. A replica says each second what it has."""
    # `WAIT` does not show that: on a connection that has written nothing, it waits for nothing.
    written = (await primary.client.info("replication"))["master_repl_offset"]
    ends = asyncio.get_running_loop().time() + ACKNOWLEDGED_IN
    while True:
        info = await primary.client.info("replication")
        replicas = [info[f"slave{at}"] for at in range(int(info["connected_slaves"]))]
        if any(each["state"] == "online" and each["offset"] >= written for each in replicas):
            return True
        if asyncio.get_running_loop().time() > ends:
            return False
        await asyncio.sleep(0.05)


async def lacks_replica(machine: Machine) -> bool:
    """Returns whether a primary says that no replica follows it. Silence is no answer."""
    with contextlib.suppress(redis.RedisError, asyncio.TimeoutError, OSError):
        info = await asyncio.wait_for(machine.client.info("replication"), 0.5)
        follows = [info.get(f"slave{at}") for at in range(int(info.get("connected_slaves", 0)))]
        return info.get("role") == "master" and not any(each and each.get("state") == "online" for each in follows)
    return False


DEPLOYMENTS: dict[str, type[Deployment]] = {"one": One, "sentinel": Sentinel, "cluster": Cluster, "quorum": Quorum}
