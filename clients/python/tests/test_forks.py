"""A forked child has none of its parent's sessions, and ends none of the parent's locks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys

import redis

import redis_dlock
from kit import info, soon


def _in_child(lock: redis_dlock.DLock, answers: multiprocessing.queues.SimpleQueue[object]) -> None:
    """Tells whether the child owns its parent's lock, and how a release of that lock ends."""
    answers.put(lock.owned())
    try:
        lock.release()
        answers.put("released")
    except redis_dlock.LockError as error:
        answers.put(type(error).__name__)


def test_a_child_does_not_release_the_session_of_its_parent(client: redis.Redis) -> None:
    fork = multiprocessing.get_context("fork")
    lock = redis_dlock.DLock(client, "job", thread_local=False)
    with lock:
        answers = fork.SimpleQueue()
        child = fork.Process(target=_in_child, args=(lock, answers))
        child.start()
        child.join()
        assert [answers.get(), answers.get()] == [False, "LockError"]
        assert info(client, "job")["token"] == lock.token
        assert lock.owned()
    assert not info(client, "job")


# A program with a lock and a child that outlives it.
FORK_AND_DIE = """
import os, sys, time, redis, redis_dlock
client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))
lock = redis_dlock.DLock(client, "job", thread_local=False)
lock.acquire()
time.sleep(0.3)  # time for the thread that watches the connection of the lock
if os.fork() == 0:
    time.sleep(90)
print("held", flush=True)
time.sleep(60)
"""


def test_a_child_does_not_keep_the_session_of_a_dead_parent(client: redis.Redis) -> None:
    command = [sys.executable, "-c", FORK_AND_DIE, os.environ["DLOCK_TEST_HOST"], os.environ["DLOCK_TEST_PORT"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"held\n"
            process.send_signal(signal.SIGKILL)
            process.wait()
            soon("the lock is free, though the child lives", lambda: not info(client, "job"))
        finally:
            os.killpg(process.pid, signal.SIGKILL)


# A program that forks a child in the block of a lock of each kind. The child leaves the block by an exit. At the end, a
# child tries to enter its parent's reentrant lock again.
FORK_IN_BLOCKS = """
import os, sys, redis, redis_dlock
host, port = sys.argv[1], int(sys.argv[2])
client = redis.Redis(host=host, port=port)
lock = redis_dlock.DLock
kinds = {
    "lease": lock(client, "lease", timeout=30),
    "shared object": lock(client, "shared object", timeout=30, thread_local=False),
    "renewed": lock(client, "renewed", timeout=30, auto_renewal=True),
    "reentrant": lock(client, "reentrant", timeout=30, reentrant=True),
    "session": lock(client, "session"),
    "permit": redis_dlock.DSemaphore(client, "permit", 3, timeout=30),
    "several": redis_dlock.acquire_all(client, ["several", "another"], timeout=30),
}

def fork(name):
    if os.fork() == 0:
        sys.exit(0)
    _, status = os.wait()
    if status != 0 or not client.exists(name):
        print(name, "is gone, status", status, flush=True)

def play(name, kind):
    with kind:
        fork(name)

for name, kind in kinds.items():
    play(name, kind)

again = kinds["reentrant"]
again.acquire()
if os.fork() == 0:
    os._exit(again.acquire(blocking=False))
print("entered again" if os.wait()[1] else "done")
again.release()
"""


def test_a_child_that_leaves_a_block_ends_no_lock_of_its_parent_and_enters_none(client: redis.Redis) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK_IN_BLOCKS, os.environ["DLOCK_TEST_HOST"], os.environ["DLOCK_TEST_PORT"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
    assert client.dbsize() == 0
