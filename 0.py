import redis
from redis_dlock import DLock

client = redis.Redis()
with DLock(client, "job:1", timeout=30) as lock:
    print("held:", lock.owned())  # prints: held: True
