"""When to renew a hold or to ask for it, and what is sent. Pure: reads no clock and sends nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redis.exceptions import LockNotOwnedError

from .attempt import Replicas
from .commands import Command
from .errors import ReplicasError
from .validity import Sent, Validity

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

    def extra(self) -> float:
        """Returns the seconds that replicas may take to acknowledge a look."""
        return 0.0 if self.replicas is None else self.replicas.timeout

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


class Heartbeat:
    """When the next look at a hold is due. A look renews it, or asks for it. Times are those of `Validity`."""

    def __init__(
        self, validity: Validity, now: float, since: float, lease: float | None, every: float | None = None
    ) -> None:
        """`since`: when the grant counts from. `every`: looks are as frequent as if this was all that is left."""
        self.validity = validity
        # The lease that a renewal asks for.
        self._told = math.inf if lease is None else lease
        # The longest lease that is known.
        self._lease = lease
        self._every = math.inf if every is None else every
        self._since = since
        first = _FIRST_LOOK if lease is None else min(lease, self._every) / 3
        self.due = min(since + first, now + self._third(now))

    def _third(self, now: float) -> float:
        return max(0.0, min(self.validity.until - now, self._every)) / 3

    def look(self, now: float, *, renews: bool) -> Sent:
        """A look is about to be sent."""
        return self.validity.sends(now, self._told if renews else math.inf)

    def confirmed(self, now: float, look: Sent, left: float) -> None:
        """The server had the hold, with `left` seconds left."""
        self._lease = max(left, self._lease or 0.0)
        self.validity.answered(now, look, left)
        self.due = look.at + self._third(look.at)

    def failed(self, now: float, look: Sent, *, binds: bool, executed: bool, arrives: bool) -> None:
        """It is unknown whether the server has the hold. The next look follows soon; `binds`: at once, on another
        connection. `executed`: the server may have executed the look; `arrives`: it may still do so."""
        if executed:
            self.validity.unanswered(now, look, arrives=arrives)
        else:
            self.validity.refused(look)
        if self._lease is None:
            self._lease = _UNKNOWN
            self.validity.ends_by(max(self._since, self.validity.confirmed_at) + _UNKNOWN)
        self.due = now if binds else min(now + min(self._lease / 30, 1.0), self.validity.until)

    def renewed(self, now: float, lease: float) -> None:
        """The holder has renewed the hold by itself."""
        self._lease = lease
        self.due = now + self._third(now)

    def changed(self, now: float) -> None:
        """Less is certain than before. Without an answer, a look tells what is left."""
        self.due = min(self.due, now + self._third(now))

    def patience(self, now: float) -> float:
        """Returns the seconds that a look may take."""
        return max(_SHORTEST_LOOK, min(self.validity.until - now, self._every))

    def patience_of_session(self, now: float, extra: float = 0.0) -> float:
        """Returns the same for a look on the connection of a session, and for binding it to another connection: a part
        of the lease, so that another attempt can follow. `extra`: the time for replicas."""
        part = min(_LOOK, (self._lease or _UNKNOWN) * _LOOK_OF_LEASE)
        return min(self.patience(now), max(_SHORTEST_LOOK, part + extra))
