"""When a named session sends heartbeats, and what follows for its locks from the answers. Without a server."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.exceptions import ConnectionError, NoPermissionError, ResponseError

import redis_dlock
from redis_dlock.binding import Binding, Cap
from redis_dlock.commands import Command

TIMEOUT = 3.0


class Heard:
    """A session whose clock, and whose server, are those of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, manual: bool = False) -> None:
        self.now = 1000.0
        monkeypatch.setattr("redis_dlock.session.time", SimpleNamespace(monotonic=lambda: self.now))
        self.session = redis_dlock.Session(redis.Redis(), timeout=TIMEOUT, manual=manual)
        # The number of holds that the server has bound; None: no answer to a heartbeat comes.
        self.bound: int | None = 0
        # The answer to each other command; ConnectionError: none comes.
        self.answer: Any = 1
        # When heartbeats were sent.
        self.sent: list[float] = []
        self.session._begin_opening()
        self.beat()

    def hold(self) -> Binding:
        """Returns a lock that was just granted."""
        binding = Binding(
            self.session, "job", lambda _: [("RENEW",)], Cap([], "exclusive", 7, math.inf, math.inf), "job", None,
            self.session.openings,
        )
        binding.start()
        return binding

    def beat(self) -> None:
        """Sends a heartbeat, and what follows."""
        error: Exception | None = None
        try:
            work = self.session._round()
            commands = next(work)
            while True:
                self.now += 0.01
                commands = work.send([self._answer(each) for each in commands])
        except StopIteration:
            pass
        except ConnectionError as failure:
            error = failure
        self.session._went(error)

    def _answer(self, command: Command) -> Any:
        answer = self.answer
        if command[0] == "DLOCK.SESSION":
            self.sent.append(self.now - 0.01)
            answer = ConnectionError if self.bound is None else self.bound
        if answer is ConnectionError:
            raise ConnectionError
        return answer

    def passes(self, seconds: float) -> None:
        """Lets the thread of the session work for this long."""
        ends = self.now + seconds
        while self.session._not_open is None and self.now + self.session._pause() < ends:
            self.now += self.session._pause()
            if self.session._is_due():
                self.beat()
            else:
                self.now += 0.001
        self.now = max(self.now, ends)


@pytest.mark.parametrize("answer", [
    ConnectionError, ResponseError("NOREPLICAS Not enough good replicas to write."), NoPermissionError("NOPERM"),
    ResponseError("MISCONF"), redis.exceptions.MovedError("1 127.0.0.1:1"),
])
def test_heartbeats_do_not_stand_for_a_lock_that_the_server_may_lack(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    heard = Heard(monkeypatch)
    holds = [heard.hold(), heard.hold()]
    heard.bound = 2
    heard.passes(1.5)
    certain = holds[0].until()
    assert certain == heard.session._until
    # The server has lost one of them.
    heard.bound, heard.answer = 1, answer
    heard.passes(0.6)
    assert heard.session._until > certain, "heartbeats go on"
    assert [hold.until() for hold in holds] == [certain, certain]
    heard.passes(certain - heard.now + 0.1)
    assert all(hold.lost.is_set() for hold in holds) and heard.session.is_open


def test_a_lock_that_is_bound_again_is_certain_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch)
    hold = heard.hold()
    heard.passes(1.5)
    assert hold.until() == heard.session._until and not hold.lost.is_set()
    # As after a wait for an answer that was longer than the lock was certain.
    hold.unbound = heard.now - 0.001
    heard.beat()
    assert hold.until() < heard.now, "a lock that is over stays lost"
    heard.passes(0.1)
    assert hold.lost.is_set()


@pytest.mark.parametrize("silent", [0.0, 1.2, 2.0, 10.0])
@pytest.mark.parametrize("refuses", [False, True])
def test_a_manual_session_repeats_no_heartbeat_without_a_beat(
    monkeypatch: pytest.MonkeyPatch, silent: float, refuses: bool
) -> None:
    """The program calls `beat` once, and hangs. `silent`: for how long no heartbeat has an answer. `refuses`: the
    server refuses to bind a lock."""
    heard = Heard(monkeypatch, manual=True)
    hold = heard.hold()
    heard.passes(0.1)
    heard.session.beat()
    beaten, heard.bound = heard.now, None
    heard.passes(silent)
    heard.bound, heard.answer = 0, ResponseError("NOREPLICAS") if refuses else 1
    heard.passes(20)
    # The heartbeat of the call was due a third of the timeout after the one before.
    assert len(heard.sent) == 2 and heard.sent[-1] <= beaten + TIMEOUT / 3
    assert not heard.session.is_open and hold.lost.is_set()


def test_a_manual_session_repeats_heartbeats_while_the_program_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch, manual=True)
    heard.bound = None
    for _ in range(25):
        heard.session.beat()
        heard.passes(0.1)
    assert len(heard.sent) > 5
    heard.bound = 0
    for _ in range(100):
        heard.session.beat()
        heard.passes(0.1)
    assert heard.session.is_open
