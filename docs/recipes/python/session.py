"""Hold a lock until its connection closes, at the latest with the process: no timeout, no thread that renews."""
import os
import subprocess
import sys

import redis

from redis_dlock import DLock

client = redis.Redis(os.environ.get("DLOCK_TEST_HOST", "localhost"), int(os.environ.get("DLOCK_TEST_PORT", "6379")))

holder = """
import os, sys, threading, redis, redis_dlock
client = redis.Redis(os.environ.get("DLOCK_TEST_HOST", "localhost"), int(os.environ.get("DLOCK_TEST_PORT", "6379")))
client.lock("job:1", lock_class=redis_dlock.DLock).acquire()
print("held", flush=True)
threading.Event().wait()
"""
with subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE, text=True) as process:
    print(process.stdout.readline().strip())  # prints: held
    lock = client.lock("job:1", lock_class=DLock)
    print(lock.acquire(blocking_timeout=0.1))  # prints: False

    # The process is killed. Its connection closes, so the server releases its lock.
    process.kill()
    print(lock.acquire(blocking_timeout=20))  # prints: True

# The server renews the lease while the connection is open. Only this lock uses that connection.
print(client.pttl("job:1") > 0)  # prints: True
lock.release()
