"""Every connection of the package has the state that the user's client has now: database and login."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_dlock
import redis_dlock.asyncio
from kit import address, command, info, soon, waiters

FORMS: list[dict[str, Any]] = [{"timeout": 20}, {}, {"timeout": 20, "session": True}, {"timeout": 20, "auto_renewal": True}]
IDS = ["lease", "session", "both", "renewed"]


@pytest.mark.parametrize("settings", FORMS, ids=IDS)
def test_a_database_that_was_selected(client: redis.Redis, settings: dict[str, Any]) -> None:
    with redis.Redis(**address(), single_connection_client=True) as own, redis.Redis(**address(), db=5) as there:
        own.select(5)
        with redis_dlock.DLock(own, "job", **settings) as lock:
            assert info(there, "job")["token"] == lock.token and not info(client, "job")
            assert lock.owned() and lock.locked()
            if "timeout" in settings:
                assert lock.extend(5)
            assert not redis_dlock.DLock(own, "job", timeout=20).acquire(blocking_timeout=0.2)
            found = redis_dlock.holder(own, "job")
            assert found is not None and found.token == lock.token
            # The lock is released where it was acquired.
            own.select(6)
        assert not info(there, "job")
        assert command(there, "DLOCK.ACQUIRE", "job", "other", "PX", 400)
        own.select(5)
        with redis_dlock.DLock(own, "job", **settings) as lock:
            assert info(there, "job")["token"] == lock.token
        own.select(0)
        with redis_dlock.DLock(own, "job", **settings) as lock:
            assert info(client, "job")["token"] == lock.token


@pytest.mark.parametrize("settings", FORMS, ids=IDS)
async def test_a_database_that_was_selected_in_asyncio(client: redis.Redis, settings: dict[str, Any]) -> None:
    own: Any = redis.asyncio.Redis(**address(), single_connection_client=True)
    with redis.Redis(**address(), db=5) as there:
        await own.select(5)
        async with redis_dlock.asyncio.DLock(own, "job", **settings) as lock:
            assert info(there, "job")["token"] == lock.token and not info(client, "job")
            assert not await redis_dlock.asyncio.DLock(own, "job", timeout=20).acquire(blocking_timeout=0.2)
            found = await redis_dlock.asyncio.holder(own, "job")
            assert found is not None and found.token == lock.token
            await own.select(6)
        assert not info(there, "job")
    await own.aclose()


def test_a_login_whose_password_is_not_known(client: redis.Redis) -> None:
    command(client, "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all")
    try:
        with redis.Redis(**address(), single_connection_client=True) as own:
            command(own, "AUTH", "app", "secret")
            with pytest.raises(redis_dlock.LockError, match="app"):
                redis_dlock.DLock(own, "job", timeout=20).acquire()
        with redis.Redis(**address(), username="app", password="secret", single_connection_client=True) as own:
            with redis_dlock.DLock(own, "job", timeout=20):
                assert info(client, "job")
    finally:
        command(client, "ACL", "DELUSER", "app")


@pytest.mark.parametrize("module", [redis_dlock, redis_dlock.asyncio], ids=["sync", "asyncio"])
async def test_a_password_that_was_changed(client: redis.Redis, module: Any) -> None:
    """The program has told its pool, so each new connection of its client has it: that of a wait, too."""
    command(client, "ACL", "SETUSER", "app", "on", ">one", "~*", "&*", "+@all")
    is_async = module is redis_dlock.asyncio
    kind: Any = redis.asyncio.Redis if is_async else redis.Redis
    own = kind(**address(), username="app", password="one")
    try:
        lock = module.DLock(own, "job", timeout=20)
        assert await lock.acquire() if is_async else lock.acquire()
        command(client, "ACL", "SETUSER", "app", "resetpass", ">two")
        own.connection_pool.connection_kwargs["password"] = "two"
        waiting = module.DLock(own, "job", timeout=20, blocking_timeout=20)
        task = asyncio.create_task(waiting.acquire() if is_async else asyncio.to_thread(waiting.acquire))
        await asyncio.to_thread(soon, "it waits", lambda: waiters(client, "job") == 1)
        await lock.release() if is_async else lock.release()
        assert await task
    finally:
        await own.aclose() if is_async else own.close()
        command(client, "ACL", "DELUSER", "app")
