"""Builds the commands of the module. Sends nothing."""

from __future__ import annotations

import math
import time
from typing import Any, Literal, NamedTuple, Union

Mode = Literal["exclusive", "read", "write"]
Name = Union[str, bytes, memoryview]
Word = Union[str, bytes, memoryview, int]
Command = tuple[Word, ...]

# The mode as `DLOCK.RELEASE` and `DLOCK.RENEW` name it.
_SIDE = {"exclusive": "WRITE", "write": "WRITE", "read": "READ"}
_ENTER = {"exclusive": "DLOCK.ACQUIRE", "write": "DLOCK.WLOCK", "read": "DLOCK.RLOCK"}


def milliseconds(seconds: float) -> int:
    """Returns whole milliseconds, truncated as in redis-py. Raises `ValueError` for `inf`."""
    if not math.isfinite(seconds):
        raise ValueError(f"a time must be a number of seconds, not {seconds}")
    return int(seconds * 1000)


def rest_of(until: float) -> int:
    """Returns the milliseconds left until a time of `time.monotonic()`, rounded up; 0 if that has passed."""
    return max(0, math.ceil((until - time.monotonic()) * 1000)) if until > -math.inf else 0


class Target(NamedTuple):
    """The target of a lock object: the keys, the mode, and the commands for them."""

    # A single key, or several that are locked together.
    names: tuple[Name, ...]
    mode: Mode
    reentrant: bool = False
    # For a semaphore: the limit, and the permits that one acquisition takes.
    limit: int | None = None
    permits: int = 1
    # Whether the holder of a permit gets a number, too (`SLOT`).
    numbered: bool = False
    # Whether `DLOCK.MACQUIRE` takes all of the names or none, even if there is only one.
    together: bool = False

    @property
    def side(self) -> str:
        """Returns the mode as `RELEASE` and `RENEW` name it."""
        return _SIDE[self.mode]

    @property
    def enters(self) -> bool:
        """Returns whether an owner that holds a lock already may be granted it again, or in another mode."""
        return not self.together and (self.reentrant or self.mode != "exclusive" or self.limit is not None)

    def acquire(self, owner: bytes) -> Command:
        """Returns the acquiring command up to its options."""
        if self.together:
            return ("DLOCK.MACQUIRE", len(self.names), *self.names, owner)
        if self.limit is not None:
            what: Command = ("SLOT",) if self.numbered else ("PERMITS", self.permits)
            return ("DLOCK.SACQUIRE", self.names[0], owner, self.limit, *what)
        if self.reentrant and self.mode == "exclusive":
            return ("DLOCK.RACQUIRE", self.names[0], owner)
        return (_ENTER[self.mode], self.names[0], owner)

    def release(
        self, owner: bytes, token: int | None, request: str, entries: int, *, every: bool = False
    ) -> list[Command]:
        """Returns a command for each key. Each releases `entries` entries (of a semaphore: permits) of the hold with
        this token, or with `every` all of them. Without a token, it releases those of any hold of the owner."""
        which: Command = () if token is None else ("TOKEN", token)
        count: Command = ("ALL",) if every else ("PERMITS", entries) if entries > 1 else ()
        return [
            ("DLOCK.RELEASE", name, owner, self.side, *count, *which, "REQUEST", request) for name in self.names
        ]

    def renew(
        self, owner: bytes, token: int | None, lease: int | None, *, bind: bool = False, session: str | None = None
    ) -> list[Command]:
        """Returns a command for each key that sets the deadline to `lease` ms from now, or renews by the hold's own
        lease. With `bind`, the hold is bound to the connection that sends the command, with `session` to that named
        session."""
        length: Command = () if lease is None else ("PX", lease)
        which: Command = () if token is None else ("TOKEN", token)
        to: Command = ("SESSIONID", session) if session is not None else ("SESSION",) if bind else ()
        return [("DLOCK.RENEW", name, owner, *length, self.side, *to, *which) for name in self.names]

    def bind(self, owner: bytes, token: int, session: str) -> list[Command]:
        """Returns commands that bind the hold to the named session, and renew it by its own lease."""
        return self.renew(owner, token, None, session=session)

    def renew_for(self, owner: bytes, token: int, lease: int | None, stays_until: float) -> list[Command]:
        """Returns renewals by `lease` ms or the hold's own lease. One by `lease` does not end the hold before
        `stays_until`, a time of `time.monotonic()`."""
        return self.renew(owner, token, lease if lease is None else max(lease, rest_of(stays_until)))

    def ask(self, owner: bytes) -> list[Command]:
        """Returns a command for each key that asks for the owner's holds."""
        return [("DLOCK.INFO", name, "OWNER", owner) for name in self.names]

    def check(self, token: int) -> list[Command]:
        """Returns a command for each key that asks how many milliseconds are left of the hold with this token."""
        return [("DLOCK.CHECK", name, token) for name in self.names]


def token_and_slot(reply: Any) -> tuple[int | None, int | None]:
    """Returns the token and the number (`SLOT`) from the reply to an acquiring command. Without a grant, both are None;
    of a grant without a number, the number is None."""
    if isinstance(reply, list):
        token, slot = reply
        return token, slot
    return reply, None


def options(
    *,
    lease: int | None,
    block: int | None,
    session: bool,
    request: str,
    named: str | None = None,
    max_hold: int | None = None,
) -> Command:
    """Returns the options of an acquiring command. `lease` in ms (None: the server's default), `block` in ms
    (0: forever, None: do not wait), `named`: the id of a session, `max_hold`: the cap in ms."""
    words: list[Word] = []
    if lease is not None:
        words += ["PX", lease]
    if block is not None:
        words += ["BLOCK", block]
    if session:
        words.append("SESSION")
    if named is not None:
        words += ["SESSIONID", named]
    if max_hold is not None:
        words += ["MAXHOLD", max_hold]
    return (*words, "REQUEST", request)


def wait(replicas: int, seconds: float) -> Command:
    """Returns the command that waits, at most `seconds`, until replicas have acknowledged what its connection wrote."""
    return ("WAIT", replicas, max(1, milliseconds(seconds)))


def code(error: Exception) -> str:
    """Returns the code of an error reply: its first word."""
    return str(error).split(" ", 1)[0]
