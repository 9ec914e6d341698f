"""When to renew a hold, or to ask how long it lasts, and what is sent. Pure: reads no clock and sends nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redis.exceptions import LockNotOwnedError

from .acquisition import Replicas
from .commands import Command
from .errors import ReplicasError
from .validity import Sent, Validity

# The pause before the first look at a hold of a session whose lease is not known, in seconds.
_FIRST_LOOK = 1.0
# The lease that is assumed while the lease of a hold is not known, in seconds: the default of servers. While no server
# answers, the hold counts as live for so long from the begin of its watch.
_ASSUMED_LEASE = 30.0
# How long a look may take before the next one is sent on another connection: a part of the lease, so that several can
# follow. The other two are the bounds of that time, in seconds.
_PART_FOR_ANSWER, _SHORTEST_LOOK, _LONGEST_LOOK = 1 / 6, 0.05, 2.0


@dataclass
class Terms:
    """The terms of a watch."""

    # Makes the commands that renew the hold; None: the watch only asks how long it lasts.
    renew: Callable[[], list[Command]] | None
    # The commands that bind the hold of a session to another connection.
    bind: list[Command]
    # The commands that ask how long the hold lasts: one for each key, as for the renewals.
    check: list[Command]
    # The lease in seconds; None: the server's default.
    lease: float | None
    # A hold with a longer lease is looked at as often as one with this lease, in seconds.
    every: float | None
    # The earliest end that a renewal may give the lease, by `time.monotonic()`.
    stays_until: float
    replicas: Replicas | None
    # Makes the error that the loss is reported with.
    error: Callable[[str], LockNotOwnedError]

    def extra(self) -> float:
        """Returns how many seconds a look may take longer because replicas have to acknowledge it."""
        return 0.0 if self.replicas is None else self.replicas.timeout

    def commands(self, look: Look) -> list[Command]:
        """Returns what is sent for a look, in one round trip."""
        if look.binds:
            return [*self.bind, *self.check]
        if not look.sets or self.renew is None:
            return self.check
        asked = self.check if look.question is not None else []
        return [*self.renew(), *asked, *([self.replicas.wait()] if self.replicas else [])]


@dataclass
class Look:
    """A look at a hold."""

    # Whether it binds the hold of a session to another connection.
    binds: bool
    # Whether it sets the lease.
    sets: bool
    # The renewal; None: the look sets no lease that is known.
    renewal: Sent | None
    # The question how long the hold lasts; None: the look does not ask.
    question: Sent | None


class Heartbeat:
    """When the next look at a hold is due. A look renews the hold, or asks how long it lasts. Times are those
    of `Validity`."""

    def __init__(self, validity: Validity, now: float, terms: Terms) -> None:
        self.validity = validity
        self._terms = terms
        self._every = math.inf if terms.every is None else terms.every
        # `_began`: when the watch began. `_asks_at`: when the next question is due. `_hurries`: whether a look is due
        # now.
        self._began = now
        self._asks_at = now + (_FIRST_LOOK if validity.lease == math.inf else self._third(now))
        self._hurries = False

    @property
    def _renews(self) -> bool:
        return self._terms.renew is not None and not self.validity.is_capped

    def _third(self, now: float) -> float:
        """Returns a third of the time left, in seconds, or of `every` if that is shorter."""
        return max(0.0, min(self.validity.until - now, self._every)) / 3

    def due(self) -> float:
        """Returns when the next look is due, or when the hold ends if that is earlier."""
        if self._hurries:
            return -math.inf
        next_look = self._asks_at
        if self._renews and not self.validity.checks and self._terms.lease is not None:
            # Renewals go by the lease. With `every`, a look also comes when a question would be due.
            often = math.inf if self._every == math.inf else self._asks_at
            next_look = min(self.validity.renew_at, self.validity.again_at, often)
        return min(next_look, self.validity.until)

    def hurry(self) -> None:
        """Makes the next look due now."""
        self._hurries = True

    def begin(self, now: float, *, binds: bool) -> Look:
        """Returns a look, which is about to be sent."""
        self._hurries = False
        lease = self._terms.lease
        lease = lease if lease is None else max(lease, self._terms.stays_until - now)
        sets = binds or self._renews and not self.validity.checks
        renewal = self.validity.sends(now, lease) if sets and lease is not None else None
        question = None if renewal is not None and not binds else self.validity.asks(now)
        return Look(binds, sets, renewal, question)

    def took(self, now: float, look: Look, replies: list[Any]) -> bool:
        """Takes the replies to a look. Returns whether the server had the hold. Raises `ReplicasError` if too few
        replicas know of the renewal."""
        terms = self._terms
        renewed = replies[: len(terms.bind)] if look.binds else replies[: len(terms.check)] if look.sets else []
        asked = replies[len(renewed) : len(renewed) + len(terms.check)] if look.question else []
        if None in renewed or None in asked:
            return False
        if look.sets and not look.binds and terms.replicas and replies[-1] < terms.replicas.count:
            raise ReplicasError(terms.replicas.too_few(replies[-1]))
        if look.renewal is not None:
            if 0 in renewed:
                self.validity.capped(now, look.renewal)
            else:
                self.validity.ok(now, look.renewal)
        if look.question is not None:
            self.validity.left(now, look.question, min(asked) / 1000)
        self._asks_at = (look.renewal or look.question or Sent(now)).at + self._third(now)
        if self.validity.checks:
            # A cap has shortened the lease, and only the server knows to what: the next look asks at once.
            self._asks_at = now
        return True

    def failed(self, now: float, look: Look, *, binds: bool, executed: bool) -> None:
        """Notes that a look failed, so that the server may or may not have the hold. The next look follows soon or,
        with `binds`, at once on another connection. `executed`: the server may have executed the look, or may still do
        so."""
        if look.question is not None:
            self.validity.unasked(look.question)
        if look.renewal is not None and executed:
            self.validity.cut(now, look.renewal)
        elif look.renewal is not None:
            self.validity.refused(now, look.renewal)
        if self.validity.until == math.inf:
            self.validity.ends_by(now, self._began + _ASSUMED_LEASE)
        lease = self._lease()
        self._asks_at = now + max(0.01, min(lease / 30, (self.validity.until - now) / 8, 0.5))
        self._hurries = binds

    def renewed(self, now: float) -> None:
        """Notes that the program has renewed the hold by a call of its own."""
        self._asks_at = now + self._third(now)

    def changed(self, now: float) -> None:
        """Notes that a call of the program has sent a renewal: until its answer, less is certain than before. If no
        answer comes, the next look tells what is left."""
        self._asks_at = min(self._asks_at, now + self._third(now))

    def _lease(self) -> float:
        return _ASSUMED_LEASE if self.validity.lease == math.inf else self.validity.lease

    def answer_within(self, now: float) -> float:
        """Returns the seconds that a look may take."""
        part = max(_SHORTEST_LOOK, min(_LONGEST_LOOK, self._lease() * _PART_FOR_ANSWER)) + self._terms.extra()
        return max(_SHORTEST_LOOK, min(self.validity.until - now, part))
