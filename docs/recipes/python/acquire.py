"""Acquire a lock for at most 30 seconds, or learn at once that another owner holds it."""
import os

import redis

from redis_dlock import DLock

client = redis.Redis(os.environ.get("DLOCK_TEST_HOST", "localhost"), int(os.environ.get("DLOCK_TEST_PORT", "6379")))

lock = client.lock("job:1", timeout=30, lock_class=DLock)
if lock.acquire(blocking=False):
    print("mine:", lock.owned())  # prints: mine: True
    other = client.lock("job:1", timeout=30, lock_class=DLock)
    print("a second time:", other.acquire(blocking=False))  # prints: a second time: False
    lock.release()
print("taken:", lock.locked())  # prints: taken: False

# Without the package. The owner is any name that no other client uses. The reply is the fencing token or nil.
token = client.execute_command("DLOCK.ACQUIRE", "job:2", "owner-7", "PX", 30_000)
print(isinstance(token, int))  # prints: True
print(client.execute_command("DLOCK.ACQUIRE", "job:2", "owner-8", "PX", 30_000))  # prints: None
print(client.execute_command("DLOCK.RELEASE", "job:2", "owner-7", "TOKEN", token))  # prints: 1
