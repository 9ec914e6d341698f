"""One acquisition, however often it is sent."""

from __future__ import annotations

import math
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from . import commands
from .commands import Command, Target

# A reply may take this much longer than `BLOCK` before its connection counts as dead, in seconds.
_GRACE = 5.0
# Event loops cannot handle infinity, in seconds.
_YEAR = 31536000.0


@dataclass(frozen=True)
class Replicas:
    """How many replicas must acknowledge a grant and a renewal, and in how many seconds."""

    count: int
    timeout: float

    def wait(self) -> Command:
        """Returns the command that waits for them."""
        return commands.wait(self.count, self.timeout)

    def too_few(self, acknowledged: int) -> str:
        """Returns the message for a grant or a renewal that too few of them acknowledged."""
        return f"{acknowledged} of {self.count} replicas acknowledged within {self.timeout:g} s"


@dataclass
class Attempt:
    """Repeats carry the same `REQUEST`: after a lost connection, a repeat gets the place or the grant of the first."""

    target: Target
    owner: bytes
    lease: int | None
    session: bool
    # When waiting ends, by `time.monotonic()`. None: never.
    ends: float | None
    # False: do not wait at all.
    waits: bool = True
    # No command waits longer than this many seconds. None: one command waits for the whole time.
    wait_slice: float | None = None
    replicas: Replicas | None = None
    request: str = field(default_factory=lambda: uuid.uuid4().hex)

    # Whether the caller was cancelled.
    abandoned: bool = False
    # Whether a command was sent that may have waited.
    queued: bool = False
    # Whether a command was sent whose reply was not read. The lock may then be held.
    unanswered: bool = False
    # The token, from the moment the grant was read.
    token: int | None = None
    # The connection that a granted session is bound to.
    connection: Any = None
    # How many replicas acknowledged the grant. None: they were not asked yet.
    acknowledged: int | None = None

    def left(self) -> float:
        """Returns the seconds of waiting that are left; `inf` for an unlimited wait."""
        if not self.waits:
            return 0.0
        return math.inf if self.ends is None else max(0.0, self.ends - time.monotonic())

    def first(self) -> Command:
        """Returns the command that does not wait."""
        return self._acquire(None, session=self.session)

    def command(self) -> Command:
        """Returns the command to send now, which waits."""
        left = self._slice()
        block = 0 if left == math.inf else math.ceil(left * 1000) or None
        return self._acquire(block, session=self.session)

    def patience(self) -> float | None:
        """Returns the seconds to wait for the reply, because the client's own limit is for commands that do not wait.
        None: that limit."""
        left = self._slice()
        return min(left + _GRACE, _YEAR) if left else None

    def moves_on(self) -> float | None:
        """Returns the seconds after which the next slice is sent, well before this one ends. None: this is the last."""
        return None if self.wait_slice is None or self.left() <= self.wait_slice else self.wait_slice / 2

    def goes_on(self) -> bool:
        """Returns whether nil ended only a slice."""
        return self.wait_slice is not None and self.left() > 0

    def _slice(self) -> float:
        left = self.left()
        return left if self.wait_slice is None else min(left, self.wait_slice)

    def once_more(self) -> Command:
        """Returns a repeat that tells whether a command that was sent and given up has the lock."""
        return self._acquire(None, session=False)

    def undo(self, token: int) -> list[Command]:
        """Returns the commands that release what the attempt got."""
        return self.target.release(self.owner, token, uuid.uuid4().hex)

    def _acquire(self, block: int | None, *, session: bool) -> Command:
        options = commands.options(lease=self.lease, block=block, session=session, request=self.request)
        return (*self.target.acquire(self.owner), *options)
