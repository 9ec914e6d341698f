"""Builds the workers of `make rivals`, with the packages of others from their registries, in target/rivals."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
HOME = ROOT / "target/rivals"


class Missing(Exception):
    """The tools of a language, or its packages, are not there."""


def run(*words: str | Path, settings: Mapping[str, str] | None = None) -> str:
    """Returns what a command prints."""
    try:
        done = subprocess.run(
            list(map(str, words)), cwd=ROOT, env=os.environ | (settings or {}), capture_output=True, text=True
        )
    except FileNotFoundError as missing:
        raise Missing(f"{missing.filename} is not installed") from missing
    if done.returncode:
        # Maven prints its first error before all else, and with colors.
        said = re.sub(r"\x1b\[\d*m", "", done.stderr + done.stdout)
        raise Missing(next((line for line in said.splitlines() if "ERROR" in line), said.strip()[-300:] or str(words[0])))
    return done.stdout.strip()


def java() -> list[str]:
    home = HOME / "java"
    home.mkdir(parents=True, exist_ok=True)
    run("mvn", "-q", "-B", "-f", HERE / "pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={home}/jars")
    path = f"{run(ROOT / 'clients/java/build')}:{home}/jars/*:{home}"
    run("javac", "-cp", path, "-d", home, HERE / "Worker.java")
    return ["java", "-cp", path, "Worker"]


def go() -> list[str]:
    command = run("scripts/go")
    settings = {"GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=readonly -modcacherw"}
    settings |= {"GOMODCACHE": str(HOME / "go-modules"), "GOCACHE": str(ROOT / "target/go/cache")}
    run(command, "-C", HERE, "build", "-o", HOME / "go", ".", settings=settings)
    return [str(HOME / "go")]


def node() -> list[str]:
    tools = ROOT / "target/languages/node/bin"
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    home = HOME / "node"
    home.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", "worker.mjs"):
        shutil.copy(HERE / name, home)
    run("npm", "ci", "--prefix", home, "--no-audit", "--no-fund", "--loglevel=error", settings=path)
    packed = run("npm", "pack", "--silent", "--pack-destination", home, "./clients/node", settings=path)
    run("npm", "install", "--prefix", home, "--no-audit", "--no-fund", "--no-save", home / packed, settings=path)
    return [str(tools / "node") if (tools / "node").exists() else "node", str(home / "worker.mjs")]


def python() -> list[str]:
    run("scripts/python", "make")
    return [run("scripts/python"), str(HERE / "worker.py")]


PROGRAMS: dict[str, Callable[[], list[str]]] = {"go": go, "java": java, "node": node, "python": python}


def versions(programs: Mapping[str, list[str]]) -> dict[str, str]:
    """Returns the versions of the server and of what the workers use."""
    found = {"server": run(os.environ["DLOCK_SERVER"], "--version").split(" sha")[0]}
    texts = {
        "java": (HERE / "pom.xml", r"<artifactId>(redisson)</artifactId>\s*<version>(.*?)</version>"),
        "go": (HERE / "go.mod", r"(?m)^\t\S*/(redsync|redislock|go-redis)(?:/v\d+)? v(\S+)$"),
        "node": (HERE / "package.json", r'"(redlock|redis-semaphore|ioredis)": "(.*?)"'),
    }
    for language, (file, pattern) in texts.items():
        if language in programs:
            found |= dict(re.findall(pattern, file.read_text()))
    if "python" in programs:
        found["redis-py"] = run(programs["python"][0], "-c", "import redis; print(redis.__version__)")
    return found
