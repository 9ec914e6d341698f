#!/usr/bin/env python3
"""Measures how much CPU time an acquisition with its release costs a client, beside a plain lock on the same driver.

    run.py [--pairs 20000] [--rounds 3] [--only python,node] [--keep]

DLOCK_SERVER and DLOCK_MODULE name the server. A program of each language is called with PORT KIND PAIRS: it acquires
and releases that many times, after some to warm up, and prints the microseconds of its processor and those that have
passed. Kinds: `plain`, `lease` (30 s, not renewed), `kept` (renewed). The kinds take turns; each figure is the median
of the rounds, and so is each ratio. A language whose tools are not there, or whose program fails, is left out, with the
reason. `--keep` writes the table of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "tests/suites"))
from servers import Servers  # noqa: E402 - the path comes first

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PAGE = ROOT / "docs/benchmarks.md"
MARKS = ("<!-- packages -->\n", "<!-- end of packages -->")
# Seconds for the build of a language, and for one run of a program.
BUILD, RUN = 600, 120


class Missing(Exception):
    """The tools of a language are not there, or its program fails."""


def rust() -> dict[str, list[str]]:
    run("cargo", "build", "--quiet", "--locked", "--release", "--package", "dlock-pairs")
    return {"redis-rs": [str(TARGET / "release/dlock-pairs")]}


def go() -> dict[str, list[str]]:
    # The build uses the modules that are on this machine already, instead of the network.
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
    # Node.js looks for packages from the folder of the program upwards.
    shutil.copy(ROOT / "clients/node/bench/pairs.mjs", home)
    own = ROOT / "target/languages/node/bin/node"
    return {"ioredis": [str(own) if own.exists() else "node", str(home / "pairs.mjs")]}


def java() -> dict[str, list[str]]:
    adapters, home = ROOT / "clients/java/adapters", ROOT / "target/java/pairs"
    home.mkdir(parents=True, exist_ok=True)
    pom = (adapters / "jedis/pom.xml").read_text()
    # Maven's repositories have neither the parent nor our own package.
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


# A line for each language: its name in the table, the function that builds its programs (by driver), and the kinds that
# are measured beside the plain lock. A kind that begins with `own-` uses the package's own connections.
LANGUAGES: dict[str, tuple[str, Callable[[], dict[str, list[str]]], list[str]]] = {
    "rust": ("Rust", rust, ["lease", "kept"]),
    "python": ("Python", python, ["lease", "kept"]),
    "node": ("Node.js", node, ["lease", "kept"]),
    "java": ("Java", java, ["lease", "kept", "own-lease", "own-kept"]),
    "go": ("Go", go, ["lease", "kept", "own-lease", "own-kept"]),
    "ruby": ("Ruby", ruby, ["lease", "kept"]),
    "php": ("PHP", php, ["lease"]),
}


class Cost(NamedTuple):
    """The cost of a pair: µs of CPU time, µs of elapsed time, and its CPU time divided by that of the plain lock."""

    cpu: float
    passed: float
    ratio: float


def run(*words: str, **more: object) -> None:
    if shutil.which(words[0], path=os.defpath + ":" + os.environ["PATH"]) is None and not (ROOT / words[0]).exists():
        raise Missing(f"{words[0]} is not installed")
    done = within(BUILD, words, **{"cwd": ROOT, **more})
    if done.returncode:
        raise Missing((done.stderr or done.stdout or words[0]).strip().splitlines()[-1])


def said(script: Path) -> str:
    done = within(BUILD, [str(script)], cwd=ROOT)
    if done.returncode:
        raise Missing(done.stdout.strip() or done.stderr.strip())
    return done.stdout.strip()


def within(seconds: int, words: Sequence[str], **more: object) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, **more, capture_output=True, text=True, timeout=seconds)  # type: ignore[call-overload]
    except subprocess.TimeoutExpired as over:
        raise Missing(f"{' '.join(words)}: not done within {seconds} s") from over


def measure(port: int, program: list[str], kinds: list[str], pairs: int, rounds: int) -> dict[str, Cost]:
    seen: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            done = within(RUN, [*program, str(port), kind, str(pairs)])
            if done.returncode:
                raise Missing(f"{kind}: {(done.stderr or done.stdout).strip()[-300:]}")
            cpu, passed = re.findall(r"\d+", done.stdout)[-2:]
            seen[kind].append((int(cpu) / pairs, int(passed) / pairs))
    return {kind: cost(figures, seen["plain"]) for kind, figures in seen.items()}


def cost(figures: list[tuple[float, float]], plain: list[tuple[float, float]]) -> Cost:
    median = statistics.median
    # By a coarse clock, a short run of the plain lock may take no time.
    ratios = [own / other if other else math.nan for (own, _), (other, _) in zip(figures, plain)]
    return Cost(median(cpu for cpu, _ in figures), median(passed for _, passed in figures), median(ratios))


def rows(language: str, driver: str, costs: Mapping[str, Cost]) -> list[str]:
    """Returns the rows of a driver: one, and another one for the package's own connections if they were measured."""
    cells = {kind: f"{it.cpu:.1f} ({it.ratio:.2f})" if kind != "plain" else f"{it.cpu:.1f}" for kind, it in costs.items()}
    labels = {"": f"{language}, {driver}", "own-": f"{language}, own connections"}
    lines = []
    for prefix, label in labels.items():
        if f"{prefix}lease" in cells:
            kinds = ["plain" if not prefix else "", f"{prefix}lease", f"{prefix}kept"]
            lines.append(f"| {label} | {' | '.join(cells.get(kind, '–') for kind in kinds)} |")
    return lines


def put(lines: list[str], options: argparse.Namespace) -> None:
    """Writes the table into the page."""
    before, rest = PAGE.read_text().split(MARKS[0])
    _, after = rest.split(MARKS[1])
    when = f"Measured on {date.today()}: {options.rounds} rounds of {options.pairs:,} pairs."
    head = [when, "", "| | plain lock | lease | renewed |", "| --- | --- | --- | --- |"]
    PAGE.write_text("\n".join([before + MARKS[0], *head, *lines, "", MARKS[1]]) + after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(LANGUAGES))
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    lines = []
    print("| language, driver | kind | CPU of a pair, µs | / plain | time of a pair, µs |")
    print("|---|---|--:|--:|--:|", flush=True)
    for language in options.only.split(","):
        label, build, kinds = LANGUAGES[language]
        try:
            for driver, program in build().items():
                with Servers(1) as servers:
                    costs = measure(servers.ports[0], program, ["plain", *kinds], options.pairs, options.rounds)
                for kind, it in costs.items():
                    print(f"| {label}, {driver} | {kind} | {it.cpu:.1f} | {it.ratio:.2f} | {it.passed:.0f} |", flush=True)
                lines += rows(label, driver, costs)
        except Missing as missing:
            print(f"{language} is left out: {missing}", file=sys.stderr)
    if options.keep:
        put(lines, options)


if __name__ == "__main__":
    main()
