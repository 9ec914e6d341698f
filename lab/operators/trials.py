"""Trials of what operators do to a server, each played once while programs lock. A trial returns in words what was
seen, and raises if that is not what docs/evidence.md promises."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from crowd import Crowd
from kit import soon
from machine import free_port
from servers import Server

TOP = Path(__file__).resolve().parents[2]


class Missing(Exception):
    """The machine lacks what a trial needs."""


def check(holds: bool, what: str) -> None:
    """Fails the trial if a promise does not hold."""
    if not holds:
        raise AssertionError(what)


def goes_on(crowd: Crowd, when: str) -> None:
    """Fails the trial if the programs do not get locks, or two had a lock at the same time."""
    check(crowd.progress(), f"no locks {when}: {crowd.errors}")
    check(not crowd.faults(), f"{when}: {crowd.faults()[:3]}")


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A file system of its own, which is soon full."""
    with tempfile.TemporaryDirectory() as home:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "dlock-operators", home]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            raise Missing("the right to mount a file system")
        try:
            yield Path(home)
        finally:
            subprocess.run(["umount", "--lazy", home], check=True)


def fill(disk: Path) -> Path:
    """Fills a disk. Returns the file to delete for room."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            pass
    return filler


def refused(crowd: Crowd, word: str) -> None:
    """Waits until programs are refused with an error."""
    soon(f"a program gets {word}", lambda: word in crowd.errors)


def aof_without_room() -> str:
    with small_disk(8) as disk, Server("--dir", str(disk), "--appendonly", "yes") as server, Crowd(server.port) as crowd:
        goes_on(crowd, "before")
        filler = fill(disk)
        refused(crowd, "MISCONF")
        filler.unlink()
        goes_on(crowd, "with room again")
        return f"`MISCONF` until there is room; {crowd.lost()} losses told"


def rdb_without_room() -> str:
    with small_disk(8) as disk, Server("--dir", str(disk), "--save", "3600 1") as server, Crowd(server.port) as crowd:
        server.client.set("ballast", os.urandom(6_000_000))
        goes_on(crowd, "before")
        filler = fill(disk)
        server.client.bgsave()
        refused(crowd, "MISCONF")
        filler.unlink()
        server.client.bgsave()
        goes_on(crowd, "with room again")
        return f"`MISCONF` until a snapshot succeeds; {crowd.lost()} losses told"


def memory_at_its_limit() -> str:
    with Server() as server, Crowd(server.port) as crowd:
        goes_on(crowd, "before")
        held = server.client.execute_command("DLOCK.ACQUIRE", "kept", "operator", "PX", 60_000)
        check(bool(held), "a free lock is refused")
        server.client.config_set("maxmemory", server.client.info("memory")["used_memory"] // 2)
        refused(crowd, "OutOfMemoryError")
        check(server.client.execute_command("DLOCK.RENEW", "kept", "operator", "PX", 60_000) is not None, "no renewal")
        check(bool(server.client.execute_command("DLOCK.RELEASE", "kept", "operator")), "no release")
        server.client.config_set("maxmemory", 0)
        goes_on(crowd, "with memory again")
        return f"new locks get `OOM`; held ones are renewed and released; {crowd.lost()} losses told"


def output_that_nobody_reads() -> str:
    with Server() as server, Crowd(server.port) as crowd:
        server.client.config_set("client-output-buffer-limit", "normal 1000000 0 0")
        deaf = redis.Redis(port=server.port, socket_timeout=5)
        deaf.execute_command("DLOCK.ACQUIRE", "deaf", "operator", "SESSION")
        connection = deaf.connection_pool.get_connection()
        many = connection.pack_commands([("DLOCK.HELP",)] * 20_000)
        soon("the lock `deaf` is free", lambda: _push(connection, many) or not server.client.exists("deaf"))
        goes_on(crowd, "afterwards")
        check(crowd.lost() == 0, "the locks of others are lost")
        return "the server closes the connection; its lock is free at once; no loss for others"


def _push(connection: Any, words: list[bytes]) -> bool:
    """Sends commands, and reads no reply. Returns False, so that `or` goes on to the condition behind it."""
    try:
        connection.send_packed_command(words)
    except (redis.RedisError, OSError):
        pass
    return False


def io_threads() -> str:
    with Server("--io-threads", "4") as server, Crowd(server.port) as crowd:
        goes_on(crowd, "with threads")
        check(crowd.progress(200), "too few locks")
        check(crowd.lost() == 0 and not crowd.errors, f"{crowd.lost()} losses, {crowd.errors}")
        return "no difference"


def jumping_clock(seconds: float) -> str:
    with tempfile.TemporaryDirectory() as home:
        library, clock = Path(home, "jumping.so"), Path(home, "clock")
        clock.write_bytes(struct.pack("=q", 0))
        source = TOP / "crates/testkit/src/servers/jumping.c"
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        with started(LD_PRELOAD=str(library), CHAOS_CLOCK=str(clock)) as server, Crowd(server.port, work=0.5) as crowd:
            check(crowd.progress(2), f"no locks before: {crowd.errors}")
            with clock.open("r+b") as file:
                file.write(struct.pack("=q", int(seconds * 1e6)))
            check(crowd.progress(6, limit=60), "no locks after the jump")
            found = crowd.faults()
            # Only a jump ahead may give a lock to a second program early. No jump may break the order of tokens.
            check(all("two believed" in fault for fault in found), f"tokens: {found[:3]}")
            check(seconds > 0 or not found, f"two owners: {found[:3]}")
            return f"tokens rise; {len(found)} holds had another owner before their end, {crowd.lost()} losses told"


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Variables for servers that are started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def started(**variables: str) -> Server:
    """A server that is started with these variables."""
    with environment(**variables):
        return Server()


def certificate(home: Path, name: str) -> None:
    """Makes a self-signed certificate for this machine."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", home / f"{name}.key", "-out", home / f"{name}.crt"],
        check=True, capture_output=True,
    )


