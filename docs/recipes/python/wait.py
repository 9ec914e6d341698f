"""Wait in the queue for a lock. The server replies as soon as the lock is free. Nothing polls."""
import os
import threading
import time

import redis

from redis_dlock import DLock

client = redis.Redis(os.environ.get("DLOCK_TEST_HOST", "localhost"), int(os.environ.get("DLOCK_TEST_PORT", "6379")))

served = []


def work(number: int) -> None:
    # Waits without limit. The client's own socket_timeout does not end it.
    with client.lock("job:1", timeout=30, lock_class=DLock):
        served.append(number)


def in_queue() -> int:
    info = client.execute_command("DLOCK.INFO", "job:1")
    return int(info[b"waiters"] if isinstance(info, dict) else info[11])


holder = client.lock("job:1", timeout=30, lock_class=DLock)
holder.acquire()
threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
for place, thread in enumerate(threads):
    thread.start()
    while in_queue() <= place:
        time.sleep(0.001)

# With a limit, in seconds. It is used in full.
print(client.lock("job:1", timeout=30, lock_class=DLock).acquire(blocking_timeout=0.1))  # prints: False

holder.release()
for thread in threads:
    thread.join()
print(served)  # prints: [0, 1, 2, 3, 4]
