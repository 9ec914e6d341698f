"""Locks in programs whose threads are those of eventlet or gevent."""

from __future__ import annotations

import subprocess
import sys

import pytest
import redis

from kit import address, info

# The first lines of the program. They define `green.spawn`, `green.sleep` and `join` for both kinds of green threads.
STARTS = {
    "eventlet": "import eventlet as green; green.monkey_patch()\ndef join(them): [each.wait() for each in them]\n",
    "gevent": "from gevent import monkey; monkey.patch_all()\nimport gevent as green\njoin = green.joinall\n",
}
# Eight green threads at a time take the lock, once for each kind of lease. Then a session outlives its timeout.
PROGRAM = '''
import sys
import redis
from redis_dlock import DLock, Session
client = redis.Redis(port=int(sys.argv[1]))
inside = 0
def work(settings):
    global inside
    with DLock(client, "job", **settings) as lock:
        inside += 1
        assert inside == 1
        green.sleep(0.01)
        assert lock.token
        inside -= 1
for settings in ({}, {"timeout": 5}, {"timeout": 5, "auto_renewal": True}, {"timeout": 5, "session": True}):
    for _ in range(10):
        work(settings)
    join([green.spawn(work, settings) for _ in range(8)])
with Session(client, timeout=0.6) as session, DLock(client, "job", session=session) as lock:
    green.sleep(1.2)
    assert lock.token
print("ok")
'''


@pytest.mark.parametrize("kind", STARTS)
def test_green_threads_exclude_each_other(client: redis.Redis, kind: str) -> None:
    program = STARTS[kind] + PROGRAM
    words = [sys.executable, "-W", "ignore", "-c", program, str(address()["port"])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.strip(), done.stderr.strip()) == ("ok", "")
    assert not info(client, "job")
