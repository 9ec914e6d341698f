"""The promises of redis-py's own lock, in the order of its tests, for both lock classes.

Changed, since the key is a lock and not a string, and the server does the waiting:

- The owner is read by `DLOCK.INFO`, where redis-py's tests read the key's value.
- Without a timeout the key has a lease that the server renews, where redis-py's has a TTL of -1.
- `blocking_timeout` is kept in full. redis-py's lock sleeps between its attempts, and gives up as soon as the next
  attempt would come too late. So its tests fake the clock and count the sleeps, and expect no wait at all where `sleep`
  is longer than `blocking_timeout`.
"""

from __future__ import annotations

import time

import pytest
import redis
import redis.asyncio.lock
import redis.lock
from redis.exceptions import LockError, LockNotOwnedError

from kit import Kit, info, refused, soon


# RedBeat (a scheduler for Celery) replaces redis-py's script `lua_extend` with its own, which sets the time that is
# left, as SETS does. redis-py's script adds to that time, as ADDS does.
SETS = "local token = redis.call('get', KEYS[1]) redis.call('pexpire', KEYS[1], ARGV[2]) return 1"
ADDS = "redis.call('pexpire', KEYS[1], ARGV[2] + redis.call('pttl', KEYS[1])) return 1"


async def test_a_script_in_place_of_redis_pys_is_honored_or_refused(kit: Kit, client: redis.Redis) -> None:
    lock = kit.lock("job", timeout=25)
    own = getattr(lock, "_inner", lock)
    own.lua_extend = client.register_script(SETS)
    assert await lock.acquire()
    for _ in range(3):
        assert await lock.extend(25)
    assert 20_000 < left(client) <= 25_000
    await lock.release()
    for name, script in (("lua_extend", ADDS), ("lua_release", SETS), ("lua_reacquire", SETS)):
        with pytest.raises(LockError, match=f"{name} cannot be replaced"):
            setattr(own, name, client.register_script(script))


def owner_of(client: redis.Redis, name: str) -> bytes | None:
    """Returns the owner of the lock."""
    holds = info(client, name, "FULL").get("holds")
    return str(holds[0]["owner"]).encode() if holds else None


def left(client: redis.Redis, name: str = "job") -> int:
    """Returns the milliseconds until the lock ends."""
    return int(client.pttl(name))


async def test_the_lock_has_its_owner_and_goes_with_the_release(kit: Kit, client: redis.Redis) -> None:
    lock = kit.lock("job")
    assert await lock.acquire(blocking=False) is True
    assert owner_of(client, "job") == lock.local.token == lock.owner
    # Changed: a lease, where redis-py's lock has none.
    assert 0 < left(client) <= 30_000
    await lock.release()
    assert owner_of(client, "job") is None
    assert not client.exists("job")


@pytest.mark.parametrize("thread_local", [True, False])
async def test_the_caller_may_name_the_owner(kit: Kit, client: redis.Redis, thread_local: bool) -> None:
    lock = kit.lock("job", thread_local=thread_local)
    assert await lock.acquire(blocking=False, token="me")
    assert owner_of(client, "job") == b"me"
    assert lock.local.token == b"me"
    await lock.release()
    assert owner_of(client, "job") is None
    assert lock.local.token is None


async def test_locked_tells_whether_anybody_has_it(kit: Kit) -> None:
    lock = kit.lock("job")
    assert await lock.locked() is False
    await lock.acquire(blocking=False)
    assert await lock.locked() is True
    await lock.release()
    assert await lock.locked() is False


@pytest.mark.parametrize("decode", [False, True])
async def test_owned_tells_whether_this_lock_object_has_it(kit: Kit, decode: bool) -> None:
    client = kit.client(decode_responses=decode)
    one, other = kit.lock("job", client=client), kit.lock("job", client=client)
    assert await one.owned() is False
    await one.acquire(blocking=False)
    assert await one.owned() is True
    assert await other.owned() is False
    await one.release()
    assert await one.owned() is False
    await other.acquire(blocking=False)
    assert await one.owned() is False
    assert await other.owned() is True
    await other.release()
    assert await other.owned() is False


async def test_one_excludes_the_other(kit: Kit) -> None:
    one, other = kit.lock("job"), kit.lock("job")
    assert await one.acquire(blocking=False)
    assert not await other.acquire(blocking=False)
    await one.release()
    assert await other.acquire(blocking=False)
    assert not await one.acquire(blocking=False)
    await other.release()


@pytest.mark.parametrize("timeout", [10, 9.5])
async def test_the_timeout_is_the_lease(kit: Kit, client: redis.Redis, timeout: float) -> None:
    lock = kit.lock("job", timeout=timeout)
    assert await lock.acquire(blocking=False)
    assert timeout * 1000 - 5000 < left(client) <= timeout * 1000
    await lock.release()


async def test_blocking_is_an_attribute(kit: Kit) -> None:
    assert kit.lock("job", blocking=False).blocking is False
    assert kit.lock("job").blocking is True


async def test_blocking_timeout_ends_the_wait(kit: Kit) -> None:
    one = kit.lock("job")
    assert await one.acquire(blocking=False)
    other = kit.lock("job", sleep=0.05, blocking_timeout=0.3)
    start = time.monotonic()
    assert await refused(other.acquire)
    assert await refused(lambda: other.acquire(blocking_timeout=0.2))
    # Changed: both waits, of 0.3 s and of 0.2 s, are kept in full.
    assert time.monotonic() - start >= 0.5
    await one.release()


async def test_a_block_has_the_lock(kit: Kit, client: redis.Redis) -> None:
    async with kit.lock("job", blocking_timeout=5) as lock:
        assert owner_of(client, "job") == lock.local.token
    assert owner_of(client, "job") is None


