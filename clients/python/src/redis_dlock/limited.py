"""Work with a time limit, in a thread. Not even a name server, Sentinel or a handshake exceeds it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from redis.exceptions import ConnectionError

T = TypeVar("T")


def begin(thread: threading.Thread) -> None:
    """Starts a thread. Raises `RuntimeError` if the interpreter begins none any more: Python 3.12.0 to 3.12.2 refuse
    threads in `atexit` handlers, and in threads that outlive the main one; later versions while the interpreter removes
    its objects. Python before 3.12 would then wait for the first step of the thread, which never comes."""
    if sys.is_finalizing():
        raise RuntimeError("no thread begins while the interpreter ends")
    thread.start()


class Work(Generic[T]):
    """Work that goes on in a daemon thread. Its starter takes the outcome, abandons it, or does not care about it."""

    def __init__(self, work: Callable[[], T], late: Callable[[T], Any] | None = None) -> None:
        """`late` gets the result of work that was abandoned."""
        self._work, self._late = work, late
        self._result: Any = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        # The end of the work and `abandon` both acquire it. The second of them passes the result on to `late`.
        self._decided = threading.Lock()

    def start(self) -> None:
        """Starts the thread. If none begins any more, does the work here."""
        if not self.begins():
            self._run()

    def begins(self) -> bool:
        """Starts the thread. Returns False if none begins any more."""
        try:
            begin(threading.Thread(target=self._run, name="redis_dlock", daemon=True))
        except RuntimeError:
            return False
        return True

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - its starter raises it
            self._error = error
        abandoned = not self._decided.acquire(blocking=False)
        self._done.set()
        if abandoned:
            self._clear()

    def _clear(self) -> None:
        if self._error is None and self._late is not None:
            self._late(self._result)

    def wait(self, until: float) -> bool:
        """Waits until `until`, a time of `time.monotonic()`, and returns whether the work is done."""
        return self._done.wait(max(0.0, until - time.monotonic()))

    def outcome(self) -> T:
        """Returns the result of work that is done, or raises its error."""
        if self._error is not None:
            raise self._error
        result: T = self._result
        return result

    def abandon(self) -> None:
        """Nobody will ask for the outcome. If the work is done, passes its result on to `late` at once."""
        if not self._decided.acquire(blocking=False):
            self._done.wait()
            self._clear()

    @property
    def goes_on(self) -> bool:
        """Returns whether the work is not done."""
        return not self._done.is_set()


def limited(
    work: Callable[[], T],
    until: float,
    late: Callable[[T], Any] | None = None,
    overdue: Callable[[Work[T]], Any] = lambda work: None,
) -> T:
    """Returns the result of the work, or raises its error. Raises `ConnectionError` if the work is not done by `until`;
    `overdue` then gets the work, and `late` its result."""
    under_way = Work(work, late)
    try:
        under_way.start()
        if not under_way.wait(until):
            overdue(under_way)
            raise ConnectionError("no connection in time")
        return under_way.outcome()
    except BaseException:
        under_way.abandon()
        raise
