"""How long a hold is known to be live, and when to renew it or to ask for it. Keeps no time and sends nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redis.exceptions import LockNotOwnedError

from .attempt import Replicas
from .commands import Command
from .errors import ReplicasError

# How often a session without a timeout is asked for until its lease is known, in seconds.
_FIRST_LOOK = 1.0
# How long it is taken for live while no server answers and its lease is not known: the server's default, in seconds.
_UNKNOWN = 30.0
# How long a look on the connection of a session may take before the session is bound to another one, in seconds, and
# as a part of the lease: half of the lease is left for the binding.
_LOOK = 2.0
_LOOK_OF_LEASE = 1 / 6
# The shortest time for a look, in seconds.
_SHORTEST_LOOK = 0.1


@dataclass
class Terms:
    """The terms of a watch."""

    # Renews the hold; None: the watch only asks for it.
    renew: Callable[[], list[Command]] | None
    # Binds the hold of a session to another connection.
    bind: list[Command]
    check: list[Command]
    # The lease in seconds; None: the server's default.
    lease: float | None
    # The longest time between two looks counts from this lease in seconds, if the hold may last longer.
    every: float | None
    replicas: Replicas | None
    # Makes the error that the loss is reported with.
    error: Callable[[str], LockNotOwnedError]

    def commands(self) -> list[Command]:
        """Returns what is sent for one look, in one round trip."""
        wait = [self.replicas.wait()] if self.renew and self.replicas else []
        return [*(self.renew() if self.renew else []), *self.check, *wait]

    def left(self, replies: list[Any]) -> float | None:
        """Returns the seconds left, or None if the hold is gone. Raises `ReplicasError` if too few replicas know."""
        left = self._least(replies, len(self.check) if self.renew else 0)
        if left is not None and self.renew and self.replicas and replies[-1] < self.replicas.count:
            raise ReplicasError(self.replicas.too_few(replies[-1]))
        return left

    def binding(self) -> list[Command]:
        """Returns what is sent on the connection that a session is bound to next."""
        return [*self.bind, *self.check]

    def bound(self, replies: list[Any]) -> float | None:
        """Returns the seconds left, or None if the hold is gone."""
        return self._least(replies, len(self.bind))

    def _least(self, replies: list[Any], renewed: int) -> float | None:
        of_hold = replies[: renewed + len(self.check)]
        return None if None in of_hold else min(of_hold[renewed:]) / 1000


class Validity:
    """The hold is live until `until` for certain, if nobody deletes it. Times are those of `time.monotonic()`."""

    def __init__(
        self,
        since: float,
        lease: float | None,
        cap: float,
        *,
        until: float = math.inf,
        shortest: float = math.inf,
        every: float | None = None,
        ask_first: bool,
    ) -> None:
        """`cap`: when it ends, whatever renews it. `until`: what a renewal has made of the lease. `shortest`: see `Hold`.
        `every`: looks are as frequent as if this was all that is left. `ask_first`: the grant came after a wait, so it
        may be older than `since`."""
        # The lease of the lock object.
        self._told = math.inf if lease is None else lease
        self._lease = lease
        self._every = math.inf if every is None else every
        self._cap = cap
        self.shortest = shortest
        # The lease that a look asks for until it is answered, and the one that unanswered looks have asked for.
        self._looking = self._missed = math.inf
        # When the lease was changed by something else than a look.
        self._changed = -math.inf
        self.until = cap if lease is None else min(cap, until if until < math.inf else since + lease)
        self.due = since + (0.0 if ask_first else _FIRST_LOOK if lease is None else lease / 3)
        if until < since + (lease or 0.0):
            # It was shortened: an early look tells what is left.
            self.due = since

    def confirmed(self, sent: float, left: float) -> None:
        """The answer to a look: the server had the hold, with `left` seconds left after `sent`."""
        self._looking = math.inf
        self._counts(sent, left)

    def _counts(self, sent: float, left: float) -> None:
        self._lease = max(left, self._lease or 0.0)
        left = min(left, self.shortest, self._looking, self._missed)
        # The server may have executed a look before a renewal that was sent at the same time, or after it.
        certain = sent + left if sent >= self._changed else min(self.until, sent + left)
        self.until = min(certain, self._cap)
        self.due = sent + min(left, self._every) / 3

    def renewing(self, now: float, sent: float, lease: float) -> Callable[[], None]:
        """A renewal is sent. Until it is answered, no more than the shorter lease is certain. Returns what to call if the
        server refuses it."""
        until, shortest, certain = self.until, self.shortest, min(self.until, sent + lease)
        self.until, self.shortest, self._changed = certain, min(shortest, lease), now
        # Without an answer, a look tells what is left.
        self.due = min(self.due, now + max(0.0, certain - now) / 3)

        def refused() -> None:
            self.shortest = shortest
            if self.until == certain:
                self.until = until

        return refused

    def set_to(self, now: float, sent: float, lease: float, shortest: float) -> None:
        """The caller renewed the hold."""
        self._lease, self.shortest, self._changed = lease, shortest, -math.inf
        self._counts(sent, lease)
        self._changed = now

    def patience(self, now: float) -> float:
        """Returns the seconds that a look may take."""
        return max(_SHORTEST_LOOK, min(self.until - now, self._every))

    def patience_of_session(self, now: float, replicas: Replicas | None = None) -> float:
        """Returns the same for a look on the connection of a session, and for binding it to another connection: a part
        of the lease, so that another attempt can follow. `replicas`: those that have to acknowledge a renewal."""
        part = min(_LOOK, (self._lease or _UNKNOWN) * _LOOK_OF_LEASE)
        return min(self.patience(now), max(_SHORTEST_LOOK, part + (replicas.timeout if replicas else 0.0)))

    def renews(self, now: float) -> None:
        """A look is sent that renews the hold. The caller may have given it more than its lease."""
        self.until = min(self.until, now + self._told)
        self._looking = self._told

    def failed(self, now: float, *, binds: bool, renews: bool) -> None:
        """It is unknown whether the server has the hold. Asks again soon; `binds`: at once, on another connection.
        `renews`: the look was to renew it, and may still arrive."""
        self._looking = math.inf
        if renews:
            self._missed = self._told
        if self._lease is None:
            self._lease = _UNKNOWN
            self.until = min(now + _UNKNOWN, self._cap)
        self.due = now if binds else min(now + min((self._lease or _FIRST_LOOK) / 30, 1.0), self.until)
