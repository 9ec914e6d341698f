"""The same with asyncio. A wait that is cancelled leaves the queue and holds nothing."""

import asyncio
import os

import redis.asyncio

from redis_dlock.asyncio import DLock


async def main() -> None:
    host, port = os.environ.get("DLOCK_TEST_HOST", "localhost"), int(os.environ.get("DLOCK_TEST_PORT", "6379"))
    async with redis.asyncio.Redis(host=host, port=port) as client:
        async with client.lock("job:1", timeout=30, lock_class=DLock):
            try:
                await asyncio.wait_for(client.lock("job:1", timeout=30, lock_class=DLock).acquire(), timeout=0.2)
            except asyncio.TimeoutError:
                print("given up")  # prints: given up
        print(await client.exists("job:1"))  # prints: 0


asyncio.run(main())
