"""The table of replies: what an error of a server means. A release that is repeated because of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis._parsers.base import BaseParser
from redis.exceptions import AuthenticationError, ConnectionError, LockError, ReadOnlyError, ResponseError

import redis_dlock
from cutting import CuttingProxy
from kit import Kit
from redis_dlock import commands, redis_py
from redis_dlock.acquisition import Acquisition
from redis_dlock.limits import Limits

TABLE = Path(__file__).parents[3] / "tests/clients/tables/replies.txt"
ROWS = re.findall(r'^"(.*)" => (.*)$', TABLE.read_text(), re.MULTILINE)
# The classes of the errors that say that a connection was refused or lost.
OF_A_CONNECTION = (*redis_py.LOST, *redis_py.MOVING)
CODES = {"NOSESSION": "session", "DEADLOCK": "deadlock", "NOREPLICAS": "paused", "MISCONF": "paused", "BUSY": "paused"}


def meaning(error: Exception) -> str:
    """Returns the meaning of an error for the package, as redis-py has read it."""
    told = redis_py.explained(error) if isinstance(error, ResponseError) else error
    if isinstance(told, OF_A_CONNECTION) and not isinstance(told, AuthenticationError):
        return "open" if redis_py.may_be_executed(error) else "elsewhere"
    assert not redis_py.may_be_executed(error)
    if isinstance(error, ResponseError) and redis_py.wrong_type(error):
        return "foreign"
    if isinstance(told, LockError):
        return "module"
    # The package has no rule of its own for `paused`: renewals go on after any error, and the caller sees the error.
    return CODES.get(commands.code(error), "final")


@pytest.mark.parametrize(("reply", "expected"), ROWS)
def test_an_error_of_a_server_means_what_the_table_says(reply: str, expected: str) -> None:
    error: Exception = BaseParser.parse_error(reply)  # type: ignore[no-untyped-call]
    assert meaning(error) == expected
    if isinstance(error, ResponseError):
        assert redis_py.is_answer(error) == (expected not in ("elsewhere", "open"))


def test_the_table_is_read() -> None:
    assert len(ROWS) > 20


@pytest.mark.parametrize(("reply", "is_lost"), [
    ("LOADING no majority has answered: 127.0.0.1:7001: LOADING Redis is loading the dataset in memory", False),
    ("LOADING Redis is loading the dataset in memory", True),
    ("LOADING Valkey is loading the dataset in memory", True),
])
async def test_a_repeated_release_that_gets_nil_is_a_loss_only_if_no_copy_was_executed(
    kit: Kit, reply: str, is_lost: bool
) -> None:
    """The server executes a release, but the client reads an error and repeats the release, which gets nil. The lock
    counts as lost only if the error says that the first copy was not executed."""
    proxy = CuttingProxy()
    lock = kit.extra("job", client=kit.client_of(proxy.address), timeout=30)
    assert await lock.acquire()
    proxy.say("DLOCK.RELEASE", f"-{reply}\r\n")
    if is_lost:
        with pytest.raises(redis_dlock.LockNotOwnedError):
            await lock.release()
    else:
        await lock.release()
    proxy.close()


@pytest.mark.parametrize(("error", "since"), [
    (ResponseError("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"), 0),
    (ReadOnlyError("You can't write against a read only replica."), 1),
])
def test_a_grant_counts_from_a_wait_that_a_demotion_has_ended(error: ResponseError, since: int) -> None:
    """A server that answers UNBLOCKED may have granted the lock before, so the lease counts from the first command (at
    0). A server that answers READONLY has executed nothing, so the lease counts from the repeat (at 1)."""
    limits = Limits(began=0, ends=60)
    attempt = Acquisition(commands.Target((b"job",), "exclusive"), b"owner", 30_000, False, limits)
    attempt.sends(0)
    with pytest.raises((ConnectionError, redis_py.Unreachable)):
        attempt.takes(1, error)
    attempt.loses(1)
    attempt.sends(1)
    attempt.takes(2, 7)
    assert attempt.course.sent == since
