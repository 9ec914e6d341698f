"""The rules that a round must keep. Pure: attempts and faults come in, sentences about violations come out.

A program believes in a lock while it says that it holds it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from history import Attempt

# A millisecond. Times are microseconds unless a comment says otherwise.
MS = 1000
# How much later than promised a result may be, on a machine that is busy with all programs and servers.
GRACE = 2_500 * MS
# How long programs may still feel a fault after its end: they connect again, and leases were cut short.
AFTERMATH = 3_000 * MS
# The longest that a package takes, beyond the limit of the acquisition, to open a session, and to wait for replicas.
OPENING, ACKNOWLEDGING = 1_250 * MS, 1_000 * MS
# A wait that is shorter than this may end without an answer on a busy machine, in ms.
SHORT = 500
# The least time in which a package tries to clean up after a canceled acquisition.
CLEANING = 3_000 * MS
# A hold that ended this long before a request does not explain its refusal. Connections are replaced in this time, too.
SECOND = 1_000 * MS
# The timeout of named sessions, in ms.
TIMEOUT = 1500
# The processes that a request passes through, each of which may be late.
HANDS = 3
# The results that only a fault or a busy machine explains.
FAILURES = {"unreachable", "error", "failed", "too-few-replicas"}
# The faults after which servers or an agent may have forgotten a hold.
ENDINGS = {"restart", "failover", "handover", "agent killed"}
# The faults that can lose a reply: a program then sends the command again.
BREAKS = {"cut", "replies lost", "replies held", "commands held", "grants canceled", "server slow", "replica away"}
# The number of refusals in a row that is a violation, however short their waits are.
MANY = 3
# The number of refusals after the last fault that is a violation if nothing is granted.
PLENTY = 10


@dataclass
class Round:
    """The events of a round. Times are microseconds of the monotonic clock."""

    attempts: list[Attempt] = field(default_factory=list)
    # Each fault: its kind, the programs that it concerns, with commas between (empty: all), its begin and its end.
    faults: list[tuple[str, str, int, int]] = field(default_factory=list)
    # How late the machine was: the end of each delay and its length.
    late: list[tuple[int, int]] = field(default_factory=list)
    # The locks that servers had after the round, and the ids of processes that were killed.
    left: list[dict[str, Any]] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    # Violations that were found during the round.
    seen: list[str] = field(default_factory=list)
    # The unix time at which the monotonic clock was 0.
    unix: int = 0
    # The workers that have asked for a lock and are not answered yet.
    asking: list[Any] = field(default_factory=list)
    # Whether servers may lose a grant, as in a failover.
    loses: bool = False
    # Whether replicas take over. Changes that have not reached a replica are then lost.
    replicates: bool = False
    # Whether all locks are on one server, and the highest token of the rounds before.
    is_one: bool = True
    highest: int = 0
    # The time from which there were no faults any more; 0: the round had no such part.
    calm: int = 0


def judge(it: Round) -> list[str]:
    """Returns the violations of all rules, a sentence for each."""
    found = list(it.seen)
    for check in (exclusion, permits, tokens, releases, refusals, calm, limits, losses, reasons, leftovers):
        found += check(it)
    return found


def by_lock(it: Round) -> dict[str, list[Attempt]]:
    """Returns the grants of each lock."""
    locks = defaultdict(list)
    for attempt in it.attempts:
        if attempt.is_granted:
            locks[attempt.lock].append(attempt)
    return locks


def spans(attempt: Attempt) -> tuple[int, int] | None:
    """Returns from when to when a program believed, up to the end that it named last; None if it never believed."""
    said = attempt.believed()
    return said and (said[0], max(said[1], attempt.claimed_until()))


def excludes(one: Attempt, two: Attempt) -> bool:
    """Returns whether two owners must not hold these at the same time. Readers and holders of permits share a lock."""
    shared = [each.slots is not None or each.mode == "read" for each in (one, two)]
    return not all(shared)


def exclusion(it: Round) -> Iterator[str]:
    """No two programs believe at the same time in holds that exclude each other."""
    for lock, grants in by_lock(it).items():
        for one, two in combinations(grants, 2):
            if not excludes(one, two) or not (mine := spans(one)) or not (other := spans(two)):
                continue
            both = min(mine[1], other[1]) - max(mine[0], other[0])
            if both > 0:
                yield f"two believe at one time for {both / MS:.0f} ms in {lock}: {told(one)}, and {told(two)}"


def permits(it: Round) -> Iterator[str]:
    """Programs never believe in more permits than the limit, or two in the same number. Numbers are below the limit."""
    for lock, grants in by_lock(it).items():
        held = [(span, grant) for grant in grants if grant.slots is not None and (span := spans(grant))]
        for grant in grants:
            if grant.slots is not None and grant.slot is not None and not 0 <= grant.slot < grant.slots:
                yield f"a permit of {lock} has the number {grant.slot} of {grant.slots}: {told(grant)}"
        for begin, grant in ((span[0], grant) for span, grant in held):
            now = [each for span, each in held if span[0] <= begin < span[1] or each is grant]
            if len(now) > (grant.slots or 0):
                who = ", ".join(map(told, now))
                yield f"{len(now)} of {grant.slots} permits are believed in at one time in {lock}: {who}"
            for one, two in combinations(now, 2):
                if one.slot == two.slot:
                    yield f"two have the number {one.slot} of {lock} at one time: {told(one)}, and {told(two)}"


def tokens(it: Round) -> Iterator[str]:
    """A request that begins after the answer to another has arrived gets a higher token, and no token comes twice.

    If all locks are on one server, this holds over all locks; otherwise, for each lock.
    """
    locks = by_lock(it)
    for grants in [sum(locks.values(), [])] if it.is_one else locks.values():
        for grant in grants:
            if it.is_one and grant.token <= it.highest:
                yield f"a token goes back from {it.highest} of an earlier round: {told(grant)}"
        for one, two in combinations(sorted(grants, key=lambda grant: grant.began), 2):
            lock = one.lock if one.lock == two.lock else f"{one.lock} and {two.lock}"
            if one.token == two.token:
                yield f"two grants of {lock} have the token {one.token}: {told(one)}, and {told(two)}"
            elif one.ended < two.began and one.token > two.token:
                yield f"the token of {lock} goes back from {one.token} to {two.token}: {told(one)}, then {told(two)}"


def releases(it: Round) -> Iterator[str]:
    """No release succeeds for a hold that has ended, which a later grant to another proves.

    The store for Symfony (php) is left out: its release succeeds in any case.
    """
    for lock, grants in by_lock(it).items():
        for one in grants:
            if one.program.startswith("php") or not is_released(it, one) or it.loses and has_reason(it, one, one.began, one.released):
                continue
            if one.claimed_until() >= (one.releasing or 0):
                continue
            for two in grants:
                follows = one.token < two.token and one.ended < two.ended < (one.releasing or 0)
                number = one.slot is not None and one.slot == two.slot
                if follows and (number or excludes(one, two)):
                    yield f"released in {lock} after another was granted it: {told(one)}, and {told(two)}"


def refusals(it: Round) -> Iterator[str]:
    """No request is refused a lock that has certainly been free for a second."""
    for lock, attempts in asked(it).items():
        holds = [(*span, each) for each in attempts if (span := may_hold(it, each))]
        row = 0
        for one in attempts:
            if one.result != "refused":
                continue
            since = one.began - SECOND
            taken = any(begin < one.ended and since < end for begin, end, each in holds if each is not one)
            if taken or is_disturbed(it, one, since):
                row = 0
                continue
            row += 1
            # On a busy machine, a short wait may run out although the lock is free.
            if not 0 < one.wait < SHORT or row >= MANY:
                yield f"refused though nobody may have had {lock} for a second: {told(one)}"


def calm(it: Round) -> Iterator[str]:
    """After the last fault, each lock that is asked for is granted to a program, unless an earlier hold may last.

    Earlier holds explain that some locks are refused, but not that no lock is granted at all.
    """
    after = [each for each in it.attempts if each.began >= it.calm and each.result == "refused"]
    granted = any(each.is_granted and each.ended >= it.calm for each in it.attempts)
    if it.calm and len(after) >= PLENTY and not granted and not it.replicates:
        yield f"nothing was granted to {len(after)} who asked after the last fault: {told(after[0])}"
    for lock, attempts in asked(it).items() if it.calm else ():
        if any(each.is_granted and each.ended >= it.calm for each in attempts):
            continue
        holds = [span for each in attempts if each.result != "refused" and (span := may_hold(it, each))]
        refused = [each for each in attempts if each.result == "refused" and each.began >= it.calm
                   and not any(begin < each.ended and each.began < end for begin, end in holds)]
        if len(refused) >= MANY:
            yield f"{lock} was granted to nobody of {len(refused)} after the last fault: {told(refused[0])}"


def limits(it: Round) -> Iterator[str]:
    """Every acquisition ends within its limit."""
    for attempt in it.attempts:
        # The store for Symfony has no limits of its own: those of its client count.
        if attempt.result == "died" or attempt.program.startswith("php"):
            continue
        # An acquisition without a wait may take a second, and every one 250 ms more: docs/time-limits.md.
        limit = max(attempt.wait, 1000) * MS + 250 * MS + GRACE
        limit += OPENING if attempt.kind == "named" else 0
        limit += ACKNOWLEDGING if it.loses else 0
        limit += stopped(it, attempt, attempt.began, attempt.ended) + lateness(it, attempt.began, attempt.ended)
        took = attempt.ended - attempt.began
        if took > limit:
            yield f"an acquisition took {took / MS:.0f} ms instead of {limit / MS:.0f}: {told(attempt)}"


def losses(it: Round) -> Iterator[str]:
    """A program that loses a lock is told of the loss in time, and the loss has a reason."""
    for attempt in it.attempts:
        ended = next((sample for sample in attempt.samples if not sample.believes), None)
        heard = next((sample for sample in attempt.samples if sample.lost), None)
        if ended is not None and attempt.killed is None:
            until = heard.before if heard else attempt.samples[-1].before
            slack = GRACE + stopped(it, attempt, ended.before, until) + lateness(it, ended.before, until)
            if until - ended.before > slack:
                yield f"a loss was not told for {(until - ended.before) / MS:.0f} ms: {told(attempt)}"
        said = [sample for sample in attempt.samples if sample.believes]
        early = heard is not None and said and heard.before < said[-1].before + said[-1].remaining
        if attempt.is_granted and (early or attempt.release == "lost" and attempt.samples[-1].believes):
            at = heard.before if heard else attempt.released
            if not can_end(it, attempt, at):
                yield f"a lock was lost for no reason: {told(attempt)}"


def reasons(it: Round) -> Iterator[str]:
    """Every error has a fault that explains it."""
    for attempt in it.attempts:
        # On a busy machine, servers and replicas may be silent for so short a wait.
        if attempt.result in ("unreachable", "too-few-replicas") and 0 < attempt.wait < SHORT:
            continue
        if attempt.result in FAILURES and not has_reason(it, attempt, attempt.began, attempt.ended):
            yield f"an acquisition failed for no reason, {attempt.result} {attempt.message}: {told(attempt)}"
        if attempt.release in FAILURES and not has_reason(it, attempt, attempt.began, attempt.released):
            yield f"a release failed for no reason, {attempt.release} {attempt.release_message}: {told(attempt)}"


def leftovers(it: Round) -> Iterator[str]:
    """After the round, servers have only holds that a program did not release, could not release, or died with."""
    grants = {grant.token: grant for grant in it.attempts if grant.is_granted}
    for lock in it.left:
        for hold in lock.get("holds", []):
            process = process_of(hold["owner"])
            grant = grants.get(hold["token"])
            if process in it.killed or (grant is not None and grant.killed is not None):
                continue
            # A program loses a lock before the server frees it: if it cannot renew the lock in time, or if the agent
            # starts again, which then does not know the holds on its servers.
            if grant is not None and not is_released(it, grant):
                continue
            of_it = [each for each in it.attempts if each.process == process and each.lock == lock["lock"]]
            # A token is the unix time of its grant. Attempts of this process at that time may have led to the hold.
            then = hold["token"] - it.unix
            its = [each for each in of_it if each.began - 50 * MS < then < each.ended + CLEANING]
            if grant is None and any(is_unsure(it, each) for each in its or of_it):
                continue
            of_whom = told(grant) if grant else f"{hold['owner']}, whose program was granted nothing"
            yield f"left in {lock['lock']} after its end: the token {hold['token']} of {of_whom}"
        if lock.get("waiters"):
            yield f"left in {lock['lock']}: {lock['waiters']} waiters"


def is_released(it: Round, grant: Attempt) -> bool:
    """Returns whether a release has certainly freed the lock on the server.

    The store for Symfony reports a success for a lost lock, too. If the agent is killed, a release is sent again, and
    the next agent answers that there is no such lock, although its servers may have it. A release that had not reached
    a replica when the replica took over is undone: the hold lasts until its lease ends.
    """
    undone = it.replicates and any(kind in ("failover", "freeze") and since < grant.released + AFTERMATH
                                   and (grant.releasing or 0) < until for kind, _, since, until in it.faults)
    again = any(kind == "agent killed" and since < grant.released and (grant.releasing or 0) < until
                for kind, _, since, until in it.faults)
    return grant.release == "released" and not again and not undone and not (
        grant.program.startswith("php") and has_reason(it, grant, grant.began, grant.released))


def is_unsure(it: Round, attempt: Attempt) -> bool:
    """Returns whether servers may keep what an attempt was granted, because its package could not release it."""
    since, until = attempt.began, attempt.ended + CLEANING
    # Servers may grant a request of an agent that was killed. The next agent does not know this hold.
    if any(kind == "agent killed" and begin < until and since < end for kind, _, begin, end in it.faults):
        return True
    # `dlock run` ends at the limit of its wait, and so does its try to release what it may have been granted.
    if attempt.result == "refused" and attempt.program == "dlock run" and attempt.wait:
        return has_reason(it, attempt, attempt.began, attempt.ended)
    if attempt.result != "canceled":
        return attempt.result in FAILURES
    return any(begin < until and since < end and min(end, until) - max(begin, since) > CLEANING // 2
               for _, whom, begin, end in it.faults if concerns(whom, attempt))


def of_majority(servers: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Returns the locks of a quorum: the holds that a majority of servers has, each with its most frequent token."""
    seen, found = defaultdict(list), []
    for lock in (lock for locks in servers for lock in locks):
        seen[lock["lock"]].append(lock)
    for locks in seen.values():
        tokens: dict[str, list[int]] = defaultdict(list)
        for hold in (hold for lock in locks for hold in lock.get("holds", [])):
            tokens[hold["owner"]].append(hold["token"])
        holds = [{"owner": owner, "token": Counter(each).most_common(1)[0][0]}
                 for owner, each in tokens.items() if len(each) > len(servers) // 2]
        waiters = max(lock.get("waiters", 0) for lock in locks) if len(locks) > len(servers) // 2 else 0
        if holds or waiters:
            found.append({"lock": locks[0]["lock"], "holds": holds, "waiters": waiters})
    return found


def process_of(owner: str) -> int:
    """Returns the process id in the name of an owner, HOST:PID:…; 0 if there is none."""
    parts = owner.split(":")
    return int(parts[1]) if len(parts) > 2 and parts[1].isdigit() else 0


def has_reason(it: Round, attempt: Attempt, begin: int, end: int) -> bool:
    """Returns whether the program of an attempt may have felt a fault in that time, or the machine was very late."""
    felt = (fault for fault in it.faults if concerns(fault[1], attempt))
    if lateness(it, begin, end) > GRACE:
        return True
    return any(since < end and begin < until + AFTERMATH for _, _, since, until in felt)


def asked(it: Round) -> dict[str, list[Attempt]]:
    """Returns the attempts of each lock, in the order in which they began."""
    locks = defaultdict(list)
    for attempt in sorted(it.attempts, key=lambda attempt: attempt.began):
        locks[attempt.lock].append(attempt)
    return locks


def may_hold(it: Round, attempt: Attempt) -> tuple[int, int] | None:
    """Returns from when to when servers may have had a hold of an attempt; None if they certainly had none."""
    its, lease = attempt, (attempt.lease + (TIMEOUT if attempt.kind == "named" else 0)) * MS
    if not its.result:
        return its.began, 1 << 62
    if its.is_granted:
        if is_released(it, its):
            return its.began, its.released
        last = its.samples[-1].after if its.samples else 0
        return its.began, max(its.ended, its.released, its.killed or 0, last) + lease
    if is_unsure(it, its) or its.result in ("died", "hung"):
        return its.began, its.ended + CLEANING + lease
    # On one server, a refused request never was a hold. In a quorum, requests hinder each other on single servers. A
    # grant that no replica acknowledges is a hold for a while.
    if its.result == "refused" and it.is_one:
        return None
    if has_reason(it, its, its.began, its.ended):
        return its.began, its.ended + CLEANING
    # Without a fault, a grant that meets the cancellation of its request is a hold for a moment only.
    return max(its.began, its.ended - SHORT * MS) if it.is_one else its.began, its.ended


def is_disturbed(it: Round, attempt: Attempt, since: int) -> bool:
    """Returns whether a fault or a late machine may have caused a refusal, rather than a held lock."""
    if attempt.wait and lateness(it, attempt.began, attempt.ended) > attempt.wait * MS // 2:
        return True
    return any(begin < attempt.ended and since < end for _, whom, begin, end in it.faults if concerns(whom, attempt))


def can_end(it: Round, attempt: Attempt, at: int) -> bool:
    """Returns whether a fault can have ended a hold by the time at which its loss was told.

    Servers or an agent may have forgotten the hold, its program may have got no answers for too long, or its release
    was sent twice.
    """
    quiet, needed = lateness(it, attempt.began, at), needs(attempt, at)
    for kind, whom, since, until in it.faults:
        if not concerns(whom, attempt):
            continue
        forgets = kind in ENDINGS or kind == "freeze" and it.replicates
        if forgets and since < at and attempt.began < until + (AFTERMATH if it.loses else 0):
            return True
        breaks = forgets or kind in BREAKS or kind == "freeze"
        if breaks and attempt.release == "lost" and since < at and (attempt.releasing or at) < until + SECOND:
            return True
        quiet += max(0, min(at, silent_until(kind, since, until)) - max(attempt.began, since))
    return quiet >= needed


def needs(attempt: Attempt, at: int) -> int:
    """Returns how long a program must be without answers to lose a hold: what was left of its lease.

    A named session ends earlier. `dlock run` does not say what is left. It ends its command while there is time to kill
    the command: (lease - killing) * 2 / 3 after the last renewal. The next renewal is due after a third of the lease:
    the silence lasts at least from then to the end of the command.
    """
    if attempt.program == "dlock run":
        killing = 1000 + min(max(attempt.lease // 20, 300), 5000)
        return (attempt.lease - 2 * killing) * MS // 3
    last = [sample for sample in attempt.samples if sample.believes][-1]
    left = last.before + last.remaining - at
    return min(left, TIMEOUT * MS // 2) if attempt.kind == "named" else left


def silent_until(kind: str, since: int, until: int) -> int:
    """Returns until when a fault lets no answers pass."""
    if kind.startswith("delay"):
        # A command waits for the one before it, and both are delayed on the way to the server and back: four delays.
        return min(until, since + 4 * int(kind.split()[2]) * MS)
    return until + SECOND if kind == "cut" else until


def concerns(whom: str, attempt: Attempt) -> bool:
    """Returns whether the program of an attempt is among the programs that a fault concerns."""
    return not whom or attempt.program in whom.split(",")


def stopped(it: Round, attempt: Attempt, begin: int, end: int) -> int:
    """Returns for how much of that time the program of an attempt was stopped."""
    spans = ((max(begin, since), min(end, until)) for kind, whom, since, until in it.faults
             if kind == "program stopped" and concerns(whom, attempt))
    return sum(max(0, until - since) for since, until in spans)


def lateness(it: Round, begin: int, end: int) -> int:
    """Returns how much the delays of the machine in that time may have added to what a program saw."""
    return HANDS * sum(length for until, length in it.late if begin < until and until - length < end)


def told(attempt: Attempt) -> str:
    """Returns an attempt as a text for the reader of a violation."""
    said = attempt.believed()
    at = f" believed {said[0]}..{said[1]}, until {attempt.claimed_until()}" if said else ""
    result = f"{attempt.release} {attempt.release_message}".strip()
    release = f" released {attempt.releasing} ({result})" if attempt.releasing is not None else ""
    slot = f" number {attempt.slot}" if attempt.slot is not None else ""
    return (f"{attempt.name} {attempt.mode} {attempt.kind} {attempt.lease} ms, wait {attempt.wait} ms, "
            f"asked {attempt.began}, {attempt.result} {attempt.ended}, token {attempt.token}{slot}{at}{release}")
