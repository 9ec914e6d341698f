"""The programs in `examples/` and in the README run, and a type checker accepts them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis

HERE = Path(__file__).parents[1]
DOCS = HERE.parents[1] / "docs"
# The README marks complete programs as `python`, and parts of programs as `py`.
BLOCKS = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), flags=re.DOTALL)
# The lines that make a program of a part.
BEFORE = "import redis\nfrom redis_dlock import DLock\n\nclient = redis.Redis()\n"
HOST, PORT = os.environ["DLOCK_TEST_HOST"], os.environ["DLOCK_TEST_PORT"]


def run(*words: str, cwd: Path = HERE) -> str:
    """Runs a program, which must succeed, and returns what it prints."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_worker_loses_no_update_and_leaves_no_key(client: redis.Redis) -> None:
    assert run(sys.executable, "examples/worker.py", HOST, PORT) == "balances: [6, 6, 6, 6]\n"
    assert client.dbsize() == 0


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_program_of_the_readme(client: redis.Redis, tmp_path: Path, number: int) -> None:
    program = BLOCKS[number].replace("Redis()", f"Redis(host={HOST!r}, port={PORT})")
    assert program != BLOCKS[number], "the program makes no client"
    (tmp_path / "program.py").write_text(program)
    run(sys.executable, "-W", "error", "program.py", cwd=tmp_path)
    assert client.keys("*") == []


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with every example in Python of the READMEs and of the documentation."""
    directory = tmp_path_factory.mktemp("examples")
    for page in (HERE / "README.md", DOCS / "migration.md", DOCS / "recipes/python/README.md"):
        blocks = re.findall(r"```(python|py)\n(.*?)```", page.read_text(), flags=re.DOTALL)
        assert blocks, page
        for number, (kind, block) in enumerate(blocks):
            before = BEFORE if kind == "py" and "client" in block and "client =" not in block else ""
            (directory / f"{page.parent.name}_{page.stem.lower()}_{number}.py").write_text(before + block)
    shutil.copy(HERE / "examples/worker.py", directory)
    return directory


def test_mypy_accepts_the_examples(sources: Path, tmp_path: Path) -> None:
    for source in sorted(sources.glob("*.py")):
        # Each example is checked alone, because two may define the same names.
        run(sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "--ignore-missing-imports", str(source))


def test_pyright_accepts_the_examples(sources: Path) -> None:
    pyright = shutil.which("pyright", path=os.environ.get("DLOCK_PYRIGHT"))
    assert pyright is not None, "DLOCK_PYRIGHT is the directory that has it: tests/clients/python.sh sets it"
    print(run(pyright, "--pythonpath", sys.executable, str(sources)))
