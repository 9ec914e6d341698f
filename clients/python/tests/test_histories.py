"""Plays tests/clients/histories: what a client decides, without a server, a clock or a socket."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redis_dlock.attempt import Attempt
from redis_dlock.limits import Limits
from redis_dlock.validity import Sent, Validity

HISTORIES = Path(__file__).parents[3] / "tests/clients/histories"
Line = tuple[int, list[str], list[str]]


def histories(machine: str) -> Iterator[tuple[str, list[Line]]]:
    """Yields the name and the lines of each history of a machine: time, event, expectations."""
    for file in sorted(HISTORIES.glob(f"*{machine}*.txt")):
        name = ""
        lines: list[Line] = []
        for text in [*file.read_text().splitlines(), "history"]:
            if text.startswith("history"):
                if lines:
                    yield f"{file.stem}: {name}", lines
                name, lines = text.removeprefix("history").strip(), []
            elif text.strip() and not text.startswith("#"):
                event, _, expected = text.partition(" : ")
                time, *words = event.split()
                lines.append((int(time), words, [each.strip() for each in expected.split(",") if each.strip()]))


def option(words: list[str], name: str) -> str | None:
    """Returns the value of `name=value` in an event."""
    return next((word.partition("=")[2] for word in words if word.startswith(f"{name}=")), None)


def ms(seconds: float) -> int:
    """Returns whole ms, without the error of floating-point numbers."""
    return math.floor(seconds * 1000 + 1e-6)


class Holds:
    """Plays a history of a hold."""

    def __init__(self) -> None:
        self._hold: Validity = None  # type: ignore[assignment]
        self._sent: dict[str, Sent] = {}

    def play(self, now: float, words: list[str]) -> None:
        """Handles an event."""
        event, hold = words[0], self._hold
        lease = int(option(words, "lease") or 0) / 1000
        number = words[1] if len(words) > 1 else ""
        sent = self._sent.get(number, Sent(now))
        if event == "granted":
            self._hold = Validity(now, int(option(words, "sent") or 0) / 1000, lease, is_open="open" in words)
        elif event == "sent":
            self._sent[number] = hold.sends(now, lease)
        elif event == "asked":
            self._sent[number] = hold.asks(now)
        elif event == "left":
            hold.left(now, sent, int(words[2]) / 1000)
        elif event == "nil":
            hold.gone(now)
        elif event == "now":
            hold.passes(now)
        elif event == "release":
            hold.release(now)
        else:
            getattr(hold, event)(now, sent)

    def answers(self, now: float) -> list[str]:
        """Returns all that may be expected."""
        hold = self._hold
        if hold.is_lost or hold.is_released:
            return ["lost" if hold.is_lost else "released"]
        due = ["check"] if hold.checks else []
        due += [f"renew {ms(hold.renew_at)}"] if hold.renew_at < math.inf else []
        due += [f"again {ms(hold.again_at)}"] if hold.again_at < math.inf else []
        return [f"until {ms(hold.until)}", *due]


class Acquisitions:
    """Plays a history of an acquisition."""

    def __init__(self) -> None:
        self._attempt: Attempt = None  # type: ignore[assignment]
        self._numbers: dict[str, int] = {}

    def play(self, now: float, words: list[str]) -> None:
        """Handles an event."""
        event, attempt = words[0], self._attempt
        number = self._numbers.get(words[1], 0) if len(words) > 1 else 0
        if event == "acquire":
            limit = option(words, "limit")
            ends = None if limit in ("none", "try") else now + int(limit or 0) / 1000
            outage = int(option(words, "outage") or 30000) / 1000
            limits = Limits(now, ends, limit != "try", outage)
            self._attempt = Attempt(limits, int(option(words, "lease") or 0) / 1000)
        elif event == "sent":
            self._numbers[words[1]] = attempt.sends(now)
        elif event == "over":
            attempt.over(now)
        elif event == "cancel":
            attempt.canceled()
        elif event == "error":
            attempt.failed(number)
        elif event == "left":
            attempt.limits.heard = now
            attempt.ok(now, number, int(words[2]) / 1000)
        else:
            if event in ("granted", "nil", "ok", "gone"):
                attempt.limits.heard = now
            getattr(attempt, event)(now, number)

    def answers(self, now: float) -> list[str]:
        """Returns all that may be expected."""
        turn = self._attempt.turn
        fresh = "fresh " if turn.fresh else ""
        if turn.do == "wait":
            return [f"{fresh}wait {self._attempt.block(now)}"]
        if turn.do == "granted":
            return [f"granted until {ms(turn.until)}"]
        return [f"{fresh}{turn.do}" + (f" cleanup {turn.cleanup}" if turn.is_outcome else "")]


def played(player: Any, lines: list[Line]) -> str:
    """Returns what the machine answers wrong; empty: nothing."""
    for time, words, expected in lines:
        player.play(time / 1000, words)
        answers = player.answers(time / 1000)
        for each in expected:
            if each not in answers:
                return f"{time} {' '.join(words)}: {', '.join(answers)} instead of {each}"
    return ""


@pytest.mark.parametrize(("machine", "player"), [("validity", Holds), ("attempt", Acquisitions)])
def test_histories(machine: str, player: Any) -> None:
    wrong, count = [], 0
    for name, lines in histories(machine):
        count += 1
        if found := played(player(), lines):
            wrong.append(f"{name}: {found}")
    assert not wrong, "\n".join(wrong[:20])
    assert count > 1000
