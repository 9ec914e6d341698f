"""The modules of the package import each other in one direction only: each can be read with nothing but those below it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import redis_dlock

SOURCES = Path(redis_dlock.__file__).parent


def _imports(source: Path) -> set[str]:
    """Returns the modules that a source imports relatively, also for types only or within a function."""
    found = [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.ImportFrom) and node.level == 1]
    names = [[node.module] if node.module else [alias.name for alias in node.names] for node in found]
    return {name for some in names for name in some}


def test_modules_import_each_other_in_one_direction_only() -> None:
    imports = {source.stem: _imports(source) for source in SOURCES.glob("*.py") if source.stem != "__init__"}
    assert len(imports) > 30
    for module in imports:
        seen: set[str] = set()
        ahead = [module]
        while ahead:
            new = imports.get(ahead.pop(), set()) - seen
            seen |= new
            ahead += new
        assert module not in seen, f"{module} imports itself over others"


@pytest.mark.parametrize("client, module", [("redis.cluster", "sync_session"), ("redis.asyncio.cluster", "async_session")])
def test_a_session_of_a_cluster_needs_no_other_import(client: str, module: str) -> None:
    program = f"""
from {client} import RedisCluster
from redis_dlock.{module} import Session
print(type(Session(RedisCluster.__new__(RedisCluster))).__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "ClusterSession\n", done.stderr
