"""The interface of python-redis-lock over DLock, as docs/migration.md tells to replace it."""

from __future__ import annotations

import logging
import os
from typing import Any

from redis import StrictRedis
from redis.exceptions import LockError, ResponseError
from redis_dlock import DLock, holder

logger = logging.getLogger(__name__)


class AlreadyAcquired(RuntimeError):
    """The object, or another one with its id, has the lock already."""


class NotAcquired(RuntimeError):
    """The object does not have the lock."""


class TimeoutNotUsable(RuntimeError):
    """A try has no timeout."""


class InvalidTimeout(RuntimeError):
    """Not a number of seconds."""


class TimeoutTooLarge(RuntimeError):
    """Longer than the lease."""


class NotExpirable(RuntimeError):
    """The lock has no lease."""


class Lock(DLock):
    """As python-redis-lock's: the id is the owner."""

    def __init__(
        self, redis_client: Any, name: str, expire: Any = None, id: Any = None, auto_renewal: bool = False,
        strict: bool = True, signal_expire: int = 1000, blocking: bool = True,
    ) -> None:
        if strict and not isinstance(redis_client, StrictRedis):
            raise ValueError("not a client of redis-py")
        if auto_renewal and expire is None:
            raise ValueError("a lock that is renewed needs a lease")
        if not isinstance(id, (bytes, str, type(None))):
            raise TypeError("an id is bytes or str")
        self._expire = int(expire) if expire else None
        if self._expire is not None and self._expire < 0:
            raise ValueError("the lease is negative")
        self.id = os.urandom(12).hex() if id is None else id.decode() if isinstance(id, bytes) else id
        self.renews = auto_renewal
        self._name = f"lock:{name}"
        if not strict and not isinstance(redis_client, StrictRedis):
            return
        super().__init__(
            redis_client, self._name, timeout=self._expire, session=True if auto_renewal else None, thread_local=False,
            blocking=blocking,
        )

    def get_owner_id(self) -> str | None:
        try:
            found = holder(self.redis, self._name)
        except ResponseError:
            # The key has another type.
            return None
        return None if found is None else found.owner.decode()

    def acquire(self, blocking: bool = True, timeout: Any = None) -> bool:  # type: ignore[override]
        logger.debug("Acquiring Lock(%r) ...", self._name)
        if self.get_owner_id() == self.id:
            raise AlreadyAcquired("the owner has the lock already")
        if not blocking and timeout is not None:
            raise TimeoutNotUsable("a try has no timeout")
        seconds = int(timeout) if timeout else None
        if seconds is not None and seconds < 0:
            raise InvalidTimeout("the timeout is negative")
        if seconds and self._expire and not self.renews and seconds > self._expire:
            raise TimeoutTooLarge("the timeout is longer than the lease")
        if not super().acquire(blocking=blocking, blocking_timeout=seconds, token=self.id):
            logger.warning("Failed to acquire Lock(%r).", self._name)
            return False
        logger.info("Acquired Lock(%r).", self._name)
        return True

    def __enter__(self) -> Lock:
        if not self.acquire(blocking=self.blocking):
            raise NotAcquired("not acquired")
        return self

    def release(self) -> None:
        logger.debug("Releasing Lock(%r).", self._name)
        try:
            self.do_release(self.id) if self.local.token is None else super().release()
        except LockError as error:
            raise NotAcquired(str(error)) from error

    def extend(self, expire: Any = None) -> None:  # type: ignore[override]
        seconds = int(expire) if expire else self._expire
        if seconds is None:
            raise TypeError("no expire was given, neither to extend nor to the lock")
        if seconds < 0:
            raise ValueError("the lease is negative")
        if self.local.token is None:
            self.local.token = self.id
            self.timeout = seconds
        elif self.timeout is None:
            raise NotExpirable("the lock has no expiration time")
        try:
            super().extend(seconds, replace_ttl=True)
        except LockError as error:
            raise NotAcquired(str(error)) from error

    def reset(self) -> None:
        self.redis.delete(self._name)


def reset_all(client: Any) -> None:
    """Frees all locks."""
    for key in client.scan_iter(match="lock:*", _type="distrlock"):
        client.delete(key)
