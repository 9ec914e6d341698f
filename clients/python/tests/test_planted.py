"""Plants the faults that packages had into the pure code: the histories find each of them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from redis_dlock import attempt, validity
from redis_dlock.attempt import Attempt
from redis_dlock.validity import Sent, Validity
from test_histories import Acquisitions, Holds, histories, played

Patch = pytest.MonkeyPatch


def counts_from_the_reply(patch: Patch) -> None:
    ok = Validity.ok

    def late(self: Validity, now: float, sent: Sent, *, copies: bool = False) -> None:
        sent.at = now
        ok(self, now, sent, copies=copies)

    patch.setattr(Validity, "ok", late)


def grants_count_from_the_reply(patch: Patch) -> None:
    made = Validity.__init__

    def late(self: Validity, now: float, sent: float, lease: float, *, is_open: bool = False) -> None:
        made(self, now, now, lease, is_open=is_open)

    patch.setattr(Validity, "__init__", late)


def forgets_what_was_cut(patch: Patch) -> None:
    cut = Validity.cut

    def closed(self: Validity, now: float, sent: Sent) -> None:
        self._close(sent)
        cut(self, now, sent)

    patch.setattr(Validity, "cut", closed)


def a_shorter_lease_counts_after_the_answer(patch: Patch) -> None:
    sends = Validity.sends

    def later(self: Validity, now: float, lease: float) -> Sent:
        until = self._until
        sent = sends(self, now, lease)
        self._until = until
        return sent

    patch.setattr(Validity, "sends", later)


def revives_a_lost_hold(patch: Patch) -> None:
    patch.setattr(Validity, "_expire", lambda self, now: not self.is_released)


def a_question_counts_from_its_answer(patch: Patch) -> None:
    left = Validity.left

    def late(self: Validity, now: float, question: Sent, seconds: float) -> None:
        question.at = now
        left(self, now, question, seconds)

    patch.setattr(Validity, "left", late)


def a_question_forgets_open_commands(patch: Patch) -> None:
    asks = Validity.asks

    def clear(self: Validity, now: float) -> Sent:
        question = asks(self, now)
        question.is_blurred = False
        return question

    patch.setattr(Validity, "asks", clear)


def counts_fractions(patch: Patch) -> None:
    patch.setattr(validity, "MARGIN", 0.0)


def waits_for_the_whole_lease(patch: Patch) -> None:
    patch.setattr(validity, "_clamp", lambda value, least, most: math.inf)


HOLDS = [
    counts_from_the_reply, grants_count_from_the_reply, forgets_what_was_cut, a_shorter_lease_counts_after_the_answer,
    revives_a_lost_hold, a_question_counts_from_its_answer, a_question_forgets_open_commands, counts_fractions,
    waits_for_the_whole_lease,
]


def believes_an_old_grant(patch: Patch) -> None:
    made = Attempt.__init__

    def trusting(self: Attempt, limits: Any, lease: float, old: float | None = None) -> None:
        made(self, limits, lease, math.inf)

    patch.setattr(Attempt, "__init__", trusting)


def counts_from_the_copy_that_was_answered(patch: Patch) -> None:
    granted = Attempt.granted

    def latest(self: Attempt, now: float, number: int) -> Any:
        self._open = {number: self._open.get(number, now)}
        return granted(self, now, number)

    patch.setattr(Attempt, "granted", latest)


def the_nil_of_a_repeat_is_a_refusal(patch: Patch) -> None:
    nil = Attempt.nil

    def refusal(self: Attempt, now: float, number: int, *, of_slice: bool = False) -> Any:
        if self.turn.do == "wait":
            self._open = {}
        return nil(self, now, number, of_slice=of_slice)

    patch.setattr(Attempt, "nil", refusal)


def a_late_end_is_an_outage(patch: Patch) -> None:
    patch.setattr(Attempt, "over", lambda self, now: self._ends("unreachable"))


def a_silent_second_ends_it(patch: Patch) -> None:
    patch.setattr(Attempt, "cut", lambda self, now, number: self._ends("unreachable"))


def a_grant_that_is_over_is_kept(patch: Patch) -> None:
    patch.setattr(Attempt, "gone", Attempt.ok)


def a_canceled_wait_leaves_its_place(patch: Patch) -> None:
    def canceled(self: Attempt) -> Any:
        self._open = {}
        return self._ends("canceled")

    patch.setattr(Attempt, "canceled", canceled)


def an_answer_that_comes_late_confirms(patch: Patch) -> None:
    patch.setattr(attempt, "MARGIN", -math.inf)


ACQUISITIONS = [
    believes_an_old_grant, counts_from_the_copy_that_was_answered, the_nil_of_a_repeat_is_a_refusal,
    a_late_end_is_an_outage, a_silent_second_ends_it, a_grant_that_is_over_is_kept, a_canceled_wait_leaves_its_place,
    an_answer_that_comes_late_confirms,
]


@pytest.mark.parametrize(
    ("machine", "player", "fault"),
    [("validity", Holds, fault) for fault in HOLDS] + [("attempt", Acquisitions, fault) for fault in ACQUISITIONS],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_histories_find_it(machine: str, player: Any, fault: Any, monkeypatch: Patch) -> None:
    assert not any(played(player(), lines) for _, lines in histories(machine))
    fault(monkeypatch)
    assert any(_plays_wrong(player, lines) for _, lines in histories(machine))


def _plays_wrong(player: Any, lines: Any) -> bool:
    try:
        return bool(played(player(), lines))
    except (ArithmeticError, AssertionError):
        return True
