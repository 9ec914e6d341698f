"""The modules for threads that differ from those for asyncio only in `await` are written by a script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_modules_are_as_the_script_writes_them() -> None:
    words = [sys.executable, str(ROOT / "scripts/python-threads"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
