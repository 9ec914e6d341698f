"""A lock server in memory for tests of users: `redis_dlock.testing`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import redis

from redis_dlock import DLock, LockError
from redis_dlock.testing import LockServer


def test_a_lock_without_redis() -> None:
    """The test moves the clock of the server on, so it need not wait for the end of a lease."""
    with LockServer() as server:
        client = server.client()
        lock = DLock(client, "job", timeout=60)
        assert lock.acquire(blocking=False)
        other = DLock(client, "job", timeout=60)
        assert not other.acquire(blocking=False)
        server.advance(61)
        assert other.acquire(blocking=False)
        assert other.token is not None and lock.token is not None and other.token > lock.token
        other.release()


def test_a_missing_command_is_an_error() -> None:
    """The error names the variable that leads to the command."""
    with pytest.raises(FileNotFoundError, match="DLOCK_COMMAND"):
        LockServer(command="no-such-command")


def test_wrong_options_are_an_error() -> None:
    """The error for a server that does not start names its exit code."""
    with pytest.raises(RuntimeError, match="code 64"):
        LockServer("--no-such-option")


def test_a_command_that_never_listens_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start has a time limit, after which the command is killed."""
    command = tmp_path / "dlock"
    command.write_text("#!/bin/sh\nexec sleep 60\n")
    command.chmod(0o755)
    monkeypatch.setattr("redis_dlock.testing._START", 0.2)
    with pytest.raises(RuntimeError, match="code -9"):
        LockServer(command=str(command))


def test_a_server_that_nobody_closes_ends_with_its_program() -> None:
    program = "from redis_dlock.testing import LockServer; server = LockServer(); print(server.port)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    with pytest.raises(redis.ConnectionError):
        redis.Redis(port=int(done.stdout)).ping()


def test_the_fixture_of_pytest_gives_a_server(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["redis_dlock.testing"]\n')
    (tmp_path / "test_mine.py").write_text(
        "def test_mine(dlock_server):\n    assert dlock_server.client().ping()\n    assert dlock_server.url\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_lease_that_the_clock_has_ended_is_lost() -> None:
    """The end of the block raises the error."""
    with LockServer() as server, pytest.raises(LockError):
        with DLock(server.client(), "job", timeout=30):
            server.advance(31)
