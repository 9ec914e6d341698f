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
BLOCKS = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), flags=re.DOTALL)
HOST, PORT = os.environ["DLOCK_TEST_HOST"], os.environ["DLOCK_TEST_PORT"]


def run(*words: str, cwd: Path = HERE) -> str:
    """Returns what a program prints."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_worker(client: redis.Redis) -> None:
    assert run(sys.executable, "examples/worker.py", HOST, PORT) == "balances: [6, 6, 6, 6]\n"
    assert client.dbsize() == 0


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_program_of_the_readme(client: redis.Redis, tmp_path: Path, number: int) -> None:
    program = BLOCKS[number].replace("Redis()", f"Redis(host={HOST!r}, port={PORT})")
    assert program != BLOCKS[number], "it makes a client"
    (tmp_path / "program.py").write_text(program)
    run(sys.executable, "-W", "error", "program.py", cwd=tmp_path)
    assert client.keys("*") == []


def test_pyright_accepts_them(tmp_path: Path) -> None:
    pyright = shutil.which("pyright", path=os.environ.get("DLOCK_PYRIGHT"))
    assert pyright is not None, "DLOCK_PYRIGHT is the directory that has it: tests/clients/python.sh sets it"
    for number, block in enumerate(BLOCKS):
        (tmp_path / f"readme_{number}.py").write_text(block)
    shutil.copy(HERE / "examples/worker.py", tmp_path)
    print(run(pyright, "--pythonpath", sys.executable, str(tmp_path)))
