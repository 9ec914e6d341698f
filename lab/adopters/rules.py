"""The rules of programs as users write them, beside those of ../chaos-clients/judge.py. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

import judge
from judge import Round, told

# For how long the lock of the job that runs once a period stays, in microseconds.
KEPT = 3_600_000
# The time that a package keeps for the last answer of a wait, in microseconds.
LATE = 150_000


def violations(it: Round, orders: dict[str, list[str]]) -> list[str]:
    """Returns what is wrong. `orders`: the rows of each order, as they were written."""
    found = list(it.seen)
    for check in (judge.exclusion, judge.permits, judge.releases, judge.refusals, judge.calm, judge.limits,
                  judge.losses, reasons, judge.leftovers, periods):
        found += check(it)
    # The tokens of each lock by itself: those of all locks are too many to be compared.
    found += judge.tokens(replace(it, is_one=False))
    found += payments(orders.items())
    return found


def reasons(it: Round) -> Iterator[str]:
    """No error without a fault. A grant that cannot be confirmed before its wait is over needs less on a busy machine."""
    idle = [each for each in it.attempts
            if each.result != "unreachable" or judge.lateness(it, each.began, each.ended) < LATE]
    return judge.reasons(replace(it, attempts=idle))


def periods(it: Round) -> Iterator[str]:
    """The job runs at most once a period, by the server's clock, which tokens tell."""
    runs = sorted((each for each in it.attempts if each.lock == "0/report" and each.is_granted),
                  key=lambda each: each.token)
    for one, two in pairwise(runs):
        if two.token - one.token < KEPT:
            yield f"a second run in a period, {(two.token - one.token) / 1000:.0f} ms later: {told(one)}, {told(two)}"


def payments(orders: Iterable[tuple[str, list[str]]]) -> Iterator[str]:
    """No order is paid twice, by a database that refuses tokens lower than one that it has seen."""
    for order, rows in orders:
        highest, paid = 0, []
        for row in rows:
            what, token, _ = row.split(maxsplit=2)
            if what == "paid" and int(token) >= highest:
                paid.append(row)
            highest = max(highest, int(token))
        if len(paid) > 1:
            yield f"order {order} is paid {len(paid)} times: {rows}"
