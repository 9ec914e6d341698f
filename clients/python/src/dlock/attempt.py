"""One acquisition, however often it has to be sent."""

from __future__ import annotations

import math
import time
import uuid
from dataclasses import dataclass, field

from . import commands
from .commands import Command, Mode, Name

# How much longer than `BLOCK` a reply may take before its connection counts as dead, in seconds.
_GRACE = 5.0
# Event loops do not know infinity, in seconds.
_YEAR = 31536000.0


@dataclass
class Attempt:
    """Sent again with the same `REQUEST` after a lost connection, it gets the place or the grant of the first."""

    name: Name
    owner: bytes
    mode: Mode
    reentrant: bool
    lease: int | None
    session: bool
    # When waiting ends, by `time.monotonic()`. None: never. It has passed: the lock is asked for once.
    ends: float | None
    # No command waits longer than so many seconds. None: one command waits for all of it.
    wait_slice: float | None = None
    request: str = field(default_factory=lambda: uuid.uuid4().hex)

    def left(self) -> float:
        """Seconds of waiting that are left; `inf` for ever."""
        return math.inf if self.ends is None else max(0.0, self.ends - time.monotonic())

    def command(self) -> Command:
        """What to send now."""
        left = self._slice()
        block = 0 if left == math.inf else math.ceil(left * 1000) or None
        return self._acquire(block, session=self.session)

    def patience(self) -> float | None:
        """Seconds to wait for the reply: the client's own time limit is for commands that do not wait.
        None: that one."""
        left = self._slice()
        return min(left + _GRACE, _YEAR) if left else None

    def moves_on(self) -> float | None:
        """Seconds after which the next slice is sent, well before this one ends. None: this is the last one."""
        return None if self.wait_slice is None or self.left() <= self.wait_slice else self.wait_slice / 2

    def goes_on(self) -> bool:
        """Whether nil was the end of a slice only."""
        return self.wait_slice is not None and self.left() > 0

    def _slice(self) -> float:
        left = self.left()
        return left if self.wait_slice is None else min(left, self.wait_slice)

    def once_more(self) -> Command:
        """Not to get the lock, but to learn whether the one that was sent and given up has it."""
        return self._acquire(None, session=False)

    def undo(self, token: int) -> Command:
        """Gives up what it got."""
        return commands.release(self.name, self.owner, self.mode, token, uuid.uuid4().hex)

    def _acquire(self, block: int | None, *, session: bool) -> Command:
        command = commands.acquiring(self.mode, reentrant=self.reentrant)
        return commands.acquire(
            command, self.name, self.owner, self.request, lease=self.lease, session=session, block=block
        )
