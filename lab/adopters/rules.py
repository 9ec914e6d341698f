"""The rules of programs as users write them, beside those of ../chaos-clients/judge.py. Pure.

An acquisition may say *unreachable* only within the rules of docs/time-limits.md. A package looks for a
server until the limit that the program has set, so an earlier end is wrong whatever has happened. At the limit, a
fault of the run must have been felt within the acquisition: a cut connection, silence, a server or program that was
stopped or killed, a failover. The lateness of the machine is a reason without a fault only where a wait depends on
answers in time: when it begins, and when its limit comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise

import judge
from history import Attempt
from judge import HANDS, MS, SECOND, Round, told
from visits import FOREVER

# For how long the lock of the job that runs once a period stays, in microseconds.
KEPT = 3_600_000
# The time that a package keeps for the last answer of a wait, in microseconds.
LATE = 150 * MS
# How late a server may end `WAIT`, in microseconds. Replicas have to answer that much before the limit.
ENDS_LATE = 100 * MS
# For how long after its begin and before its limit a wait needs answers in time, in microseconds.
EDGE = 500 * MS
# How long a try, and a wait without a limit, bear silence before they give up, in microseconds.
TRY, OUTAGE = 1_000 * MS, 30_000 * MS
# The locks of programs that cannot ask replicas have names of their own.
OWN = "0/php-"
# Faults that may end a hold which no replica had to acknowledge.
TAKEOVERS = {"failover", "handover", "freeze", "servers not whole"}


def violations(it: Round, orders: dict[str, list[str]]) -> list[str]:
    """Returns what is wrong. `orders`: the rows of each order, as they were written."""
    found = list(it.seen)
    for check in (exclusion, judge.permits, judge.releases, judge.refusals, judge.calm, judge.limits,
                  judge.losses, reasons, judge.leftovers, periods):
        found += check(it)
    # The tokens of each lock by itself: those of all locks are too many to be compared.
    found += judge.tokens(replace(it, is_one=False))
    found += payments(orders.items())
    return found


def exclusion(it: Round) -> Iterator[str]:
    """No two programs have a lock at one time. A failover may lose what no replica had to acknowledge."""
    own = [each for each in it.attempts if it.replicates and each.lock.startswith(OWN)]
    yield from judge.exclusion(replace(it, attempts=[each for each in it.attempts if each not in own]))
    for grants in judge.by_lock(replace(it, attempts=own)).values():
        for one, two in combinations(sorted(grants, key=lambda each: each.token), 2):
            if not any(kind in TAKEOVERS and since < two.ended and one.began < until for kind, _, since, until in it.faults):
                yield from judge.exclusion(replace(it, attempts=[one, two]))


def reasons(it: Round) -> Iterator[str]:
    """No error without a reason."""
    for each in it.attempts:
        if (why := excuse(it, each)) in ("early", "none"):
            what = "failed before its limit" if why == "early" else "failed for no reason"
            yield f"an acquisition {what}, {each.result} {each.message}: {told(each)}"
    yield from judge.reasons(replace(it, attempts=[each for each in it.attempts if not excuse(it, each)]))


def excuse(it: Round, attempt: Attempt) -> str:
    """Returns why an acquisition says that no server answers: `fault` or `lateness`; `early` and `none` are violations.

    Lateness excuses too few replicas, too, at the end of a wait. Empty: the acquisition says something else, or is one
    of PHP's, whose store has the limits of its client.
    """
    took, limit = attempt.ended - attempt.began, OUTAGE if attempt.wait == FOREVER else attempt.wait * MS
    was_late = lateness(it, attempt) >= LATE
    is_late = took >= max(limit, TRY) and was_late
    if attempt.result == "too-few-replicas" and took >= max(limit, TRY) - ENDS_LATE and was_late:
        return "lateness"
    if attempt.result != "unreachable" or attempt.program.startswith("php"):
        return ""
    if took < limit:
        return "early"
    if any(is_felt(attempt, *fault) for fault in it.faults):
        return "fault"
    return "lateness" if is_late else "none"


def is_felt(attempt: Attempt, kind: str, whom: str, since: int, until: int) -> bool:
    """Returns whether a fault can have kept answers from an acquisition. A connection is made again within a second."""
    if not judge.concerns(whom, attempt) or kind == "replica away":
        return False
    slight = kind.startswith("delay") and judge.silent_until(kind, 0, OUTAGE) < LATE
    return not slight and since < attempt.ended and attempt.began < until + SECOND


def lateness(it: Round, attempt: Attempt) -> int:
    """Returns how late the machine was when an acquisition began, and when it ended."""
    edges = (attempt.began, attempt.began + EDGE), (attempt.ended - EDGE, attempt.ended)
    return HANDS * sum(length for until, length in it.late
                       if any(begin < until and until - length < end for begin, end in edges))


def excuses(it: Round) -> Counter[str]:
    """Returns how many acquisitions each reason has excused."""
    return Counter(why for each in it.attempts if (why := excuse(it, each)))


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
