"""An interrupt at any line of an acquisition leaves no hold, even if the pool has one connection only."""

from __future__ import annotations

import linecache
import sys
from types import FrameType
from typing import Any

import pytest
import redis

import redis_dlock
from kit import address, info, soon

PACKAGE = redis_dlock.__file__.removesuffix("__init__.py")
# The functions that are not interrupted: those of the cleanup after an acquisition, and of objects that are collected.
CLEARING = {
    "give_up", "owes", "abandon", "_forget", "end", "done", "keeps", "close", "undo", "end_of_sending", "forget",
    "__del__", "_let_go", "stop",
}


class Interrupted(BaseException):
    """Stands for `KeyboardInterrupt`."""


class At:
    """A trace function that interrupts at the n-th line that is run in the package."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE) or frame.f_code.co_name in CLEARING:
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and not self._clearing(frame) and not _is_a_mere_return(frame):
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise Interrupted
        return self._line

    def _clearing(self, frame: FrameType | None) -> bool:
        """Returns whether one of the functions in CLEARING runs."""
        while frame is not None:
            if frame.f_code.co_name in CLEARING:
                return True
            frame = frame.f_back
        return False


def _is_a_mere_return(frame: FrameType) -> bool:
    """Returns whether the line only returns True. Python runs signal handlers between calls and at jumps, so no
    interrupt comes between this line and the caller."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() == "return True"


# A lease that is longer than `soon` waits, so that no hold ends with its lease. None: bound to its connection.
@pytest.mark.parametrize("timeout", [600, None])
@pytest.mark.parametrize("held", [False, True], ids=["free", "after a wait"])
def test_an_interrupt_at_any_line_leaves_no_hold(client: redis.Redis, timeout: float | None, held: bool) -> None:
    interrupted = 0
    with redis.Redis(**address(), max_connections=1) as own:
        own.ping()
        for number in range(1, 1000):
            if held:
                _hold_for_a_moment(client)
            lock = redis_dlock.DLock(own, "job", timeout=timeout)
            if not _interrupted(lock, At(number)):
                lock.release()
                break
            interrupted += 1
            soon(f"nothing is left after line {number}", lambda: not info(client, "job"))
            # An interrupt in redis-py's own code may keep the connection from its pool; that is not the lock's doing.
            own.connection_pool.reset()
    # A trace function that does not work interrupts nothing.
    assert interrupted > 30


def _hold_for_a_moment(client: redis.Redis) -> None:
    """Takes the lock for 20 ms, so that the next acquisition has to wait."""
    holder = redis_dlock.DLock(client, "job", timeout=0.02)
    assert holder.acquire()


def _interrupted(lock: redis_dlock.DLock, at: At) -> bool:
    before = sys.gettrace()
    sys.settrace(at)
    try:
        assert lock.acquire()
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False
