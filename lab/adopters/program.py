"""The programs of adopters: one for each language, role and number."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any, TextIO

from documented import odd
from judge import Round
from machines import Deployment, die_with_parent
from programs import Program, micros
from visits import Visits

LANGUAGES = ("python", "asyncio", "node", "java", "go", "rust", "php", "ruby")
ROLES = ("web", "pool", "election", "slots", "cron")
# Languages and roles without programs: PHP and a quorum have no semaphores; the gem refuses clusters; the store for PHP
# waits for no replicas, so a failover of a cluster loses its grants.
LACKING = {"one": {("php", "slots")}, "sentinel": {("php", "slots")}, "quorum": {(each, "slots") for each in LANGUAGES},
           "cluster": {(each, role) for each in ("php", "ruby") for role in ROLES}}
# How long a program may take to end when its input closes, in seconds.
ENDS = 8.0


class Adopter(Program):
    """A process that works by itself until its input closes, and writes what happens to it."""

    def __init__(self, name: str, words: list[str], it: Round, lines: TextIO | None) -> None:
        super().__init__(name, words)
        self._it = it
        # The file that gets every line of the program, if one was asked for.
        self._lines = lines
        self._ending = False
        self.visits = Visits(name, 0)
        self.said = 0
        # The variables that it is started with, beside ours.
        self.environment: dict[str, str] = {}

    async def start(self) -> None:
        """Starts it."""
        self._log = tempfile.TemporaryFile()
        self._ending = False
        self._process = await asyncio.create_subprocess_exec(
            *self._words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=self._log,
            preexec_fn=die_with_parent, limit=1 << 20, env={**os.environ, **self.environment})
        self.pid = self._process.pid
        self.visits = Visits(self.name, self.pid)
        assert self._process.stdout is not None
        self._reading = asyncio.create_task(self._read(self._process.stdout))

    async def _read(self, output: asyncio.StreamReader) -> None:
        its = self.visits
        while (line := await output.readline()).endswith(b"\n"):
            if self._lines is not None:
                self._lines.write(f"{self.name} {self.pid} {line.decode()}")
            before = len(its.attempts)
            its.add(json.loads(line))
            self.said += 1
            if len(its.attempts) > before:
                self._it.attempts.append(next(reversed(its.attempts.values())))
        code = await self._process.wait()
        self._it.seen += its.wrong
        if written := odd(self.name, self.log()):
            self._it.seen.append(f"{self.name} wrote to stderr: {written}")
        if self.pid in self.killed:
            its.died(self.killed_at)
        elif not self._ending or code or its.open:
            unfinished = [its.attempts[number] for number in its.open]
            self._it.seen.append(f"{self.name} ended with {code}, in the midst of {unfinished}: {self.log()}")
            self._it.killed.add(self.pid)
            its.died(micros())
            if not self._ending:
                await self.start()

    async def end(self, slack: float = 0.0) -> None:
        """Closes its input, as a deployment does, and waits until it has ended."""
        self._ending = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), ENDS + slack)
        except asyncio.TimeoutError:
            unfinished = [self.visits.attempts[number] for number in self.visits.open]
            self._it.seen.append(f"{self.name} goes on {ENDS + slack:.0f} s after its input has closed: {unfinished}")
            self.signal(signal.SIGABRT)
            self._it.killed.update(await self.kill())
        await self._reading


def adopters(
    built: Path, deployment: Deployment, it: Round, options: Any, ledger: Path, lines: TextIO | None
) -> list[Adopter]:
    """Returns the programs: of the languages and roles that are named, or of all."""
    programs: list[Adopter] = []
    only = set(options.only)
    for language, words in commands(built).items():
        for role in ROLES:
            if not (language in only or not only & set(LANGUAGES)) or not (role in only or not only & set(ROLES)):
                continue
            for number in range(1, options.each + 1):
                name = f"{language} {role} {number}"
                if (language, role) not in LACKING[options.through]:
                    programs.append(Adopter(name, [*words, role, name.replace(" ", "-")], it, lines))
    for at, program in enumerate(programs):
        program.environment = {
            "ADOPTER_BY": options.through,
            "ADOPTER_OWN": "php-" if program.name.startswith("php") and deployment.replicas else "",
            "ADOPTER_PORTS": ",".join(str(port) for port in deployment.ports_of(at)),
            "ADOPTER_REPLICAS": str(deployment.replicas), "ADOPTER_LEDGER": str(ledger),
        }
    return programs


def commands(built: Path) -> dict[str, list[str]]:
    """Returns what starts the program of each language."""
    java = ["java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{built}/java", "Adopter"]
    python = os.environ.get("DLOCK_PYTHON", "python3")
    return {
        "python": [python, str(built / "adopter.py")],
        "asyncio": [python, str(built / "adopter_asyncio.py")],
        "node": ["node", str(built / "adopter.mjs")],
        "java": java,
        "go": [str(built / "go-adopter")],
        "rust": [str(built / "rust-adopter")],
        "php": ["php", str(built / "adopter.php"), str(built / "clients/php/src/DlockStore.php")],
        "ruby": ["ruby", f"-I{built}/clients/ruby/lib", str(built / "adopter.rb")],
    }
