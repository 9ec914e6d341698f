"""The errors that the packages document, as their programs name them, and what each tells."""

from __future__ import annotations

import re

UNREACHABLE, LOST, REFUSED, REPLICAS = "unreachable", "lost", "refused", "too-few-replicas"

ERRORS: dict[str, dict[str, str]] = {
    "python": {
        "redis.exceptions.LockError": REFUSED,
        "redis.exceptions.LockNotOwnedError": LOST,
        "redis.exceptions.ConnectionError": UNREACHABLE,
        "redis.exceptions.TimeoutError": UNREACHABLE,
        # Kinds of ConnectionError. The first is the `LOADING` of an agent that reaches no majority.
        "redis.exceptions.BusyLoadingError": UNREACHABLE,
        "redis.sentinel.MasterNotFoundError": UNREACHABLE,
        "redis.asyncio.sentinel.MasterNotFoundError": UNREACHABLE,
        "redis_dlock.errors.ReplicasError": REPLICAS,
    },
    "node": {
        "NotGranted": REFUSED,
        "LockLost": LOST,
        "NoAnswer": UNREACHABLE,
        "TooFewReplicas": REPLICAS,
    },
    "php": {
        "Symfony\\Component\\Lock\\Exception\\LockConflictedException": REFUSED,
        "Symfony\\Component\\Lock\\Exception\\LockExpiredException": LOST,
        "Symfony\\Component\\Lock\\Exception\\LockAcquiringException": UNREACHABLE,
        "Symfony\\Component\\Lock\\Exception\\LockReleasingException": UNREACHABLE,
    },
    "java": {
        "LockLostException": LOST,
        "UnavailableException": UNREACHABLE,
        "TooFewReplicasException": REPLICAS,
    },
    "go": {
        "ErrNotGranted": REFUSED,
        "ErrLost": LOST,
        "ErrUnreachable": UNREACHABLE,
        "ErrTooFewReplicas": REPLICAS,
    },
    "rust": {
        "Error::Contention": REFUSED,
        "Error::Lost": LOST,
        "Error::Unreachable": UNREACHABLE,
        "Error::TooFewReplicas": REPLICAS,
    },
    "ruby": {
        "Dlock::NotGranted": REFUSED,
        "Dlock::Lost": LOST,
        "Dlock::Unreachable": UNREACHABLE,
        "Dlock::TooFewReplicas": REPLICAS,
    },
}

ERRORS["asyncio"] = ERRORS["python"]


# The lines that a package logs about a release that failed, when it does not raise that failure.
LOGGED = {"python": re.compile(r"The release of .+ failed: .+|.+ was not released: .+")}
LOGGED["asyncio"] = LOGGED["python"]


def odd(program: str, written: str) -> list[str]:
    """Returns the lines of a program's stderr that are not from the log of its package."""
    logged = LOGGED.get(program.split()[0])
    return [line for line in written.splitlines() if line and not (logged and logged.fullmatch(line))]


def meaning(program: str, kind: str, inside: bool) -> str | None:
    """Returns what an error tells; None: it is not documented.

    `inside`: the program had the lock. A refusal then means that the lock is lost.
    """
    # The program's own error: its work stops, because the lock is lost.
    if kind == "abandoned":
        return kind if inside else None
    told = ERRORS.get(program.split()[0], {}).get(kind)
    return LOST if told == REFUSED and inside else told
