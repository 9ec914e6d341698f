"""Many read, or one writes. A reader becomes the writer, and goes back to reading."""
import os

import redis

from redis_dlock import DLock

client = redis.Redis(os.environ.get("DLOCK_TEST_HOST", "localhost"), int(os.environ.get("DLOCK_TEST_PORT", "6379")))

reader = DLock(client, "doc:1", mode="read", timeout=30)
other = DLock(client, "doc:1", mode="read", timeout=30)
writer = DLock(client, "doc:1", mode="write", timeout=30)

with reader, other:
    print("writing:", writer.acquire(blocking=False))  # prints: writing: False
with writer:
    print("reading:", reader.acquire(blocking=False))  # prints: reading: False

with reader:
    # The only reader gets in at once. With other readers, it would wait at the front of the queue. Use the reader's
    # owner: redis-py calls it `token`. It is not the fencing token.
    print("upgraded:", writer.acquire(token=reader.owner))  # prints: upgraded: True
    writer.release()
    print("reading on:", reader.owned())  # prints: reading on: True

# Each re-entry needs its own release.
again = DLock(client, "doc:1", mode="write", timeout=30, reentrant=True)
with again:
    with again:
        pass
    print("still writing:", again.owned())  # prints: still writing: True
