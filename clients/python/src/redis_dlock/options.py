"""The settings that a caller may give, the reasons for a refusal, and the names of owners. Pure: reads no clock and
sends nothing."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

from .commands import Name

# The shortest timeout of a session and cap of its holds, and the longest lease and cap, in seconds.
SHORTEST = 0.3
_LONGEST = 31_536_000.0
# The shortest lease in ms: both sides count whole ms, so a lease of 2 ms is certain for no moment.
SHORTEST_LEASE = 3
# The longest owner that is made here, in bytes, and the random bytes at its end.
_LONGEST_OWNER = 64
RANDOM = 8


def check_names(names: Iterable[Name]) -> None:
    """Raises `ValueError` if a name is empty: a variable that is not set must not become a lock."""
    if not all(map(len, names)):
        raise ValueError("name is empty")


def check_seconds(**times: Any) -> None:
    """Raises `ValueError` for a time in seconds that is `inf`, or no number at all."""
    for name, seconds in times.items():
        if seconds is not None and not math.isfinite(seconds):
            raise ValueError(f"{name} is a number of seconds, not {seconds}")


def check_limit(name: str, seconds: Any) -> None:
    """Raises `ValueError` if a time limit is no number. `inf` is no limit."""
    if seconds is not None and math.isnan(seconds):
        raise ValueError(f"{name} is a number of seconds, not {seconds}")


def check_lease(name: str, seconds: float | None) -> None:
    """Raises `ValueError` for a lease that is too long for a server, or no number."""
    if seconds is None:
        return
    if not math.isfinite(seconds):
        raise ValueError(f"{name} is a number of seconds, not {seconds}")
    if seconds > _LONGEST:
        raise ValueError(f"{name} is 31536000 seconds (365 days) at most")


def check_certain(name: str, seconds: float | None) -> None:
    """Raises `ValueError` for a lease of which nothing would be certain."""
    check_lease(name, seconds)
    if seconds and seconds < SHORTEST_LEASE / 1000:
        raise ValueError(f"{name} is {SHORTEST_LEASE / 1000:g} seconds or more: of a shorter lease nothing is certain")


def check_cap(max_hold: float | None, timeout: float | None, *, binds: bool) -> None:
    """Raises `ValueError` for a cap that the server would refuse, or of which nothing would be certain. `binds`: the
    hold is bound to a session."""
    if max_hold is None:
        return
    if not SHORTEST_LEASE / 1000 <= max_hold <= _LONGEST:
        raise ValueError(f"max_hold is {SHORTEST_LEASE / 1000:g} to 31536000 seconds")
    if timeout and timeout > max_hold:
        raise ValueError("timeout is max_hold at most")
    if binds and max_hold < SHORTEST:
        raise ValueError("max_hold of a session is 0.3 or more")


def check_label(label: str | None) -> None:
    """Raises `ValueError` for a label that makes no owner."""
    if label is None:
        return
    longest = _LONGEST_OWNER - 2 * RANDOM - 1
    if not label or len(label.encode()) > longest:
        raise ValueError(f"label is 1 to {longest} bytes")
    if not label.isprintable():
        raise ValueError("label is printable")


def owner_of_process(host: str, process: int, number: int, random: bytes) -> bytes:
    """Returns an owner that says where it is: `HOST:PID:NUMBER:RANDOM`, 64 bytes at most."""
    end = f":{process}:{number}:{random.hex()}"
    return (_plain(host)[: _LONGEST_OWNER - len(end)] + end).encode()


@functools.lru_cache(maxsize=1)
def _plain(host: str) -> str:
    """Returns the name of a host as owners have it."""
    plain = "".join(each if each.isascii() and (each.isalnum() or each in ".-_") else "-" for each in host.strip())
    return plain or "host"


def owner_of_label(label: str, random: bytes) -> bytes:
    """Returns an owner that the caller named: `LABEL:RANDOM`."""
    return f"{label}:{random.hex()}".encode()
