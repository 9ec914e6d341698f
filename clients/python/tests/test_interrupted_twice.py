"""Interrupts the first use of a client wherever Python runs signal handlers, and once more during the clean-up. Nothing
is held afterwards, no loss is reported, and the next lock is as good as any.

DLOCK_LINES=1 interrupts at each place, which takes a minute. The default is every 7th place, from a random one on.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import redis

import redis_dlock
from kit import address, info, soon
from redis_dlock import redis_py, runs

PACKAGE = redis_dlock.__file__.removesuffix("__init__.py")
STEP = int(os.environ.get("DLOCK_LINES", "7"))
# The second interrupt comes at most this number of places after the first one.
CLEANUP = 40


class Interrupted(BaseException):
    """Stands for `KeyboardInterrupt`."""


class Places:
    """Interrupts at some of the places where Python runs signal handlers: when a function begins, and after a call of a
    built-in one. Python removes the profile hook when it raises; the trace hook sets it again."""

    def __init__(self, numbers: set[int]) -> None:
        self._numbers = numbers
        self.seen = self.raised = 0
        self.where: list[str] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Interrupts the block at these places. Swallows the interrupt."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        sys.setprofile(self._profile)
        try:
            yield
        except Interrupted:
            pass
        finally:
            sys.setprofile(None)
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if sys.getprofile() is None:
            sys.setprofile(self._profile)
        return self._trace

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith(PACKAGE) or _of_collection(frame):
            return
        if event == "call" and frame.f_code.co_name == "__exit__":
            return  # No program can handle an interrupt between the body of a `with` and its `__exit__`.
        self.seen += 1
        if self.seen in self._numbers:
            self.raised += 1
            self.where.append(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}")
            raise Interrupted


def _of_collection(frame: FrameType | None) -> bool:
    """Returns whether the end of an object runs this code (`__del__`, a weak reference, a generator). Python reports an
    exception there, and goes on."""
    while frame is not None:
        if frame.f_code.co_name in ("__del__", "<genexpr>") or frame.f_code.co_filename.endswith(("weakref.py", "_weakrefset.py")):
            return True
        frame = frame.f_back
    return False


def _acquired() -> None:
    """Ends the interrupts: the test is about what happens until the lock is acquired."""
    sys.settrace(None)
    sys.setprofile(None)


def _lock(client: redis.Redis, **settings: Any) -> Callable[[Any], None]:
    def play(lost: Any) -> None:
        with redis_dlock.DLock(client, "job", on_lost=lost, **settings):
            _acquired()

    return play


def _reentrant(client: redis.Redis) -> Callable[[Any], None]:
    def play(lost: Any) -> None:
        with redis_dlock.DLock(client, "job", timeout=600, reentrant=True) as lock:
            with lock:
                _acquired()

    return play


def _semaphore(client: redis.Redis) -> Callable[[Any], None]:
    semaphore = redis_dlock.DSemaphore(client, "job", 2)

    def play(lost: Any) -> None:
        if semaphore.acquire():
            _acquired()
            semaphore.release()

    return play


def _decorated(client: redis.Redis) -> Callable[[Any], None]:
    @redis_dlock.locked(client, "job", timeout=600)
    def work() -> None:
        _acquired()

    return lambda lost: work()


KINDS: dict[str, Callable[[redis.Redis], Callable[[Any], None]]] = {
    "lease": lambda client: _lock(client, timeout=600),
    "renewed": lambda client: _lock(client, timeout=600, auto_renewal=True),
    "connection": lambda client: _lock(client),
    "reentrant": _reentrant,
    "semaphore": _semaphore,
    "decorated": _decorated,
}


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_next_lock_is_good(client: redis.Redis, kind: str, twice: bool) -> None:
    _play(client, kind, twice, lambda its: KINDS[kind](its))


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_a_session_keeps_no_lock_that_nobody_has(client: redis.Redis, twice: bool) -> None:
    with redis.Redis(**address()) as other, redis_dlock.Session(other, timeout=600) as session:
        def make(its: redis.Redis) -> Callable[[Any], None]:
            def play(lost: Any) -> None:
                with redis_dlock.DLock(other, "job", session=session, on_lost=lost):
                    _acquired()

            return play

        _play(client, "session", twice, make)
        assert not session._bindings, "the session keeps a lock that nobody has"


def _play(
    client: redis.Redis, kind: str, twice: bool, make: Callable[[redis.Redis], Callable[[Any], None]]
) -> None:
    """Plays the same again and again, interrupted at a later place each time, until it ends before that place."""
    lost: list[Exception] = []
    number, played = random.randint(1, STEP), 0
    while True:
        # With so few connections, one that is not given back is missed.
        with redis.Redis(**address(), max_connections=2) as its:
            places = Places({number, number + random.randint(1, CLEANUP)} if twice else {number})
            play = make(its)
            with places.watched():
                play(lost.append)
            said = f"{kind}, interrupted at {places.where}"
            assert runs.RUNNING.get(None) is None, said
            _nothing_left(client, said)
            assert not redis_py.Crowd._present.get(its.connection_pool), said
            # The next lock is taken by a new thread: this one could enter a `threading.RLock` that was left held.
            after = threading.Thread(target=_next, args=(its, make(its), lost))
            after.start()
            after.join(10)
            assert not after.is_alive(), said
            _nothing_left(client, f"{said}, after the next one")
            assert not lost, said
        if not places.raised:
            break
        number, played = number + STEP, played + 1
    assert played > 1


def _next(its: redis.Redis, play: Callable[[Any], None], lost: list[Exception]) -> None:
    try:
        with redis_dlock.DLock(its, "next", timeout=60, auto_renewal=True) as lock:
            assert lock.remaining > 0
        play(lost.append)
    except Exception as error:  # noqa: BLE001 - the test raises it
        lost.append(error)


def _nothing_left(client: redis.Redis, said: str) -> None:
    soon(f"nothing is left: {said}", lambda: not info(client, "job"))
