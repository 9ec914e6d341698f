"""Wait in the queue for a lock. The server replies as soon as the lock is granted. No waiter polls."""
import os
import threading
import time

import redis

from redis_dlock import DLock

client = redis.Redis(os.environ.get("DLOCK_TEST_HOST", "localhost"), int(os.environ.get("DLOCK_TEST_PORT", "6379")))

served = []


def work(number: int) -> None:
    # Waits without limit. The client's own socket_timeout does not end the wait.
    with client.lock("job:1", timeout=30, lock_class=DLock):
        served.append(number)


def in_queue() -> int:
    info = client.execute_command("DLOCK.INFO", "job:1")
    # A map in RESP3. In RESP2 a list of names and values, in which `waiters` is the sixth pair.
    return int(info[b"waiters"] if isinstance(info, dict) else info[11])


holder = client.lock("job:1", timeout=30, lock_class=DLock)
holder.acquire()
threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
# Each thread begins to wait after the one before it, so that the order of the queue is known.
for place, thread in enumerate(threads):
    thread.start()
    while in_queue() <= place:
        time.sleep(0.001)

# With a limit, in seconds. The lock stays held, so the call takes all of that time.
print(client.lock("job:1", timeout=30, lock_class=DLock).acquire(blocking_timeout=0.1))  # prints: False

holder.release()
for thread in threads:
    thread.join()
print(served)  # prints: [0, 1, 2, 3, 4]
