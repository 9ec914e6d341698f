"""Keep a lock for longer than was thought, and notice when it is lost."""
import os

import redis

from redis_dlock import DLock, LockNotOwnedError

client = redis.Redis(os.environ.get("DLOCK_TEST_HOST", "localhost"), int(os.environ.get("DLOCK_TEST_PORT", "6379")))

lock = client.lock("job:1", timeout=60, lock_class=DLock)
lock.acquire()

# Between two pieces of work: a minute from now on.
lock.reacquire()
print(client.pttl("job:1") > 50_000)  # prints: True
# A minute more than there is.
lock.extend(60)
print(client.pttl("job:1") > 100_000)  # prints: True

# Renewing never brings back what was lost.
client.delete("job:1")
try:
    lock.reacquire()
except LockNotOwnedError:
    print("lost: stop working")  # prints: lost: stop working
