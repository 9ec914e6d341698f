"""All commands share one connection, and a wait delays none of them: DLock waits on a connection of its own."""

import asyncio
import os

import redis.asyncio

from redis_dlock.asyncio import DLock


async def main() -> None:
    host, port = os.environ.get("DLOCK_TEST_HOST", "localhost"), int(os.environ.get("DLOCK_TEST_PORT", "6379"))
    # All commands of all tasks go through this client's only connection.
    client = redis.asyncio.Redis(host=host, port=port, single_connection_client=True)
    async with client:
        holder = client.lock("job:1", timeout=30, lock_class=DLock)
        await holder.acquire()
        waiting = asyncio.create_task(client.lock("job:1", timeout=30, lock_class=DLock).acquire())
        while True:
            info = await client.execute_command("DLOCK.INFO", "job:1")
            if (info[b"waiters"] if isinstance(info, dict) else info[11]) == 1:
                break
        # A `BLOCK` on the shared connection would delay this command, and the release that it waits for.
        print(await client.ping())  # prints: True
        await holder.release()
        print(await waiting)  # prints: True

        # Without a second connection: try without `BLOCK`. If the reply is None, try again when the server reports that
        # the key has changed (CLIENT TRACKING, not shown here): see docs/waiting.md.
        print(await client.execute_command("DLOCK.ACQUIRE", "job:1", "owner-7"))  # prints: None


asyncio.run(main())
