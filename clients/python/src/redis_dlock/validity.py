"""Until when a hold is certain. Pure: reads no clock and sends nothing; times are arguments, in seconds of one clock that
only goes forward.

Every command that may set the lease counts from the moment before it was sent. Of several that may be in force, the
shortest counts.
"""

from __future__ import annotations

import math


class Sent:
    """A command that may set the lease, or asks for what is left of it."""

    __slots__ = ("at", "closed", "ends", "executed", "lease")

    def __init__(self, at: float, lease: float) -> None:
        # When it was sent, and the seconds that it asks for; `inf` for a mere question.
        self.at = at
        self.lease = lease
        # When its answer was read, or nobody waited for it any more. None: it is under way.
        self.closed: float | None = None
        # Whether the server has surely executed it.
        self.executed = False
        # Until when the hold lasts at least if the server executed it last.
        self.ends = at + lease


class Validity:
    """Until when one hold is certain, if nobody deletes it.

    Each change is one step of the interpreter, so threads and interrupts need no lock.
    """

    def __init__(self, until: float, cap: float = math.inf) -> None:
        """`until`: as its grant says. `cap`: when it ends, even if something renews it."""
        self.cap = cap
        self.is_gone = False
        self._sent = [_closed(until)]
        # The leases of commands that were given up: one may still arrive, after any later command.
        self._missed: set[float] = set()

    @property
    def until(self) -> float:
        """Until when it is certain."""
        if self.is_gone:
            return -math.inf
        latest = self.confirmed_at
        return min(self.cap, *(each.ends for each in list(self._sent) if not _is_over(each, latest)))

    @property
    def confirmed_at(self) -> float:
        """When the last command was sent that the server has surely executed."""
        return max((each.at for each in list(self._sent) if each.executed), default=-math.inf)

    def sends(self, now: float, lease: float = math.inf) -> Sent:
        """A command is about to be sent. Until it is answered, no more than the shorter lease is certain."""
        sent = Sent(now, lease)
        self._sent.append(sent)
        return sent

    def answered(self, now: float, sent: Sent, left: float | None = None) -> None:
        """The server has executed it. `left`: the seconds that were left afterwards; None: those that were asked for."""
        sent.ends = sent.at + min(sent.lease if left is None else left, *self._missed, math.inf)
        sent.closed, sent.executed = now, True
        latest = self.confirmed_at
        for each in list(self._sent):
            if _is_over(each, latest):
                self.refused(each)

    def refused(self, sent: Sent) -> None:
        """The server has not executed it, and will not."""
        try:
            self._sent.remove(sent)
        except ValueError:
            pass  # It does not count any more.

    def repeated(self, sent: Sent) -> None:
        """Another copy of it was sent and not answered, and may still arrive."""
        self._missed.add(sent.lease)

    def unanswered(self, now: float, sent: Sent, *, arrives: bool = True) -> None:
        """Nobody waits for its answer any more. The server may have executed it. `arrives`: it may still do so."""
        if sent.closed is None and sent in self._sent:
            sent.closed = now
            if arrives:
                self._missed.add(sent.lease)

    def ends_by(self, until: float) -> None:
        """No more than this is known."""
        self._sent.append(_closed(until))

    def gone(self) -> None:
        """The server has no such hold."""
        self.is_gone = True


def _closed(ends: float) -> Sent:
    """Returns what counts until the next command is answered."""
    sent = Sent(-math.inf, 0.0)
    sent.closed, sent.ends = -math.inf, ends
    return sent


def _is_over(sent: Sent, latest: float) -> bool:
    """Returns whether the server executed a command that was sent after this one was over."""
    return sent.closed is not None and sent.closed < latest
