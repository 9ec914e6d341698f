"""The next step of one acquisition, from its commands and their replies. Pure: reads no clock and sends nothing; times
are arguments, in seconds of one clock that only goes forward. The rules are those of tests/clients/histories.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from .limits import Limits
from .validity import MARGIN

# The command to send next, or the outcome.
Do = Literal["try", "wait", "confirm", "granted", "refused", "unreachable", "canceled", "failed"]
# The outcome may leave on the server: nothing; perhaps a place in the queue or a hold; a hold whose token is known.
Cleanup = Literal["none", "leave", "release"]


class Turn(NamedTuple):
    """The next step."""

    do: Do
    # With a new `REQUEST`: the last grant is over.
    fresh: bool = False
    # Until when a grant is certain.
    until: float = -math.inf
    cleanup: Cleanup = "none"

    @property
    def is_outcome(self) -> bool:
        """Whether nothing more is sent."""
        return self.do not in ("try", "wait", "confirm")


class Attempt:
    """The course of an acquisition. Copies of its command carry one `REQUEST`: the server grants it once."""

    def __init__(self, limits: Limits, lease: float, old: float | None = None) -> None:
        """`old`: the age in seconds beyond which a renewal must confirm a grant; None: a third of the lease."""
        self.limits = limits
        self.turn = Turn("try")
        self._lease = lease
        self._old = lease / 3 if old is None else old
        # Whether a server said that the lock is held by another; whether one answered at all.
        self._is_refused = self._is_answered = False
        # When commands were sent, by their numbers: copies whose answer was not read, and renewals of the grant.
        self._open: dict[int, float] = {}
        self._renewals: dict[int, float] = {}
        self._number = 0
        # From when the grant counts, and for how many seconds.
        self._from: float | None = None
        self._lasts = lease

    @property
    def sent(self) -> float:
        """From when the grant counts."""
        assert self._from is not None
        return self._from

    @property
    def lasts(self) -> float:
        """How many seconds the grant lasts, from `sent` on."""
        return self._lasts

    @property
    def is_open(self) -> bool:
        """Whether a renewal of the grant may still be executed."""
        return bool(self._renewals)

    def starts(self) -> None:
        """After an error, the same request is sent again."""
        if self.turn.is_outcome:
            self._goes("try")

    def renews(self, now: float) -> int:
        """A renewal of the grant is about to be sent, for another reason than its age. Returns its number."""
        self._number += 1
        self._renewals[self._number] = now
        return self._number

    def settled(self, number: int) -> None:
        """A copy was executed while another one is open: the answer to the other one decides."""
        self._open.pop(number, None)

    def sends(self, now: float) -> int:
        """The command of the turn is about to be sent. Returns its number."""
        self._number += 1
        (self._renewals if self.turn.do == "confirm" else self._open)[self._number] = now
        return self._number

    def granted(self, now: float, number: int) -> Turn:
        """The answer is a token."""
        # The earliest of the copies that may have been granted counts.
        self._from = min(self._open.values(), default=now)
        self._open.pop(number, None)
        self._lasts = self._lease
        return self._goes("granted" if now - self._from <= self._old else "confirm", until=self._until())

    def nil(self, now: float, number: int, *, of_slice: bool = False) -> Turn:
        """The answer is nil. `of_slice`: it ended only a part of the wait."""
        waited = self.turn.do == "wait"
        self._open.pop(number, None)
        self._is_refused = self._is_answered = True
        if self._from is not None:
            return self._goes("confirm")  # The grant of another copy.
        if not self.limits.waits or waited and not self._open and not of_slice:
            return self._ends("refused")
        # If another copy is open, it has taken the place.
        return self._again(now)

    def ok(self, now: float, number: int, left: float | None = None) -> Turn:
        """The answer to a renewal that confirms: executed. `left`: the seconds that were left then."""
        self._from = self._renewals.pop(number, now)
        self._lasts = self._lease if left is None else min(self._lease, left)
        return self._goes("granted" if now < self._until() else "confirm", until=self._until())

    def gone(self, now: float, number: int) -> Turn:
        """The answer to a renewal that confirms: the hold is over."""
        self._from = None
        self._open, self._renewals = {}, {}
        self._is_refused = self._is_answered = True
        if not self._has_time(now):
            return self._ends("refused")
        return self._goes("wait" if self.limits.waits else "try", fresh=True)

    def cut(self, now: float, number: int) -> Turn:
        """No answer comes. The command may still be executed."""
        return self._again(now)

    def refused(self, now: float, number: int) -> Turn:
        """An error says that the command was not executed, and may be sent again."""
        self._open.pop(number, None)
        self._renewals.pop(number, None)
        return self._again(now)

    def lost(self, now: float) -> Turn:
        """The connection with the session of the grant is lost: a copy of the command gets the grant on another."""
        self._open[0], self._from = self.sent, None
        return self._again(now)

    def held(self) -> None:
        """The error that was the answer says that the lock is held. The next request is sent after a pause."""
        self._is_refused = self._is_answered = True

    def failed(self, number: int) -> Turn:
        """Any other error."""
        self._open.pop(number, None)
        return self._ends("failed")

    def canceled(self) -> Turn:
        """The caller no longer waits."""
        return self._ends("canceled")

    def over(self, now: float) -> Turn:
        """The limit has passed, or no server has answered for too long."""
        if self._from is not None:
            if now < self._until():
                return self._goes("granted", until=self._until())
            return self._ends("unreachable")
        return self._ends("refused" if self._is_refused and not self.limits.is_endless else "unreachable")

    @property
    def may_be_granted(self) -> bool:
        """Whether a copy of the command may be executed that was not answered."""
        return bool(self._open)

    def block(self, now: float) -> int:
        """Returns the ms that the next command waits. 0: without a limit."""
        left = self.limits.slice(now)
        return 0 if left == math.inf else max(1, min(math.ceil(round(left * 1000, 6)), _LONGEST_BLOCK))

    def _until(self) -> float:
        return self.sent + self._lasts - MARGIN

    def _has_time(self, now: float) -> bool:
        return now < self.limits.gives_up()

    def _again(self, now: float) -> Turn:
        if not self._has_time(now):
            return self.over(now)
        if self._from is not None:
            return self._goes("confirm")
        return self._goes("wait" if self.limits.waits and self._is_answered else "try")

    def _goes(self, do: Do, *, fresh: bool = False, until: float = -math.inf) -> Turn:
        self.turn = Turn(do, fresh, until)
        return self.turn

    def _ends(self, do: Do) -> Turn:
        cleanup: Cleanup = "release" if self._from is not None else "leave" if self._open else "none"
        self.turn = Turn(do, cleanup=cleanup)
        return self.turn


# The longest `BLOCK` that is asked for, in ms.
_LONGEST_BLOCK = 2**53
