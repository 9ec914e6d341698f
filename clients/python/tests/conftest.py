"""The tests use the server with the module at DLOCK_TEST_HOST and DLOCK_TEST_PORT, and remove all its data. Without
DLOCK_TEST_PORT, they start a server."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from cutting import Delay
from kit import AsyncioKit, Kit, PlainKit, address
from servers import Server


def pytest_configure(config: pytest.Config) -> None:
    """Starts a server unless the environment names one."""
    if "DLOCK_TEST_PORT" not in os.environ:
        server = Server()
        config.add_cleanup(server.close)
        os.environ.update(DLOCK_TEST_HOST="127.0.0.1", DLOCK_TEST_PORT=str(server.port))


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    """A client of an empty server."""
    with redis.Redis(**address()) as client:
        client.flushall()
        yield client


@pytest.fixture(params=[PlainKit, AsyncioKit], ids=["sync", "asyncio"])
def kit(client: redis.Redis, request: pytest.FixtureRequest) -> Iterator[Kit]:
    """The lock classes of threads, then those of asyncio, all with methods to be awaited."""
    kit: Kit = request.param()
    yield kit
    kit.close()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Prints the name of each skipped test and the reason: `make test` repeats such lines at its end."""
    if report.skipped and isinstance(report.longrepr, tuple):
        print(f"\nskipped: {report.nodeid}: {report.longrepr[2].removeprefix('Skipped: ')}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs tests that are coroutines, each in an event loop of its own."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(_and_close(test(**arguments), arguments.get("kit")))
    return True


async def _and_close(test: Any, kit: Kit | None) -> None:
    try:
        await asyncio.wait_for(test, 300)  # seconds: a test that hangs fails
    finally:
        if kit is not None:
            await kit.aclose()


@pytest.fixture
def delay() -> Iterator[Delay]:
    """A proxy to the server, which keeps a command back."""
    delay = Delay()
    yield delay
    delay.deliver()
    delay.close()
