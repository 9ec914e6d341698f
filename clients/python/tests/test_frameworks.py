"""django-redis, celery-once and RedBeat lock with dlock, as the README tells."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from kit import address, info

README = (Path(__file__).parents[1] / "README.md").read_text()
MODULE = "\n\n".join(
    block for block in re.findall(r"```py\n(.*?)```", README, flags=re.DOTALL) if "LockingRedis" in block or "Once" in block
)
URL = "redis://{host}:{port}/0".format(**address())

DJANGO = """
import sys
from django.conf import settings
OPTIONS = {"REDIS_CLIENT_CLASS": "locks.LockingRedis"}
CACHE = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": sys.argv[1], "OPTIONS": OPTIONS}
settings.configure(CACHES={"default": CACHE})
from django.core.cache import cache
with cache.lock("job", timeout=20) as lock:
    print(lock.token, cache.client.get_client().type(":1:job").decode())
    assert not cache.lock("job", timeout=20).acquire(blocking=False)
"""

ONCE = """
import sys
from celery_once import AlreadyQueued
from celery_once.helpers import import_backend
backend = import_backend({"backend": "locks.OnceBackend", "settings": {"url": sys.argv[1]}})
backend.raise_or_lock("job", 20)
print(backend.redis.type("job").decode())
try:
    backend.raise_or_lock("job", 20)
except AlreadyQueued as error:
    assert 0 < error.countdown <= 20
else:
    raise AssertionError("queued twice")
backend.clear_lock("job")
backend.raise_or_lock("job", 20)
backend.clear_lock("job")
"""

REDBEAT = """
import sys
from types import SimpleNamespace
from celery import Celery
from locks import LockingRedis
from redbeat.schedulers import RedBeatScheduler, acquire_distributed_beat_lock
app = Celery("beat", broker=sys.argv[1])
app.conf.redbeat_redis_url = sys.argv[1]
app.conf.redbeat_lock_timeout = 25
app.redbeat_redis = LockingRedis.from_url(sys.argv[1], decode_responses=True)
scheduler = RedBeatScheduler(app=app)
acquire_distributed_beat_lock(sender=SimpleNamespace(scheduler=scheduler))
for _ in range(20):
    scheduler.tick()
left = app.redbeat_redis.pttl(scheduler.lock_key)
assert 20_000 < left <= 25_000, f"a dead beat blocks its successor for {left} ms"
print(app.redbeat_redis.type(scheduler.lock_key), scheduler.lock.token)
scheduler.close()
assert not app.redbeat_redis.exists("redbeat::lock")
"""


@pytest.mark.parametrize("program", [DJANGO, ONCE, REDBEAT], ids=["django-redis", "celery-once", "RedBeat"])
def test_it_locks_with_dlock(client: redis.Redis, tmp_path: Path, program: str) -> None:
    (tmp_path / "locks.py").write_text(MODULE)
    (tmp_path / "program.py").write_text(program)
    words = [sys.executable, "program.py", URL]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "distrlock" in done.stdout
    assert not info(client, "job")