async def test_blocking_timeout_ends_the_wait_in_a_block(kit: Kit) -> None:
    async with kit.lock("job", blocking=False):
        other = kit.lock("job", sleep=0.05, blocking_timeout=0.2)
        start = time.monotonic()
        assert await refused(other.acquire)
        assert time.monotonic() - start >= 0.2


async def test_a_block_that_gets_no_lock_raises_with_its_name(kit: Kit, client: redis.Redis) -> None:
    client.set("job", "of the old way")
    with pytest.raises(LockError) as failure:
        async with kit.lock("job", blocking_timeout=2):
            pytest.fail("the block has no lock")
    assert failure.value.lock_name == "job"
    assert client.get("job") == b"of the old way"


async def test_the_end_of_a_block_tells_of_a_lock_that_was_lost(kit: Kit, client: redis.Redis) -> None:
    async with kit.lock("job", timeout=0.05, raise_on_release_error=False):
        soon("the lock lapses", lambda: not info(client, "job"))
    with pytest.raises(LockNotOwnedError):
        async with kit.lock("job", timeout=0.05, raise_on_release_error=True):
            soon("the lock lapses", lambda: not info(client, "job"))


async def test_the_end_of_a_block_tells_of_a_lock_that_was_released(kit: Kit) -> None:
    async with kit.lock("job", timeout=5, raise_on_release_error=False) as lock:
        await lock.release()
    with pytest.raises(LockError):
        async with kit.lock("job", timeout=5, raise_on_release_error=True) as lock:
            await lock.release()


async def test_a_long_sleep_does_not_shorten_the_wait(kit: Kit) -> None:
    async with kit.lock("job"):
        other = kit.lock("job", sleep=60, blocking_timeout=0.2)
        start = time.monotonic()
        assert await refused(other.acquire)
        # Changed: redis-py's lock gives up without waiting. Neither lock sleeps for a minute.
        assert 0.2 <= time.monotonic() - start < 30


async def test_a_lock_that_is_not_held_cannot_be_released(kit: Kit) -> None:
    with pytest.raises(LockError):
        await kit.lock("job").release()


async def test_a_lock_that_was_overwritten_is_lost(kit: Kit, client: redis.Redis) -> None:
    lock = kit.lock("job")
    await lock.acquire(blocking=False)
    client.set("job", "a")
    with pytest.raises(LockNotOwnedError):
        await lock.release()
    assert lock.local.token is None
    assert client.get("job") == b"a"


@pytest.mark.parametrize("seconds", [10, 10.5])
async def test_extend_adds_to_what_is_left(kit: Kit, client: redis.Redis, seconds: float) -> None:
    lock = kit.lock("job", timeout=seconds)
    assert await lock.acquire(blocking=False)
    assert seconds * 1000 - 5000 < left(client) <= seconds * 1000
    assert await lock.extend(seconds) is True
    assert seconds * 2000 - 5000 < left(client) <= seconds * 2000
    await lock.release()


async def test_extend_may_replace_what_is_left(kit: Kit, client: redis.Redis) -> None:
    lock = kit.lock("job", timeout=10)
    assert await lock.acquire(blocking=False)
    assert await lock.extend(5, replace_ttl=True) is True
    assert 0 < left(client) <= 5000
    await lock.release()


@pytest.mark.parametrize(("method", "arguments"), [("extend", [10]), ("reacquire", [])])
async def test_a_lock_that_is_not_held_cannot_be_renewed(kit: Kit, method: str, arguments: list[int]) -> None:
    with pytest.raises(LockError):
        await getattr(kit.lock("job", timeout=10), method)(*arguments)


@pytest.mark.parametrize(("method", "arguments"), [("extend", [10]), ("reacquire", [])])
async def test_a_lock_without_a_timeout_cannot_be_renewed(kit: Kit, method: str, arguments: list[int]) -> None:
    async with kit.lock("job", blocking=False) as lock:
        with pytest.raises(LockError):
            await getattr(lock, method)(*arguments)


@pytest.mark.parametrize(("method", "arguments"), [("extend", [10]), ("extend", [10, True]), ("reacquire", [])])
async def test_a_lock_that_was_overwritten_cannot_be_renewed(
    kit: Kit, client: redis.Redis, method: str, arguments: list[int]
) -> None:
    lock = kit.lock("job", timeout=10)
    assert await lock.acquire(blocking=False)
    client.set("job", "a")
    with pytest.raises(LockNotOwnedError):
        await getattr(lock, method)(*arguments)


async def test_reacquire_starts_the_timeout_anew(kit: Kit, client: redis.Redis) -> None:
    lock = kit.lock("job", timeout=10)
    assert await lock.acquire(blocking=False)
    assert client.pexpire("job", 5000)
    assert left(client) <= 5000
    assert await lock.reacquire() is True
    assert 5000 < left(client) <= 10_000
    await lock.release()


async def test_a_block_whose_lock_was_overwritten_raises(kit: Kit, client: redis.Redis) -> None:
    with pytest.raises(LockNotOwnedError):
        async with kit.lock("job", timeout=10, blocking=False):
            client.set("job", "a")


async def test_a_dlock_is_a_lock_of_redis_py(kit: Kit) -> None:
    lock = kit.lock("job")
    assert isinstance(getattr(lock, "_inner", lock), (redis.lock.Lock, redis.asyncio.lock.Lock))
    assert lock.name == "job"


async def test_a_lock_can_be_released_by_whoever_knows_the_owner(kit: Kit, client: redis.Redis) -> None:
    assert await kit.lock("job", timeout=20).acquire(token="me")
    with pytest.raises(LockNotOwnedError):
        await kit.lock("job").do_release("you")
    await kit.lock("job").do_release("me")
    assert not info(client, "job")
