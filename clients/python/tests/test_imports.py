"""The modules of the package import each other in one direction only: each can be read with nothing but those below it."""

import ast
from pathlib import Path

import redis_dlock

SOURCES = Path(redis_dlock.__file__).parent


def _imports(source: Path) -> set[str]:
    """Returns the modules of the package that one imports, for types only or within a function, too."""
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
