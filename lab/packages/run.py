#!/usr/bin/env python3
"""Measures what an acquisition with its release costs the processor of a client, beside SET NX and a script on the same driver.

    run.py [--pairs 3000] [--rounds 5] [--only python,node]

DLOCK_SERVER and DLOCK_MODULE name the server. A program of each language is called with PORT KIND PAIRS: it acquires
and releases that many times, after a tenth of them to warm up, and prints the microseconds of its processor and those
that have passed. Kinds: `plain`, `lease` (30 s, not renewed), `kept` (renewed). The kinds take turns; each figure is the
median of the rounds. A language whose tools are not there is left out, with the reason.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "tests/suites"))
from servers import Servers  # noqa: E402 - the path comes first

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


class Missing(Exception):
    """The tools of a language are not there."""


def rust() -> dict[str, list[str]]:
    run("cargo", "build", "--quiet", "--locked", "--release", "--package", "dlock-pairs")
    return {"redis-rs": [str(TARGET / "release/dlock-pairs")]}


def go() -> dict[str, list[str]]:
    command = said(ROOT / "scripts/go")
    modules = Path(said(ROOT / "scripts/go-modules"))
    home = ROOT / "target/go"
    home.mkdir(parents=True, exist_ok=True)
    adapter = ROOT / "clients/go/goredis"
    text = (adapter / "go.mod").read_text().replace("=> ..", f"=> {adapter.parent}")
    for line in (modules / "list").read_text().splitlines():
        module, at = line.split()
        text += f"replace {module} => {at}\n"
    (home / "pairs.mod").write_text(text)
    settings = {"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOWORK": "off", "GOPATH": str(home)}
    settings |= {"GOFLAGS": f"-mod=mod -modfile={home / 'pairs.mod'}", "GOCACHE": str(home / "cache")}
    run(command, "build", "-o", str(home / "pairs"), "./internal/pairs", cwd=adapter, env=os.environ | settings)
    return {"go-redis": [str(home / "pairs")]}


def python() -> dict[str, list[str]]:
    run("scripts/python", "make")
    return {"redis-py": [said(ROOT / "scripts/python"), str(ROOT / "clients/python/bench/pairs.py")]}


def node() -> dict[str, list[str]]:
    home = Path(said(ROOT / "scripts/node"))
    # The program finds the packages from where it is.
    shutil.copy(ROOT / "clients/node/bench/pairs.mjs", home)
    own = ROOT / "target/languages/node/bin/node"
    return {"ioredis": [str(own) if own.exists() else "node", str(home / "pairs.mjs")]}


def java() -> dict[str, list[str]]:
    adapters, home = ROOT / "clients/java/adapters", ROOT / "target/java/pairs"
    home.mkdir(parents=True, exist_ok=True)
    pom = (adapters / "jedis/pom.xml").read_text()
    # Without what is in no repository.
    pom = re.sub(r"<parent>.*?</parent>", "<groupId>fetched</groupId><version>1</version>", pom, flags=re.S)
    pom = re.sub(r"<dependency>\s*<groupId>dlock</groupId>.*?</dependency>", "", pom, flags=re.S)
    (home / "pom.xml").write_text(pom)
    run("mvn", "-q", "-B", "-f", str(home / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={home}/jars")
    path = f"{said(ROOT / 'clients/java/build')}:{home}/jars/*:{home}"
    sources = [str(each) for each in [*adapters.glob("jedis/src/main/**/*.java"), adapters / "bench/Pairs.java"]]
    run("javac", "-cp", path, "-d", str(home), *sources)
    return {"Jedis": ["java", "-cp", path, "Pairs"]}


def ruby() -> dict[str, list[str]]:
    run("ruby", "-rredis", "-e", "")
    return {"redis-rb": ["ruby", str(ROOT / "clients/ruby/bench/pairs.rb")]}


def php() -> dict[str, list[str]]:
    run("php", "-r", "exit((int) !((include 'Symfony/Component/Lock/autoload.php') && extension_loaded('redis')));")
    return {"phpredis": ["php", str(ROOT / "clients/php/bench/pairs.php")]}


# A line for each language: how to build its programs, by driver. A kind that begins with `own-` is one of the package's
# own connections, beside the plain lock of the driver.
LANGUAGES: dict[str, tuple[Callable[[], dict[str, list[str]]], list[str]]] = {
    "rust": (rust, ["lease", "kept"]),
    "python": (python, ["lease", "kept"]),
    "node": (node, ["lease", "kept"]),
    "java": (java, ["lease", "kept", "own-lease", "own-kept"]),
    "go": (go, ["lease", "kept", "own-lease", "own-kept"]),
    "ruby": (ruby, ["lease", "kept"]),
    "php": (php, ["lease"]),
}


def run(*words: str, **more: object) -> None:
    if shutil.which(words[0], path=os.defpath + ":" + os.environ["PATH"]) is None and not (ROOT / words[0]).exists():
        raise Missing(f"{words[0]} is not installed")
    done = subprocess.run(words, **{"cwd": ROOT, **more}, capture_output=True, text=True)  # type: ignore[call-overload]
    if done.returncode:
        raise Missing((done.stderr or done.stdout or words[0]).strip().splitlines()[-1])


def said(script: Path) -> str:
    done = subprocess.run([str(script)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise Missing(done.stdout.strip() or done.stderr.strip())
    return done.stdout.strip()


def measure(port: int, program: list[str], kinds: list[str], pairs: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Returns the µs of the processor, and those that passed, of a pair of each kind."""
    seen: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            done = subprocess.run([*program, str(port), kind, str(pairs)], capture_output=True, text=True, check=True)
            cpu, passed = re.findall(r"\d+", done.stdout)[-2:]
            seen[kind].append((int(cpu) / pairs, int(passed) / pairs))
    return {kind: tuple(map(statistics.median, zip(*figures))) for kind, figures in seen.items()}  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(LANGUAGES))
    options = parser.parse_args()
    print("| language, driver | kind | CPU of a pair, µs | / plain | time of a pair, µs |")
    print("|---|---|--:|--:|--:|", flush=True)
    for language in options.only.split(","):
        build, kinds = LANGUAGES[language]
        try:
            programs = build()
        except Missing as missing:
            print(f"{language} is left out: {missing}", file=sys.stderr)
            continue
        for driver, program in programs.items():
            with Servers(1) as servers:
                figures = measure(servers.ports[0], program, ["plain", *kinds], options.pairs, options.rounds)
            for kind, (cpu, passed) in figures.items():
                ratio = cpu / figures["plain"][0]
                print(f"| {language}, {driver} | {kind} | {cpu:.1f} | {ratio:.2f} | {passed:.0f} |", flush=True)


if __name__ == "__main__":
    main()
