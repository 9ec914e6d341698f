"""Hold a lock longer than planned, and notice when it is lost."""
import os

import redis

from redis_dlock import DLock, LockNotOwnedError

client = redis.Redis(os.environ.get("DLOCK_TEST_HOST", "localhost"), int(os.environ.get("DLOCK_TEST_PORT", "6379")))

lock = client.lock("job:1", timeout=60, lock_class=DLock)
lock.acquire()

# Between two pieces of work: the lease now ends in a minute.
lock.reacquire()
print(client.pttl("job:1") > 50_000)  # prints: True
# Adds a minute to the time left.
lock.extend(60)
print(client.pttl("job:1") > 100_000)  # prints: True

# A renewal never brings back a lost lock.
client.delete("job:1")
try:
    lock.reacquire()
except LockNotOwnedError:
    print("lost: stop working")  # prints: lost: stop working
