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
# The server may still have, after the outcome: nothing; a place in the queue or a hold; a hold whose token is known.
Cleanup = Literal["none", "leave", "release"]


class Turn(NamedTuple):
    """The next step."""

    do: Do
    # Whether the command has a new `REQUEST`, because the last grant is over, or a late copy of the last request would
    # release it.
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
        """`old`: the age in seconds beyond which a renewal must confirm a grant; None: a third of the lease. If it is
        negative, nothing is certain of a grant that is not confirmed."""
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
    def has_grant(self) -> bool:
        """Whether a grant was read, and not lost since."""
        return self._from is not None

    @property
    def is_open(self) -> bool:
        """Whether a renewal of the grant may still be executed."""
        return bool(self._renewals)

    def starts(self) -> None:
        """Begins again, with the same request, after an error that was an outcome."""
        if self.turn.is_outcome:
            self._goes("try")

    def renews(self, now: float) -> int:
        """Notes that a renewal of the grant is about to be sent, for another reason than its age. Returns its
        number."""
        self._number += 1
        self._renewals[self._number] = now
        return self._number

    def settled(self, number: int) -> None:
        """Notes that a copy was executed while another copy is open. The answer to that one decides."""
        self._open.pop(number, None)

    def sends(self, now: float) -> int:
        """Notes that the command of the turn is about to be sent. Returns its number."""
        self._number += 1
        (self._renewals if self.turn.do == "confirm" else self._open)[self._number] = now
        return self._number

    def granted(self, now: float, number: int) -> Turn:
        """Takes a token, the answer to a copy of the command."""
        # The earliest of the copies that may have been granted counts.
        self._from = min(self._open.values(), default=now)
        self._open.pop(number, None)
        self._lasts = self._lease if self._old >= 0 else 0.0
        return self._goes("granted" if now - self._from <= self._old else "confirm", until=self._until())

    def nil(self, now: float, number: int, *, of_slice: bool = False) -> Turn:
        """Takes nil, the answer to a copy of the command. `of_slice`: only a slice of the wait has ended."""
        waited = self.turn.do == "wait"
        self._open.pop(number, None)
        self._is_refused = self._is_answered = True
        if self._from is not None:
            return self._goes("confirm")  # The grant of an earlier copy.
        if not self.limits.waits or waited and not self._open and not of_slice:
            return self._ends("refused")
        # An open copy may have taken the place in the queue, so nil is no refusal.
        return self._again(now)

    def ok(self, now: float, number: int, left: float | None = None) -> Turn:
        """Takes the answer to a renewal that confirms the grant: it was executed. `left`: the seconds that the hold
        lasts from the time at which the renewal was sent, if the server said so."""
        self._from = self._renewals.pop(number, now)
        self._lasts = self._lease if left is None else min(self._lease, left)
        return self._goes("granted" if now < self._until() else "confirm", until=self._until())

    def gone(self, now: float, number: int) -> Turn:
        """Takes the answer to a renewal that confirms the grant: the server has no such hold."""
        self._from = None
        self._open, self._renewals = {}, {}
        self._is_refused = self._is_answered = True
        if not self._has_time(now):
            return self._ends("refused")
        return self._goes("wait" if self.limits.waits else "try", fresh=True)

    def cut(self, now: float, number: int) -> Turn:
        """Notes that no answer comes. The command may still be executed."""
        return self._again(now)

    def orphaned(self, now: float) -> Turn:
        """Notes that the connection of a copy has ended without an answer, and that the copy binds the hold to its
        connection: if the server executes the copy late, the end of the connection releases the hold. The next request
        is that of another owner."""
        self._from, self._open, self._renewals = None, {}, {}
        turn = self._again(now)
        return turn if turn.is_outcome else self._goes(turn.do, fresh=True)

    def refused(self, now: float, number: int) -> Turn:
        """Takes an error that says that the command was not executed, and may be sent again."""
        self._open.pop(number, None)
        self._renewals.pop(number, None)
        return self._again(now)

    def lost(self, now: float) -> Turn:
        """Notes that the connection with the session of the grant is lost. A copy of the command on another connection
        gets the same grant."""
        # Numbers of commands begin with 1. Number 0 stands for the lost grant.
        self._open[0], self._from = self.sent, None
        return self._again(now)

    def held(self) -> None:
        """Notes that the answer was an error which means that the lock is held. The caller sends the next request after
        a pause."""
        self._is_refused = self._is_answered = True

    def failed(self, number: int) -> Turn:
        """Takes an error that ends the acquisition."""
        self._open.pop(number, None)
        return self._ends("failed")

    def canceled(self) -> Turn:
        """Ends the acquisition, because the caller no longer waits."""
        return self._ends("canceled")

    def over(self, now: float) -> Turn:
        """Ends the acquisition, because its limit has passed, or no server has answered for too long."""
        if self._from is not None:
            if now < self._until():
                return self._goes("granted", until=self._until())
            return self._ends("unreachable")
        return self._ends("refused" if self._is_refused and not self.limits.is_endless else "unreachable")

    @property
    def may_be_granted(self) -> bool:
        """Whether a copy of the command may still be executed, because it has no answer."""
        return bool(self._open)

    def is_copied(self, but: int) -> bool:
        """Whether another copy of the command than this one may still be executed."""
        return any(number != but for number in self._open)

    def block(self, now: float) -> int:
        """Returns the ms that the next command waits. 0: without a limit."""
        left = self.limits.slice(now)
        # Rounded first, so that an error of the floating point does not add a ms.
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
