"""Reads the replies to `DLOCK.INFO`."""

from __future__ import annotations

from typing import Any

from .commands import Mode


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


def _text(word: Any) -> Any:
    return word.decode() if isinstance(word, bytes) else word
