"""The time limits of an acquisition, as a deadline for each step. Pure: reads no clock; times are arguments, in seconds
of one clock that only goes forward."""

from __future__ import annotations

import math
from dataclasses import dataclass

# How long an acquisition that does not wait looks for a server, in seconds.
TRY = 1.0
# An answer may come this much later than the limit of its wait, in seconds.
LATE = 0.15
# How long one connection may take to be made, or to answer a command that does not wait, in seconds. Then another
# connection is made, which may lead to another server.
STEP = 2.0
# How late `WAIT` may end, in seconds: a server looks ten times a second (`hz`) which waits are over.
ENDS_LATE = 0.1
# How long replicas have at least to acknowledge a grant, even if the wait is over, in seconds.
LAST_STEP = 0.05
# A `WAIT` behind a refused grant is not needed. Its connection is closed if it has not ended after this many seconds.
UNNEEDED = 0.02
# How long a server has at least to say whether an old grant still stands, even if the wait is over, in seconds.
LAST_QUESTION = 0.1
# How long a server has to refuse a command that waits, in seconds.
_MOMENT = 0.5
# A reply may take this much longer than `BLOCK` before its connection counts as dead, in seconds.
_GRACE = 5.0


@dataclass
class Limits:
    """The limits of one acquisition."""

    began: float
    # When waiting ends. None: never.
    ends: float | None
    # False: do not wait at all.
    waits: bool = True
    # How long a wait without a limit looks for a server, in seconds.
    outage: float = 30.0
    # No command waits longer than this many seconds. None: one command waits for the whole time.
    wait_slice: float | None = None
    # When a server answered last.
    heard: float = 0.0

    def __post_init__(self) -> None:
        self.heard = self.began

    @property
    def is_endless(self) -> bool:
        """Whether the acquisition waits without a limit."""
        return self.waits and self.ends is None

    def gives_up(self) -> float:
        """Returns when the acquisition stops looking for a server."""
        if not self.waits:
            return self.began + TRY
        return self.heard + self.outage if self.ends is None else self.ends

    def left(self, now: float) -> float:
        """Returns the seconds of waiting that are left; `inf` for an unlimited wait."""
        if not self.waits:
            return 0.0
        return math.inf if self.ends is None else max(0.0, self.ends - now)

    def step(self, now: float) -> float:
        """Returns until when a connection may be made, or a command that does not wait be answered."""
        return min(now + STEP, self.gives_up() + LATE)

    def question(self, now: float) -> float:
        """Returns until when the server may answer a question about an old grant."""
        return max(self.gives_up() + (0.0 if self.is_endless else LATE), now + LAST_QUESTION)

    def of_replicas(self, now: float, seconds: float) -> float:
        """Returns how long replicas may take to acknowledge a grant: the server answers by the end of the wait."""
        return seconds if self.is_endless else min(seconds, max(self.gives_up() - now - ENDS_LATE, LAST_STEP))

    def heartbeat(self) -> float:
        """Returns when a server should be asked whether it still answers, while a command waits."""
        return self.heard + self.outage / 3

    def soonest(self, now: float) -> float:
        """Returns when a server may be asked at the earliest whether it still answers, after a command that waits was
        sent. A server that is no primary refuses that command at once, but would answer the question."""
        return now + min(_MOMENT, self.outage / 8)

    def probe(self, now: float) -> float:
        """Returns until when a server may answer the question of `heartbeat`."""
        return min(now + min(self.outage / 3, TRY), max(now, self.gives_up()))

    def slice(self, now: float) -> float:
        """Returns the seconds that the next command may wait."""
        left = self.left(now)
        return left if self.wait_slice is None else min(left, self.wait_slice)

    def answer_by(self, now: float) -> float | None:
        """Returns until when the reply to a command that waits has to come. None: there is no limit."""
        if self.moves_on(now) is not None or self.left(now) == math.inf:
            return None if self.wait_slice is None else now + self.slice(now) + _GRACE
        return self.gives_up() + LATE

    def moves_on(self, now: float) -> float | None:
        """Returns the seconds after which the next slice of the wait is sent, well before this one ends. None: this
        slice is the last."""
        return None if self.wait_slice is None or self.left(now) <= self.wait_slice else self.wait_slice / 2
