"""Hold a lock for as long as this process lives: no timeout, no thread that renews."""
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

    # The process dies without a word. Its connection ends with it, and so does its hold.
    process.kill()
    print(lock.acquire(blocking_timeout=20))  # prints: True

# The server moves the lease on while the connection lives, which is this lock's alone until the release.
print(client.pttl("job:1") > 0)  # prints: True
lock.release()
