"""Locks while the interpreter ends: in `atexit` handlers, in threads that outlive the main one, in `__del__`."""

from __future__ import annotations

import subprocess
import sys

import pytest
import redis

from kit import address, info

# The interpreter ends objects in any order, and a client that ends closes its connections. One reference more keeps the
# client until the process ends.
PROGRAM = '''
import atexit, ctypes, sys, threading, _thread
import redis
from redis_dlock import DLock, DSemaphore, Session
client = redis.Redis(port=int(sys.argv[1]))
ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
%s
'''
# After `no_threads`, no thread can be started, as in Python 3.12.0 to 3.12.2 from the first `atexit` handler on.
# Handlers run in the reverse order of their registration.
REFUSES = '''
def refuse(*args, **kwargs):
    raise RuntimeError("can't create new thread at interpreter shutdown")
def no_threads():
    threading._start_new_thread = _thread.start_new_thread = refuse
    if hasattr(threading, "_start_joinable_thread"):
        threading._start_joinable_thread = refuse
'''


def run(program: str, port: int) -> tuple[str, str]:
    """Returns what a program prints to standard output and to standard error."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM % program, str(port)], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize(
    "made",
    [
        'DLock(client, "job", timeout=20)', 'DLock(client, "job")', 'DLock(client, "job", timeout=20, auto_renewal=True)',
        'DLock(client, "job", timeout=20, blocking_timeout=5)', 'DSemaphore(client, "job", 1, timeout=20)',
        'DLock(client, "job", timeout=20, replicas_timeout=1)',
    ],
)
@pytest.mark.parametrize("refuses", [False, True], ids=["threads", "no threads"])
def test_in_an_exit_handler(client: redis.Redis, made: str, refuses: bool) -> None:
    starts = f"{REFUSES}\natexit.register(last)\natexit.register(no_threads)" if refuses else "atexit.register(last)"
    program = f'def last():\n    with {made}:\n        print("ok", flush=True)\n{starts}'
    out, error = run(program, address()["port"])
    assert (out, error) == ("ok", "")
    assert not info(client, "job")


def test_a_wait_in_an_exit_handler(client: redis.Redis) -> None:
    client.execute_command("DLOCK.ACQUIRE", "job", "other", "PX", 700)  # type: ignore[no-untyped-call]
    program = (
        'def last():\n    with DLock(client, "job", timeout=20):\n        print("ok")\n'
        f"{REFUSES}\natexit.register(last)\natexit.register(no_threads)"
    )
    assert run(program, address()["port"]) == ("ok", "")


def test_in_a_thread_that_outlives_the_main_one(client: redis.Redis) -> None:
    program = (
        f'{REFUSES}\ndef work():\n    threading.main_thread().join()\n    no_threads()\n'
        '    with DLock(client, "job", timeout=20):\n        print("ok")\nthreading.Thread(target=work).start()'
    )
    assert run(program, address()["port"]) == ("ok", "")


@pytest.mark.parametrize("settings", ["timeout=20", "", "timeout=20, auto_renewal=True"])
def test_a_release_when_the_object_goes(client: redis.Redis, settings: str) -> None:
    """The interpreter calls `__del__` of a global object last. The release uses a connection that is open already."""
    program = (
        "client.ping()\nclass Holder:\n    def __init__(self):\n"
        f'        self.lock = DLock(client, "job", {settings})\n        assert self.lock.acquire()\n'
        '    def __del__(self):\n        self.lock.release()\n        print("ok")\nholder = Holder()'
    )
    assert run(program, address()["port"]) == ("ok", "")
    assert not info(client, "job")


@pytest.mark.parametrize(
    "settings",
    ["timeout=20", "", "timeout=20, auto_renewal=True", "timeout=20, blocking_timeout=5", "timeout=20, replicas_timeout=1"],
)
@pytest.mark.parametrize("acquires", [False, True], ids=["release", "acquire"])
def test_no_thread_is_waited_for_when_the_object_goes(client: redis.Redis, settings: str, acquires: bool) -> None:
    """The call in `__del__` finds no open connection.

    In `__del__`, a thread can be started but takes no step (Python before 3.12), or cannot be started (later versions).
    redis-py 8 does not connect there. So the call may fail, but the program ends.
    """
    first, last = ("pass", "assert self.lock.acquire()") if acquires else ("assert self.lock.acquire()", "pass")
    program = (
        "class Holder:\n    def __init__(self):\n"
        f'        self.lock = DLock(client, "job", {settings})\n        {first}\n'
        "    def __del__(self):\n        self.lock.redis.connection_pool.disconnect()\n        try:\n"
        f'            {last}\n            self.lock.release()\n        finally:\n            print("ended")\n'
        "holder = Holder()"
    )
    out, _ = run(program, address()["port"])
    assert out == "ended"


def test_a_thread_that_stopped_in_a_change_keeps_nobody_waiting(client: redis.Redis) -> None:
    """A daemon thread stops wherever it is when the interpreter ends, and keeps what it has locked. In place of such a
    thread, the program locks the guard."""
    program = (
        "client.ping()\nclass Holder:\n    def __init__(self):\n"
        '        self.lock = DLock(client, "job", timeout=20, auto_renewal=True)\n        assert self.lock.acquire()\n'
        "    def __del__(self):\n        self.lock.local.hold.validity._guard.acquire()\n"
        '        self.lock.release()\n        print("ok")\nholder = Holder()'
    )
    assert run(program, address()["port"]) == ("ok", "")
    assert not info(client, "job")


def test_a_session_is_closed_when_the_object_goes(client: redis.Redis) -> None:
    program = (
        "client.ping()\nclass Holder:\n    def __init__(self):\n"
        "        self.session = Session(client, timeout=20).open()\n"
        '        self.lock = DLock(client, "job", session=self.session)\n'
        "        assert self.lock.acquire()\n"
        '    def __del__(self):\n        self.session.close()\n        print("ok")\nholder = Holder()'
    )
    assert run(program, address()["port"]) == ("ok", "")
    assert not info(client, "job")
