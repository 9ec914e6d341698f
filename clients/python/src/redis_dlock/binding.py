"""The holds that are bound to a session, the caps that end them, and the releases that the session owes. Pure: reads no
clock and sends nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, Protocol

from redis.exceptions import LockNotOwnedError, NoPermissionError, ResponseError

from . import info, owners, redis_py
from .commands import Command, Mode, Name, Target, token_and_slot
from .info import of_owner
from .validity import MARGIN

# Work that yields the commands of an exchange and gets their replies, which may be errors, until it ends.
Round = Generator[list[Command], list[Any], None]


class Home(Protocol):
    """The session of a hold, as its binding sees it."""

    id: str

    @property
    def _until(self) -> float: ...

    def _signal(self) -> Any: ...

    def _leave(self, binding: Binding) -> bool: ...

    def take(self, binding: Binding) -> None: ...

    def missing(self) -> None: ...

    def join(self, binding: Binding, openings: int) -> None: ...

    def owe(self, owed: Owed) -> None: ...


class Cap:
    """The time at which the server ends a hold, even if it is renewed."""

    def __init__(self, asks: list[Command], mode: Mode, token: int, told: float, earliest: float) -> None:
        """`asks`: the commands that ask for the cap. `told`: when the cap that the caller chose ends the hold. The
        server's setting may end it earlier, but not before `earliest`."""
        self.asks = asks
        # When the cap ends the hold. While this is not known, the earliest time that is possible.
        self.at = min(told, earliest)
        self.is_known = False
        self._mode, self._token, self._told = mode, token, told

    def reaches(self, until: float) -> None:
        """Notes that no cap has cut a lease that lasts until then."""
        if not self.is_known:
            self.at = max(self.at, min(until, self._told))

    def is_near(self, until: float) -> bool:
        """Returns whether the cap is not known, and may end the hold before then."""
        return not self.is_known and self.at < until

    def read(self, sent: float, replies: list[Any]) -> bool:
        """Takes the replies to `asks`, which were sent at `sent`. Returns False if the server has no such hold."""
        if any(isinstance(reply, NoPermissionError) for reply in replies):
            # A user who may not ask learns of the end with a heartbeat.
            self.at, self.is_known = self._told, True
            return True
        if any(isinstance(reply, ResponseError) for reply in replies):
            # The key may be no lock any more. After any other error, the cap stays unknown.
            return not any(isinstance(reply, ResponseError) and redis_py.wrong_type(reply) for reply in replies)
        holds = [of_owner(reply, self._mode) for reply in replies]
        if any(hold is None or hold["token"] != self._token for hold in holds):
            return False
        left = [hold["cap"] / 1000 - MARGIN for hold in holds if hold is not None and hold.get("cap") is not None]
        self.at, self.is_known = min([self._told, *(sent + each for each in left)]), True
        return True


class Binding:
    """A hold that is bound to a session. A lock object uses it in the place of a watch."""

    def __init__(
        self, session: Home, key: Name, bind: Callable[[str], list[Command]], cap: Cap, name: str,
        on_lost: Callable[..., Any] | None, openings: int,
    ) -> None:
        """`bind` makes the commands that bind the hold to the session with the id that it gets. `openings`: how often
        the session had been opened before the hold was acquired."""
        self.lost = session._signal()
        self.key = key
        self.bind = bind(session.id)
        self.cap = cap
        self.on_lost = on_lost
        # Until when the hold is certain, by `time.monotonic()`, although it must be bound again. None: it is bound.
        self.unbound: float | None = None
        self._session = session
        self._binds = bind
        self._name = name
        # How often the session had been opened before the hold was acquired. None: the session keeps the hold already.
        self._openings: int | None = openings
        self._ended = self._stopped = False

    def until(self) -> float:
        """Returns until when the hold is certain."""
        return -math.inf if self._ended else min(self._session._until, self.ends())

    def claims(self) -> float:
        """Returns what `until` returns: a binding needs no connection of its own."""
        return self.until()

    def ends(self) -> float:
        """Returns until when the hold is certain if the session lives on."""
        return self.cap.at if self.unbound is None else min(self.cap.at, self.unbound)

    def error(self, why: str) -> LockNotOwnedError:
        """Returns the error that the loss is reported with."""
        return LockNotOwnedError(f"The lock is lost: {why}", lock_name=self._name)

    def end(self) -> None:
        """Notes that the lock is lost."""
        self._ended = True

    def start(self) -> None:
        """Has the session keep the hold, unless it does already. Raises `LockError` if the session is not open."""
        if self._openings is not None:
            self._session.join(self, self._openings)
            self._openings = None

    def stop(self) -> bool:
        """Takes the hold from the session, before the lock is released. Returns whether the session had it."""
        # Set first, because another thread may move the hold to another session at this moment.
        self._stopped = True
        return self._session._leave(self)

    def move(self, session: Home) -> None:
        """Gives the hold to the session of the server that has its key, which must bind it in time."""
        certain = self._session._until if self.unbound is None else min(self._session._until, self.unbound)
        if self._session._leave(self):
            self.unbound, self.bind, self._session = certain, self._binds(session.id), session
            session.take(self)

    def look_now(self) -> None:
        """Has the session bind the hold again now, because the server said that it has no such hold."""
        if self.unbound is None:
            self.unbound = self._session._until
        self._session.missing()

    def changed(self) -> None:
        """Does nothing when the caller renews the hold: the session decides how long the hold lasts."""

    def renewed(self, sent: float, lease: float) -> None:
        """Notes that no cap has cut the lease that the server has renewed. The session decides how long the hold
        lasts."""
        self.cap.reaches(sent + lease - MARGIN)

    def release_later(self, commands: list[Command]) -> None:
        """Has the session repeat a release that failed."""
        self._session.owe(Owed(self.key, None, lambda token: commands, 0))


class Owed:
    """A hold that was not released because no server answered. While the session lives, the hold does not lapse."""

    def __init__(self, key: Name, ask: Command | None, undo: Callable[[int], list[Command]], token: int | None) -> None:
        """`ask` gets the token of the hold, if `token` is None. `undo` makes the commands that release the hold with
        that token."""
        self.key = key
        self._ask, self._undo, self._token = ask, undo, token
        self.done = False

    def round(self) -> Round:
        """Asks for the token of the hold if it is not known, and releases the hold if there is one."""
        if self._token is None:
            assert self._ask is not None
            [reply] = yield [self._ask]
            if isinstance(reply, ResponseError):
                self.done = redis_py.wrong_type(reply)
                return
            self._token, _ = token_and_slot(reply)
        if self._token is not None:
            commands = self._undo(self._token)
            replies = (yield commands) if commands else []
            if any(isinstance(reply, ResponseError) and not redis_py.wrong_type(reply) for reply in replies):
                return
        self.done = True


class LateOwed(Owed):
    """A hold that a late copy of a request may take. No server has answered its release in the background."""

    def __init__(self, target: Target, owner: bytes, request: str) -> None:
        super().__init__(target.names[0], None, lambda token: [], None)
        self._target, self._owner, self._request = target, owner, request

    def round(self) -> Round:
        """Asks for the hold of the owner, and releases the hold if no caller has named the owner."""
        replies = yield self._target.ask(self._owner)
        if not any(isinstance(reply, ResponseError) for reply in replies):
            releases = info.releases(self._target, self._owner, replies, self._request)
            replies = (yield releases) if releases and self._owner not in owners.named else []
        self.done = all(not isinstance(reply, ResponseError) or redis_py.wrong_type(reply) for reply in replies)
