"""Until when a hold is certain, and when to renew it. Pure: reads no clock and sends nothing; times are arguments, in
seconds of one clock that only goes forward.

The rules are those of tests/clients/histories/README.md, also for the fractions and bounds of the times of renewals.
Every command that may set the lease counts from the moment before it was sent. Of several commands that the server may
execute in any order, the shortest lease counts.
"""

from __future__ import annotations

import math

# By how many seconds a lease is shorter for the client: client and server each count in whole milliseconds.
MARGIN = 0.002
# The most commands without an answer that are told apart. Of more, the two oldest count as one.
_MOST_OPEN = 16
# A difference of fewer seconds than this is an error of floating-point numbers.
_NOTHING = 1e-9


class Sent:
    """A command that sets the lease, or a question (`CHECK`) for what is left of it."""

    __slots__ = ("at", "is_blurred")

    def __init__(self, at: float, *, is_blurred: bool = False) -> None:
        # When the command or question was sent.
        self.at = at
        # For a question: whether a command that sets the lease was open at its sending, or was sent since.
        self.is_blurred = is_blurred


class Validity:
    """The validity of a hold, or of a named session: its lease is its timeout, and its renewals are its heartbeats.

    The public methods that take `now` are the events of a hold. A command is open while it has no answer."""

    def __init__(self, now: float, sent: float, lease: float, *, is_open: bool = False) -> None:
        """The grant was read at `now`, and its command was sent at `sent`. `is_open`: an earlier copy of the command
        may still be executed."""
        self._until = sent + lease - MARGIN
        self.is_lost = self.is_released = False
        # `_sure`: the server has no shorter lease. `_shortest`: the shortest lease of the commands that the server may
        # execute in any order. `_wanted`: the lease that was asked for last.
        self._sure = self._shortest = self._wanted = lease
        # `renew_at`: when the next renewal is due. `again_at`: when an unanswered one is sent again. `inf`: never.
        self.renew_at = max(now, sent + lease / 3)
        self.again_at = math.inf
        # `is_capped`: a cap made the lease shorter than what was asked for, so the hold is not renewed any more.
        # `checks`: the server must be asked how long the hold lasts.
        self.is_capped = self.checks = False
        self._open = [Sent(sent)] if is_open else []
        self._questions: list[Sent] = []
        self._expire(now)

    @property
    def until(self) -> float:
        """Until when the hold is certain."""
        return -math.inf if self.is_lost or self.is_released else self._until

    @property
    def lease(self) -> float:
        """The lease that a renewal can count with."""
        return min(self._wanted, self._sure)

    def is_open(self) -> bool:
        """Returns whether a command that sets the lease has no answer."""
        return bool(self._open)

    def _expire(self, now: float) -> bool:
        """Marks the hold as lost, for good, if its time has passed. Returns whether the hold is neither lost nor
        released."""
        self.is_lost = self.is_lost or not self.is_released and now >= self._until - _NOTHING
        return not self.is_lost and not self.is_released

    def passes(self, now: float) -> None:
        """Time has passed."""
        self._expire(now)

    def release(self, now: float) -> None:
        """A release is about to be sent."""
        if self._expire(now):
            self.is_released = True

    def gone(self, now: float) -> None:
        """The server has no such hold."""
        if self._expire(now):
            self.is_lost = True

    def sends(self, now: float, lease: float) -> Sent:
        """A command that sets the lease is about to be sent."""
        sent = Sent(now)
        if self._expire(now):
            self._shortest = min(self._shortest, lease) if self._open else lease
            self._sure, self._wanted = min(self._sure, lease), lease
            self._open.append(sent)
            if len(self._open) > _MOST_OPEN:
                self._open[:2] = [Sent(now)]
            for each in self._questions:
                each.is_blurred = True
            self._until = min(self._until, now + lease - MARGIN)
            self.renew_at, self.again_at = math.inf, min(now + _clamp(self.lease / 6, 0.05, 2.0), self._until)
        return sent

    def ok(self, now: float, sent: Sent, *, copies: bool = False) -> None:
        """The server has executed the command. `copies`: an earlier copy of the command may still be executed."""
        if not self._expire(now) or not self._close(sent, stays=copies):
            return
        self._sure = self._shortest
        self._until = max(self._until, sent.at + self._sure - MARGIN)
        self.renew_at, self.again_at = max(now, sent.at + self.lease / 3), math.inf
        self._expire(now)

    def cut(self, now: float, sent: Sent) -> None:
        """Nobody waits for the answer any more: the command may be executed at any time."""
        self.pauses(now)

    def pauses(self, now: float) -> float:
        """Schedules the next renewal soon. Returns when it is due."""
        if self._expire(now):
            self._soon(now)
        return self.renew_at

    def refused(self, now: float, sent: Sent) -> None:
        """The server has not executed the command, and will not."""
        if self._expire(now) and self._close(sent):
            self._soon(now)

    def capped(self, now: float, sent: Sent) -> None:
        """The server has executed the command, and a cap made the lease shorter."""
        if self._expire(now) and self._close(sent):
            self.is_capped = self.checks = True
            self.renew_at = self.again_at = math.inf

    def asks(self, now: float) -> Sent:
        """A question is about to be sent."""
        question = Sent(now, is_blurred=bool(self._open))
        if self._expire(now):
            self._questions.append(question)
        return question

    def left(self, now: float, question: Sent, left: float) -> None:
        """The answer to a question: the seconds that are left of the lease."""
        if not self._expire(now) or question not in self._questions:
            return
        self._questions.remove(question)
        if question.is_blurred:
            self._until = max(self._until, question.at + min(left, self._sure) - MARGIN)
        else:
            self._until = question.at + left - MARGIN
        if self.is_capped:
            self.checks, self.renew_at = False, math.inf
        elif self.renew_at < math.inf:
            self.renew_at = max(now, min(self.renew_at, self._until))
        self._expire(now)

    def ends_by(self, now: float, until: float) -> None:
        """The hold is certain at most until `until`, because no answer has said more."""
        if self._expire(now):
            self._until = min(self._until, until)
            self._expire(now)

    def unasked(self, question: Sent) -> None:
        """Nobody waits for the answer to a question any more."""
        if question in self._questions:
            self._questions.remove(question)

    def _close(self, sent: Sent, *, stays: bool = False) -> bool:
        """Counts a command as answered, and returns whether it was open."""
        if sent not in self._open:
            return False
        if not stays:
            self._open.remove(sent)
        return True

    def _soon(self, now: float) -> None:
        """Schedules a renewal after a pause that is short beside the lease and the time that is left."""
        pause = _clamp(min(self.lease / 30, (self._until - now) / 8), 0.01, 0.5)
        self.renew_at, self.again_at = min(now + pause, self._until), math.inf


def _clamp(value: float, least: float, most: float) -> float:
    return max(least, min(value, most))
