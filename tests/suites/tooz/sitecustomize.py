"""In every process of these tests, the locks of redis-py's clients are those of redis_dlock."""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import redis
from redis_dlock import DLock

# The tests import all drivers, and those for other servers need these modules.
for other in ("etcd3gw", "etcd3gw.exceptions", "pymemcache", "pymemcache.client", "tooz.drivers.ipc"):
    sys.modules.setdefault(other, mock.MagicMock())

theirs = redis.Redis.lock


def lock(self: redis.Redis, *name: Any, **settings: Any) -> Any:
    """As `redis.Redis.lock`, with another class unless the program names one."""
    return theirs(self, *name, **{"lock_class": DLock, **settings})


redis.Redis.lock = lock  # type: ignore[method-assign]
