"""Reads the replies to `DLOCK.INFO`."""

from __future__ import annotations

from typing import Any

from .commands import Command, Mode, Target


def fields(reply: Any) -> dict[str, Any]:
    """Returns the fields of a map, by their names as text. RESP2 sends a map as a flat array. Nil has no fields."""
    if reply is None:
        return {}
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {_text(name): value for name, value in pairs}


def of_owner(reply: Any, mode: Mode) -> dict[str, Any] | None:
    """Returns the owner's hold of this mode, from the reply to `DLOCK.INFO … OWNER`; None: there is none."""
    wanted = "shared" if mode == "read" else "exclusive"
    holds = map(fields, fields(reply).get("holds", []))
    return next((hold for hold in holds if _text(hold["mode"]) == wanted), None)


def releases(target: Target, owner: bytes, replies: list[Any], request: str) -> list[Command]:
    """Returns the commands that release what the owner has, from the replies to `Target.ask`. They name the token and
    the entries of each hold, so that a command that is executed late releases nothing that the owner gets later."""
    found = [(name, of_owner(reply, target.mode)) for name, reply in zip(target.names, replies)]
    return [
        ("DLOCK.RELEASE", name, owner, target.side, "PERMITS", hold["count"], "TOKEN", hold["token"], "REQUEST", request)
        for name, hold in found if hold is not None
    ]


def _text(word: Any) -> Any:
    return word.decode() if isinstance(word, bytes) else word
