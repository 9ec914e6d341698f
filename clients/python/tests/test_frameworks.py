"""Django, Celery, celery-once, RedBeat and APScheduler lock with dlock, as the README says.

On a server without the module, they fail before they do their work.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from kit import address, info
from servers import Server

README = (Path(__file__).parents[1] / "README.md").read_text()
# The file `locks.py` of the README, with all of its classes.
LOCKS = "\n\n".join(
    block for block in re.findall(r"```py\n(.*?)```", README, flags=re.DOTALL) if "LockingRedis" in block or "Once" in block
)
# The programs of the README, by a word in them.
BLOCKS = {
    word: next(block for block in re.findall(r"```py\n(.*?)```", README, flags=re.DOTALL) if word in block)
    for word in ("app.task", "BackgroundScheduler", "BaseCommand")
}
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

# A worker gets three tasks of one customer and one of another at the same time. If no two of a customer run together,
# each result is 1, and the sum is 4.
CELERY = """
import sys
from celery.contrib.testing.worker import start_worker
from redis_dlock import LockError
from tasks import app, invoice
with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, loglevel="CRITICAL"):
    results = [invoice.delay(7) for _ in range(3)] + [invoice.delay(8)]
    try:
        print(sum(result.get(timeout=60) for result in results), "runs, each alone")
    except LockError as error:
        print(error)
"""
# The work of a task. Returns how many tasks of the customer run, itself included, or 0 if the task has no lock.
WORK = """
    running = client.incr(f"running:{customer}")
    import time; time.sleep(0.3)
    client.decr(f"running:{customer}")
    return running if current_lock().token else 0
"""

# Three machines, each with a scheduler, start the job at the same time, and 6 seconds later once more.
APSCHEDULER = """
import datetime, sys, threading
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from apscheduler.schedulers.background import BackgroundScheduler
from jobs import report
ended, errors = threading.Semaphore(0), []
def end(event):
    if event.exception is not None:
        errors.append(event.exception)
    ended.release()
now = datetime.datetime.now(datetime.timezone.utc)
machines = [BackgroundScheduler(timezone="UTC") for _ in range(3)]
for machine in machines:
    machine.add_listener(end, EVENT_JOB_ERROR | EVENT_JOB_EXECUTED)
    for seconds in (1, 7):
        when = now + datetime.timedelta(seconds=seconds)
        machine.add_job(report, "date", run_date=when, misfire_grace_time=60)
    machine.start()
for _ in range(6):
    assert ended.acquire(timeout=60)
for machine in machines:
    machine.shutdown()
print(len(errors), "errors", *errors[:1])
"""

# Calls the command five times, as the crontabs of five machines would.
COMMAND = """
import sys
from django.conf import settings
CACHE = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": sys.argv[1]}
settings.configure(CACHES={"default": CACHE})
import django
django.setup()
from django.core.management import call_command
from cleanup import Command
for _ in range(5):
    call_command(Command())
"""


def ran(tmp_path: Path, program: str, url: str, *, may_fail: bool = False, **modules: str) -> str:
    """Returns what a program prints to both of its outputs. `modules` are written to files in its folder."""
    for name, text in {**modules, "program": program}.items():
        (tmp_path / f"{name}.py").write_text(text)
    words = [sys.executable, "program.py", url]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert may_fail or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def of_block(word: str, url: str, *changes: tuple[str, str]) -> str:
    """A program of the README, with another server and the changes: pairs of an old and a new text."""
    block: str = BLOCKS[word].replace("redis://127.0.0.1:6379", url).replace("Redis()", f"Redis.from_url({url!r})")
    for old, new in changes:
        assert old in block
        block = block.replace(old, new)
    return block


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    """The URL of a server without the module."""
    with Server(module=False) as server:
        yield f"redis://127.0.0.1:{server.port}/0"


def celery_tasks(url: str, *replacements: tuple[str, str], retries: int = 50) -> str:
    """The task of the README with `WORK` as its work. It gives up after these retries."""
    works = ("    return current_lock().token\n", WORK)
    return of_block("app.task", url, works, ('"max_retries": None', f'"max_retries": {retries}'), *replacements)


def test_a_celery_task_runs_alone(client: redis.Redis, tmp_path: Path) -> None:
    assert "4 runs, each alone" in ran(tmp_path, CELERY, URL, tasks=celery_tasks(URL))
    assert not info(client, "invoice:7")


def test_a_job_of_apscheduler_runs_on_one_machine(client: redis.Redis, tmp_path: Path) -> None:
    # The second time is after the end of the first period.
    jobs = of_block("BackgroundScheduler", URL, ("period=86400", "period=5"))
    printed = ran(tmp_path, APSCHEDULER, URL, jobs=jobs)
    assert printed.count("the report of today") == 2 and "0 errors" in printed, printed


def test_a_command_of_django_runs_on_one_machine(client: redis.Redis, tmp_path: Path) -> None:
    printed = ran(tmp_path, COMMAND, URL, cleanup=of_block("BaseCommand", URL))
    assert printed.count("cleaning up") == 1, printed
    # The lock stays for nine tenths of an hour from the first call.
    assert 3_200_000 < client.pttl("cleanup") <= 3_240_000


@pytest.mark.parametrize("name", ["Celery", "APScheduler", "Django", "django-redis", "celery-once", "RedBeat"])
def test_without_the_module_nothing_runs(plain: str, tmp_path: Path, name: str) -> None:
    # A task is retried once, without a pause.
    tasks = celery_tasks(plain, ('"retry_backoff": 1', '"default_retry_delay": 0'), retries=1)
    programs = {
        "Celery": (CELERY, {"tasks": tasks}),
        "APScheduler": (APSCHEDULER, {"jobs": of_block("BackgroundScheduler", plain)}),
        "Django": (COMMAND, {"cleanup": of_block("BaseCommand", plain)}),
        "django-redis": (DJANGO, {"locks": LOCKS}),
        "celery-once": (ONCE, {"locks": LOCKS}),
        "RedBeat": (REDBEAT, {"locks": LOCKS}),
    }
    program, modules = programs[name]
    printed = ran(tmp_path, program, plain, may_fail=True, **modules)
    assert "is the dlock module loaded" in printed, printed
    assert not any(word in printed for word in ("runs, each alone", "report of today", "cleaning up", "distrlock")), printed


@pytest.mark.parametrize("program", [DJANGO, ONCE, REDBEAT], ids=["django-redis", "celery-once", "RedBeat"])
def test_a_framework_locks_with_dlock(client: redis.Redis, tmp_path: Path, program: str) -> None:
    assert "distrlock" in ran(tmp_path, program, URL, locks=LOCKS)
    assert not info(client, "job")
