"""A database that rejects the write of an owner that has lost the lock without noticing."""
import os
import sqlite3

import redis

from redis_dlock import DLock

client = redis.Redis(os.environ.get("DLOCK_TEST_HOST", "localhost"), int(os.environ.get("DLOCK_TEST_PORT", "6379")))

database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER NOT NULL)")
database.execute("INSERT INTO report VALUES (1, 'empty', 0)")


def write(body: str, fence: int) -> bool:
    """False: a later owner of the lock has written already, so nothing was changed."""
    with database:
        changed = database.execute(
            "UPDATE report SET body = ?, fence = ? WHERE id = 1 AND fence <= ?", (body, fence, fence)
        )
    return changed.rowcount == 1


slow = client.lock("report:1", timeout=0.2, lock_class=DLock)
slow.acquire()
fence = slow.token
print("slow writes:", write("by slow", fence))  # prints: slow writes: True

# The process is paused for longer than its lease, for example by a garbage collection. The next owner gets the lock.
quick = client.lock("report:1", timeout=30, lock_class=DLock)
quick.acquire()
print("quick writes:", write("by quick", quick.token))  # prints: quick writes: True

# The client continues as if it still held the lock.
print("slow writes:", write("by slow, late", fence))  # prints: slow writes: False
print(database.execute("SELECT body FROM report").fetchone()[0])  # prints: by quick
quick.release()