def certificates_that_change() -> str:
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        for name in ("old", "new"):
            certificate(home, name)
        both = home / "both.crt"
        both.write_bytes(b"".join((home / f"{name}.crt").read_bytes() for name in ("old", "new")))
        secure = free_port()
        try:
            server = Server(
                "--tls-port", str(secure), "--tls-cert-file", str(home / "old.crt"), "--tls-key-file",
                str(home / "old.key"), "--tls-ca-cert-file", str(both), "--tls-auth-clients", "no",
            )
        except AssertionError:
            raise Missing("a server that has TLS") from None
        with server, Crowd(secure, {"ssl": True, "ssl_ca_certs": str(both)}) as crowd:
            goes_on(crowd, "before")
            server.client.execute_command(
                "CONFIG", "SET", "tls-cert-file", str(home / "new.crt"), "tls-key-file", str(home / "new.key")
            )
            goes_on(crowd, "on old connections")
            check(crowd.lost() == 0 and not crowd.errors, f"{crowd.lost()} losses, {crowd.errors}")
            server.client.client_kill_filter(_type="normal", skipme=True)
            goes_on(crowd, "on new connections")
            return "open connections stay; new ones see the new certificate"


def another_version(first: str, second: str) -> str:
    """A replica of another version of the server takes over, as in a rolling upgrade."""
    binaries = {name: TOP / "target/servers" / name / "redis-server" for name in (first, second)}
    if not all(binary.exists() for binary in binaries.values()):
        raise Missing("the servers of `make servers`")
    with started(DLOCK_SERVER=str(binaries[first])) as old, started(DLOCK_SERVER=str(binaries[second])) as new:
        return change(old, new)


def change(old: Server, new: Server) -> str:
    """Programs go on while a replica is added to their server and takes over."""
    with Crowd(old.port) as crowd:
        goes_on(crowd, "before")
        new.client.replicaof("127.0.0.1", str(old.port))
        soon("the new server replicates", lambda: new.client.info("replication")["master_link_status"] == "up")
        goes_on(crowd, "with a replica")
        old.client.execute_command("FAILOVER", "TO", "127.0.0.1", str(new.port), "TIMEOUT", 20_000, "FORCE")
        soon("the new server is the primary", lambda: new.client.info("replication")["role"] == "master")
        crowd.turn_to(new.port)
        goes_on(crowd, "on the new server")
        return f"`FAILOVER` moves all locks; {crowd.lost()} losses told"


def downgrade() -> str:
    """A replica with the module of the previous release takes over."""
    built = subprocess.run([TOP / "scripts/previous"], capture_output=True, text=True, check=False)
    if built.returncode:
        raise Missing("the module of the release before: " + built.stderr.strip().splitlines()[-1])
    with started() as new, started(DLOCK_MODULE=built.stdout.strip()) as old:
        return change(new, old)


# An operator's action and its promise, as in the table of docs/evidence.md, and the trial.
TRIALS: list[tuple[str, str, Callable[[], str]]] = [
    ("disk full, AOF", "writes are refused; with room, locks are granted again, to one owner at each time", aof_without_room),
    ("disk full, RDB", "the same", rdb_without_room),
    ("`maxmemory` reached", "no new lock; a renewal and a release need no memory", memory_at_its_limit),
    ("output buffer full", "the connection that does not read ends, and its locks with it", output_that_nobody_reads),
    ("`io-threads 4`", "nothing changes", io_threads),
    ("clock 3 s ahead", "leases end early, here those of all holders; tokens rise", lambda: jumping_clock(3)),
    ("clock 3 s back", "leases end late; tokens rise, and no lock has two owners", lambda: jumping_clock(-3)),
    ("new certificate", "no lock is lost", certificates_that_change),
    ("Redis 7.0 to 8.6", "all locks move; one owner at each time", lambda: another_version("redis-7.0", "redis-8.6")),
    ("dlock to the release before", "all locks move; one owner at each time", downgrade),
]
