"""The words of the commands, and what the server's error codes mean. Nothing is sent here."""

from __future__ import annotations

from typing import Literal, Union

Mode = Literal["exclusive", "read", "write"]
Name = Union[str, bytes, memoryview]
Word = Union[str, bytes, memoryview, int]
Command = tuple[Word, ...]

# The mode as `DLOCK.RELEASE` and `DLOCK.RENEW` name it.
_SIDE = {"exclusive": "WRITE", "write": "WRITE", "read": "READ"}
_ENTER = {"exclusive": "DLOCK.ACQUIRE", "write": "DLOCK.WLOCK", "read": "DLOCK.RLOCK"}


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, cut off as redis-py does."""
    return int(seconds * 1000)


def acquiring(mode: Mode, *, reentrant: bool) -> str:
    """The command that takes a lock."""
    if reentrant and mode == "exclusive":
        return "DLOCK.RACQUIRE"
    return _ENTER[mode]


def acquire(
    command: str, name: Name, owner: bytes, request: str, *, lease: int | None, session: bool, block: int | None
) -> Command:
    """`lease` in ms (None: the server's default), `block` in ms (0: for ever, None: do not wait)."""
    words: list[Word] = [command, name, owner]
    if lease is not None:
        words += ["PX", lease]
    if block is not None:
        words += ["BLOCK", block]
    if session:
        words.append("SESSION")
    return (*words, "REQUEST", request)


def release(name: Name, owner: bytes, mode: Mode, token: int | None, request: str) -> Command:
    """One entry of the hold with this fencing token; without one, of the hold that this owner happens to have."""
    words: list[Word] = ["DLOCK.RELEASE", name, owner, _SIDE[mode]]
    if token is not None:
        words += ["TOKEN", token]
    return (*words, "REQUEST", request)


def renew(name: Name, owner: bytes, mode: Mode, token: int | None, lease: int) -> Command:
    """`lease` ms from now on."""
    words: list[Word] = ["DLOCK.RENEW", name, owner, "PX", lease, _SIDE[mode]]
    if token is not None:
        words += ["TOKEN", token]
    return tuple(words)


def code(error: Exception) -> str:
    """The code of an error reply: its first word."""
    return str(error).split(" ", 1)[0]
