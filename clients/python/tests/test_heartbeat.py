"""When looks at a hold are due, and until when it is certain, without a clock."""

from __future__ import annotations

import math

import pytest

from redis_dlock import LockNotOwnedError
from redis_dlock.commands import Command
from redis_dlock.heartbeat import Heartbeat, Terms
from redis_dlock.validity import Validity


def beats(*, renews: bool = True, lease: float = 30.0) -> Heartbeat:
    """Returns the heartbeat of a hold that was granted at 0."""
    renewal: list[Command] = [("RENEW",)]
    terms = Terms(
        (lambda: renewal) if renews else None, [("BIND",)], [("CHECK",)], lease, None, -math.inf, None, LockNotOwnedError
    )
    return Heartbeat(Validity(0.0, 0.0, lease), 0.0, terms)


def test_a_renewal_is_due_after_a_third_of_the_lease_and_has_2_s_for_its_answer() -> None:
    its = beats()
    assert its.due() == 10
    look = its.begin(10.0, binds=False)
    assert its.answer_within(10.0) == 2  # A sixth is 5 s, and the limit 2 s.
    assert its.took(10.1, look, [1])
    assert its.due() == 20


@pytest.mark.parametrize("renews", [False, True])
def test_after_a_failure_it_pauses(renews: bool) -> None:
    its = beats(renews=renews)
    now = 10.0
    for _ in range(5):
        look = its.begin(now, binds=False)
        its.failed(now + 0.001, look, binds=False, executed=False)
        assert its.due() >= now + 0.01
        now = its.due()


def test_a_question_about_a_cap_that_fails_pauses() -> None:
    its = beats()
    assert its.took(10.1, its.begin(10.0, binds=False), [0])
    assert its.due() <= 10.1, "the server knows what a cap has left of the lease"
    now = 10.1
    for _ in range(5):
        look = its.begin(now, binds=False)
        assert look.renewal is None
        its.failed(now + 0.001, look, binds=False, executed=True)
        assert now + 0.01 <= its.due() <= now + 0.502
        now = its.due()
    assert its.took(now, its.begin(now, binds=False), [5000])
    assert its.validity.until == pytest.approx(now + 5, abs=0.01)
    assert its.begin(now + 2, binds=False).renewal is None, "nothing renews it beyond its cap"


def test_a_lease_that_may_still_be_set_is_counted_however_many_commands_have_no_answer() -> None:
    hold = Validity(0.0, 0.0, 10.0)
    hold.sends(0.0, 5.0)
    for each in range(1, 1000):
        hold.sends(each / 1000, 10.0)
    last = hold.sends(1.0, 10.0)
    hold.ok(1.01, last)
    assert abs(hold.until - (1.0 + 5.0 - 0.002)) < 1e-9
    assert len(hold._open) < 20
