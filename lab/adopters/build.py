"""Builds the programs: each with the copy of its package that ../chaos-clients makes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from prepare import TOP, go, prepare, run

HERE = Path(__file__).parent / "programs"


def build(languages: set[str]) -> Path:
    """Makes the programs of these languages, and returns where they are."""
    out = TOP / "target/adopters"
    prepare(out, {"python" if language == "asyncio" else language for language in languages}, None)
    for file in HERE.iterdir():
        shutil.copy(file, out)
    if "java" in languages:
        classes = str(out / "java")
        run("javac", "--release", "11", "-nowarn", "-d", classes, "-cp", classes, str(out / "Adopter.java"))
    if "go" in languages:
        folder = out / "clients/go/internal/adopter"
        folder.mkdir(exist_ok=True)
        shutil.copy(HERE / "adopter.go", folder / "main.go")
        go(out, "adopter", "go-adopter")
    if "rust" in languages:
        target = Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target"))
        run("cargo", "build", "--locked", "--quiet", "--package", "dlock-chaos-client")
        shutil.copy(target / "debug/dlock-adopter", out / "rust-adopter")
    return out
