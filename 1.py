import redis
from redis_dlock import DLock

client = redis.Redis()
with DLock(client, "doc:1", mode="read", timeout=30) as reader:
    print("reading:", reader.owned())  # prints: reading: True
with DLock(client, "doc:1", mode="write", timeout=30) as writer:
    print("writing:", writer.owned())  # prints: writing: True
