"""The settings that a caller may give, the reasons for a refusal, and the names of owners. Pure: reads no clock and
sends nothing."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

from .commands import Name

# The shortest timeout of a session, and the shortest cap of a hold that is bound to one, in seconds.
SHORTEST = 0.3
# The longest lease and the longest cap, in seconds.
_LONGEST = 31_536_000.0
# The shortest lease in ms: the client counts on 2 ms less, because both sides count whole ms.
SHORTEST_LEASE = 3
# The longest owner that this package makes, in bytes.
_LONGEST_OWNER = 64
# The number of random bytes at the end of an owner, where they are written in hex.
RANDOM = 8


def check_names(names: Iterable[Name]) -> None:
    """Raises `ValueError` if a name is empty: a variable that is not set must not become a lock."""
    if not all(map(len, names)):
        raise ValueError("name is empty")


def check_seconds(**times: Any) -> None:
    """Raises `ValueError` for a time in seconds that is infinite or NaN."""
    for name, seconds in times.items():
        if seconds is not None and not math.isfinite(seconds):
            raise ValueError(f"{name} must be a number of seconds, not {seconds}")


def check_limit(name: str, seconds: Any) -> None:
    """Raises `ValueError` if a time limit is NaN. `inf` is no limit."""
    if seconds is not None and math.isnan(seconds):
        raise ValueError(f"{name} must be a number of seconds, not {seconds}")


def check_lease(name: str, seconds: float | None) -> None:
    """Raises `ValueError` for a lease that is longer than a server accepts, infinite or NaN."""
    if seconds is None:
        return
    if not math.isfinite(seconds):
        raise ValueError(f"{name} must be a number of seconds, not {seconds}")
    if seconds > _LONGEST:
        raise ValueError(f"{name} must be 31536000 seconds (365 days) at most, not {seconds}")


def check_certain(name: str, seconds: float | None) -> None:
    """Raises `ValueError` for a lease that `check_lease` refuses, or so short that the client could never be certain of
    the hold. 0 stands for no lease."""
    check_lease(name, seconds)
    if seconds and seconds < SHORTEST_LEASE / 1000:
        least = f"{SHORTEST_LEASE / 1000:g} seconds or more (no hold is certain for a shorter lease)"
        raise ValueError(f"{name} must be {least}, not {seconds}")


def check_cap(max_hold: float | None, timeout: float | None, *, binds: bool) -> None:
    """Raises `ValueError` for a cap that the server would refuse, or under which the client could never be certain of
    the hold. `binds`: the hold is bound to a session."""
    if max_hold is None:
        return
    if not SHORTEST_LEASE / 1000 <= max_hold <= _LONGEST:
        raise ValueError(f"max_hold must be {SHORTEST_LEASE / 1000:g} to 31536000 seconds, not {max_hold}")
    if timeout and timeout > max_hold:
        raise ValueError(f"timeout must be max_hold ({max_hold}) at most, not {timeout}")
    if binds and max_hold < SHORTEST:
        raise ValueError(f"max_hold with a session must be {SHORTEST} or more, not {max_hold}")


def check_label(label: str | None) -> None:
    """Raises `ValueError` for a label that is empty, not printable, or too long for an owner."""
    if label is None:
        return
    longest = _LONGEST_OWNER - 2 * RANDOM - 1
    if not label or len(label.encode()) > longest:
        raise ValueError(f"label must have 1 to {longest} bytes, not {len(label.encode())}")
    if not label.isprintable():
        raise ValueError(f"label must be printable, unlike {label!r}")


def owner_of_process(host: str, process: int, number: int, random: bytes) -> bytes:
    """Returns an owner that names its host and process: `HOST:PID:NUMBER:RANDOM`, 64 bytes at most. A long name of a
    host is cut."""
    end = f":{process}:{number}:{random.hex()}"
    return (_plain(host)[: _LONGEST_OWNER - len(end)] + end).encode()


@functools.lru_cache(maxsize=1)
def _plain(host: str) -> str:
    """Returns the name of a host with `-` in place of every character that is no ASCII letter, digit, `.`, `-` or
    `_`."""
    plain = "".join(each if each.isascii() and (each.isalnum() or each in ".-_") else "-" for each in host.strip())
    return plain or "host"


def owner_of_label(label: str, random: bytes) -> bytes:
    """Returns an owner that begins with the caller's label: `LABEL:RANDOM`."""
    return f"{label}:{random.hex()}".encode()
