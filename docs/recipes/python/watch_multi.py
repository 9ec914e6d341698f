"""A transaction that is executed only if the lock is still held: check and write are one step."""
import os

import redis

from redis_dlock import DLock

client = redis.Redis(os.environ.get("DLOCK_TEST_HOST", "localhost"), int(os.environ.get("DLOCK_TEST_PORT", "6379")))

def write(fence: int, balance: int) -> bool:
    """False: the lock is lost, so nothing was written."""
    with client.pipeline() as transaction:
        try:
            # From here on, EXEC fails if another owner gets the lock, or it is released.
            transaction.watch("account:1:lock")
            if transaction.execute_command("DLOCK.CHECK", "account:1:lock", fence) is None:
                return False
            transaction.multi()
            transaction.set("account:1", balance)
            transaction.execute()
            return True
        except redis.WatchError:
            return False


lock = client.lock("account:1:lock", timeout=30, lock_class=DLock)
lock.acquire()
fence = lock.token
print("held:", write(fence, 100))  # prints: held: True

# The lease ends, and the next owner gets the lock.
lock.extend(0.003, replace_ttl=True)
other = client.lock("account:1:lock", timeout=30, lock_class=DLock)
other.acquire()
print("lost:", write(fence, 200))  # prints: lost: False
print(client.get("account:1"))  # prints: b'100'

# The lock is lost between the check and the write: EXEC writes nothing.
with client.pipeline() as transaction:
    transaction.watch("account:1:lock")
    print(transaction.execute_command("DLOCK.CHECK", "account:1:lock", other.token) > 0)  # prints: True
    other.release()
    transaction.multi()
    transaction.set("account:1", 300)
    try:
        transaction.execute()
    except redis.WatchError:
        print("nothing was written")  # prints: nothing was written
