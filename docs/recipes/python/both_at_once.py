"""Migration while old and new programs run side by side, without two holders at any time."""

import os
import threading
import time
from contextlib import AbstractContextManager, ExitStack

import redis
import redis.lock

from redis_dlock import DLock

ADDRESS = {"host": os.environ.get("DLOCK_TEST_HOST", "localhost"), "port": int(os.environ.get("DLOCK_TEST_PORT", "6379"))}


def before(client: redis.Redis) -> AbstractContextManager[object]:
    """The old lock: a string that is set with NX, and polled."""
    return client.lock("job:1", timeout=30, sleep=0.005, lock_class=redis.lock.Lock)


def after(client: redis.Redis) -> AbstractContextManager[object]:
    """A name for both: old and new programs exclude each other. For old locks that are strings."""
    return client.lock("job:1", timeout=30, sleep=0.005, lock_class=DLock)


def both(client: redis.Redis) -> AbstractContextManager[object]:
    """Two names. A program in the transition acquires both, the old lock first. For any kind of old lock."""
    locks = ExitStack()
    locks.enter_context(before(client))
    locks.enter_context(only_new(client))
    return locks


def only_new(client: redis.Redis) -> AbstractContextManager[object]:
    """The new lock alone, when no old program is left."""
    return client.lock("new:job:1", timeout=30, lock_class=DLock)


inside = 0
most = 0


def work(lock, rounds: int = 5) -> None:
    """Counts how many threads hold the lock at the same time."""
    global inside, most
    with redis.Redis(**ADDRESS) as client:
        for _ in range(rounds):
            with lock(client):
                inside += 1
                most = max(most, inside)
                time.sleep(0.002)
                inside -= 1
            time.sleep(0.005)


def together(*kinds) -> int:
    """Runs two threads of each kind. Returns the largest number that held the lock at the same time."""
    global most
    most = 0
    threads = [threading.Thread(target=work, args=(kind,)) for kind in kinds for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return most


# In one step, if the old lock is a string.
print("before and after:", together(before, after))  # prints: before and after: 1

# In two steps, if it is anything else: first every program acquires both, then none acquires the old one.
print("before and both:", together(before, both))  # prints: before and both: 1
print("both and new:", together(both, only_new))  # prints: both and new: 1

# Never run an old program beside one that acquires only the new lock. Nothing keeps them apart.
with redis.Redis(**ADDRESS) as client, before(client):
    print("new beside before:", client.lock("new:job:1", timeout=1, lock_class=DLock).acquire(blocking=False))  # prints: new beside before: True
