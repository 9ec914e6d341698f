"""Builds the programs, each with a copy of its package, in which a bug may be planted."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]
HERE = Path(__file__).parent
LEFT_OUT = ("node_modules", "__pycache__", "target")


def plants() -> dict[str, tuple[str, str, str, str, str]]:
    """Returns the bugs of planted.txt by name: programs, what chaos has to say of it, file, what is replaced
    and by what."""
    bugs = {}
    for block in (HERE / "planted.txt").read_text().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith("#")]
        if lines:
            name, programs, says, file, *rest = lines
            half = rest.index("=>")
            bugs[name] = programs, says, file, "\n".join(rest[:half]), "\n".join(rest[half + 1:])
    return bugs


def prepare(out: Path, only: set[str], bug: str | None) -> None:
    """Makes the programs whose names have one of the words `only`; all, if there is none."""
    made_of = of(bug) + repr(sorted(only))
    stamp = out / "made-of"
    if stamp.exists() and stamp.read_text() == made_of:
        python(out)
        return
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    shutil.copytree(TOP / "clients", out / "clients", ignore=shutil.ignore_patterns(*LEFT_OUT))
    if bug is not None:
        _, _, file, old, new = plants()[bug]
        source = out / "clients" / file
        text = source.read_text()
        if text.count(old) != 1:
            sys.exit(f"{bug}: {file} has this {text.count(old)} times: {old}")
        source.write_text(text.replace(old, new))
    for file in (HERE / "programs").iterdir():
        shutil.copy(file, out)
    for make, names in MAKERS.items():
        if not only or any(word in name for word in only for name in names):
            make(out)
    stamp.write_text(made_of)


def of(bug: str | None) -> str:
    """Returns a hash of all that the programs are made of."""
    files = [file for folder in (TOP / "clients", TOP / "crates", HERE) for file in sorted(folder.rglob("*"))
             if file.is_file() and not set(file.parts) & set(LEFT_OUT)]
    names = hashlib.sha256(repr(bug).encode())
    for file in files:
        names.update(file.read_bytes())
    return names.hexdigest()


def run(*words: str, cwd: Path = TOP, **more: str) -> str:
    """Runs a command, and returns what it printed."""
    done = subprocess.run(words, cwd=cwd, stdout=subprocess.PIPE, text=True, env={**os.environ, **more})
    if done.returncode:
        sys.exit(f"{words[0]}: {done.stdout or done.returncode}")
    return done.stdout.strip()


def python(out: Path) -> None:
    """Lets Python find the copy of the package before the package that is installed."""
    os.environ["PYTHONPATH"] = str(out / "clients/python/src")
    os.environ["DLOCK_PYTHON"] = run("scripts/python")


def node(out: Path) -> None:
    """Links the drivers that are installed for the tests, and copies the package beside them."""
    modules = Path(run("scripts/node")) / "node_modules"
    (out / "node_modules").mkdir(exist_ok=True)
    for module in modules.iterdir():
        link = out / "node_modules" / module.name
        if module.name not in ("redis-dlock", ".bin", ".package-lock.json") and not link.exists():
            link.symlink_to(module)
    if not (out / "node_modules/redis-dlock").exists():
        shutil.copytree(out / "clients/node", out / "node_modules/redis-dlock")


def java(out: Path) -> None:
    """Compiles the package and the program into one folder of classes."""
    sources = [str(file) for file in (out / "clients/java/src/main").rglob("*.java")]
    run("javac", "--release", "11", "-nowarn", "-d", str(out / "java"), *sources, str(out / "Client.java"))


def go(out: Path, folder: str = "chaos", name: str = "go-client") -> None:
    """Builds the program inside the copy of the package, of whose module it is a part."""
    quiet = {"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    quiet |= {"GOPATH": str(TOP / "target/go"), "GOCACHE": str(TOP / "target/go/cache")}
    run(run("scripts/go"), "build", "-o", str(out / name), f"./internal/{folder}", cwd=out / "clients/go", **quiet)


def rust(out: Path) -> None:
    """Builds the program from the checkout, not from a copy."""
    run("cargo", "build", "--locked", "--quiet", "--package", "dlock-chaos-client")
    target = Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target"))
    shutil.copy(target / "debug/dlock-chaos-client", out / "rust-client")


# Functions that make the programs, with the names in `programs.commands`. The others need no preparation.
MAKERS = {
    python: ("python threads", "python asyncio"),
    node: ("ioredis", "node-redis"),
    java: ("java",),
    go: ("go",),
    rust: ("rust",),
}
