"""Reads the replies to `DLOCK.INFO`."""

from __future__ import annotations

from typing import Any

from .commands import Mode


def fields(reply: Any) -> dict[str, Any]:
    """Returns a map, which RESP2 sends as a flat array."""
    if reply is None:
        return {}
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {_text(name): value for name, value in pairs}


def of_owner(reply: Any, mode: Mode) -> dict[str, Any] | None:
    """Returns the owner's hold of this mode, from the reply to `DLOCK.INFO … OWNER`."""
    wanted = "shared" if mode == "read" else "exclusive"
    holds = map(fields, fields(reply).get("holds", []))
    return next((hold for hold in holds if _text(hold["mode"]) == wanted), None)


def _text(word: Any) -> Any:
    return word.decode() if isinstance(word, bytes) else word
