"""An acquisition: its commands, its connections, and what it may have left on the server. `Attempt` decides."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from redis.exceptions import ConnectionError, ResponseError

from . import commands, redis_py
from .attempt import Attempt
from .commands import Command, Target
from .limits import LATE, TRY, Limits
from .owners import new_request

# A grant that is bound to a connection, and has neither a known lease nor a cap, is old from this age on, in seconds.
_FIRST_LOOK = 1.0


@dataclass(frozen=True)
class Replicas:
    """How many replicas must acknowledge a grant and a renewal, and in how many seconds."""

    count: int
    timeout: float

    def wait(self) -> Command:
        """Returns the command that waits for them."""
        return commands.wait(self.count, self.timeout)

    def answer_within(self) -> float:
        """Returns the seconds in which its reply has to come."""
        return self.timeout + TRY

    def too_few(self, acknowledged: int) -> str:
        """Returns the message for a grant or a renewal that too few of them acknowledged."""
        return f"{acknowledged} of {self.count} replicas acknowledged within {self.timeout:g} s"


@dataclass
class Debt:
    """The hold that an abandoned attempt may have on the server."""

    token: int | None
    # Whether a command was sent whose reply was not read.
    unanswered: bool
    # Connections on which it may still be executed.
    talks: list[Any]
    # The owner of its request, if no caller knows the owner.
    owner: bytes | None = None
    # How often its release was sent.
    undos: int = 0
    # Set when the clean-up has ended. The asyncio client does not use it.
    ended: threading.Event = field(default_factory=threading.Event)
    _begun: threading.Lock = field(default_factory=threading.Lock)

    def arrives_late(self) -> bool:
        """Returns whether a command may be executed after the clean-up: its connection has ended without an answer."""
        return any([talk.is_unanswered for talk in self.talks])

    def begins(self) -> bool:
        """Returns True once. An interrupt may have had the clean-up started twice."""
        return self._begun.acquire(blocking=False)

    def is_paid(self) -> bool:
        """Returns whether the server has nothing of it any more, and no copy of its release may still arrive there."""
        return self.token is None and not self.unanswered and self.undos <= 1

    def reads(self, replies: list[Any]) -> None:
        """Takes replies to acquiring commands that still came."""
        for reply in replies:
            self.unanswered = False
            if isinstance(reply, (int, list)):
                self.token, _ = commands.token_and_slot(reply)


@dataclass
class Acquisition:
    """Repeats carry the same `REQUEST`: after a lost connection, a repeat gets the place or the grant of the first."""

    target: Target
    owner: bytes
    # In ms. None: the server's default.
    lease: int | None
    # Whether the hold is bound to its connection.
    session: bool
    limits: Limits
    replicas: Replicas | None = None
    # The cap of a new hold in ms.
    max_hold: int | None = None
    # Makes the owner of a request that follows one whose copies or grant are of no use any more. None: the caller has
    # named it.
    owners: Callable[[], bytes] | None = None
    # Whether the server is asked about an old grant. Not for a re-entry, which makes no lease shorter.
    asks_old: bool = True
    # The `Session` that the grant is bound to.
    named: Any = None
    # The session on the key's server: in a cluster, each server has one of its own.
    home: Any = None
    # How often `home` had been opened when the first command was sent to it. -1: an earlier command went elsewhere.
    openings: int = 0
    request: str = field(default_factory=new_request)

    # The number of the last command.
    last: int = 0
    # Until when the caller waits for the answer about an old grant.
    asks_until: float = -math.inf
    # Whether a command was sent whose reply was not read. The lock may then be held.
    unanswered: bool = False
    # The token, from the moment the grant was read.
    token: int | None = None
    # The number of the permit's place (`SLOT`), if it was asked for.
    slot: int | None = None
    # The connection that a granted session is bound to.
    connection: Any = None
    # How many replicas acknowledged the grant. None: they were not asked yet.
    acknowledged: int | None = None
    # Whether the asyncio client has given up, and cleans up in the background. The client of threads never sets it.
    abandoned: bool = False
    # Whether the pool was asked for a connection.
    lent: bool = False
    # Connections on which a command may still be executed that was not answered.
    talks: list[Any] = field(default_factory=list)
    # For a session: connections on which a command was not answered before a repeat was sent on another one. The
    # command may still arrive and bind the hold to its connection, whose end would release the hold. Therefore they
    # stay open for as long as the hold.
    late: list[Any] = field(default_factory=list)
    # For a session: connections that its grant was bound to, and may be still until a repeat is answered.
    bound: list[Any] = field(default_factory=list)
    # Connections that nobody needs any more.
    spare: list[Any] = field(default_factory=list)
    # The owners of earlier requests that may have been granted, or may still be.
    former: list[bytes] = field(default_factory=list)
    # The debt that an interrupt has left without a clean-up.
    debt: Debt | None = None
    # The debt when the attempt was given up.
    owed: Debt | None = None
    # The number of the last command whose connection was lost.
    cut: int = -1
    # The task of asyncio that cleans up after the attempt.
    clearing: Any = None

    def __post_init__(self) -> None:
        known = [each / 1000 for each in (self.lease, self.max_hold) if each is not None]
        # Without a known lease or cap, a grant is old at once (with a session after a moment): the server is asked
        # about it.
        old = min(known) / 3 if known else _FIRST_LOOK if self.session else -1.0
        old = old if self.asks_old else math.inf
        if self.asks_old and self.owners is None and self.target.enters:
            # The owner may hold the lock already, and a cap of that hold ends this one, too.
            old = -1.0
        self.course = Attempt(self.limits, math.inf if self.lease is None else self.lease / 1000, old)

    # Commands that were sent, and their replies

    def starts(self) -> None:
        """Begins the attempt, or begins it again after an error."""
        self.course.starts()
        self.abandoned = False

    def sends(self, now: float) -> None:
        """An acquiring command is about to be sent."""
        self.unanswered = True
        self.last = self.course.sends(now)

    def hears(self, now: float) -> None:
        """A server has answered."""
        self.limits.heard = now

    def takes(self, now: float, reply: Any) -> None:
        """Takes the reply to the last command. Raises it if it is an error; `ConnectionError` if it leaves the outcome
        unknown, `Unreachable` if it is a replica's."""
        if not isinstance(reply, ResponseError) or redis_py.is_answer(reply):
            self.hears(now)
        if isinstance(reply, ResponseError):
            if not redis_py.may_be_executed(reply):
                self.course.refused(now, self.last)
            if self._is_unknown(reply):
                raise ConnectionError(str(reply)) from reply
            # An earlier copy may be executed.
            self.unanswered = self.course.may_be_granted
            try:
                redis_py.results([reply])
            except redis_py.NotPrimary as error:
                # A failover: there may be another primary at this address soon.
                raise redis_py.Unreachable(error) from reply
        # The token is kept before the command counts as answered: an interrupt in between must not lose it.
        self.slot = commands.token_and_slot(reply)[1]
        self.token, _ = commands.token_and_slot(reply)
        self.unanswered = False
        if self.token is not None:
            self.course.granted(now, self.last)
        else:
            self.course.nil(now, self.last, of_slice=self.limits.wait_slice is not None and self.left(now) > 0)

    def loses(self, now: float) -> None:
        """The connection is lost."""
        if self.unanswered:
            self.cut = self.last
            self.course.cut(now, self.last)

    @property
    def is_copied(self) -> bool:
        """Returns whether a copy of its request may be executed later, because its connection was lost."""
        return self.course.is_copied(but=-1 if self.cut == self.last else self.last)

    def goes_on(self, error: BaseException) -> bool:
        """Returns whether the caller asks again after this error: a string locks the key. Copies without an answer stay
        copies of the next request, as after nil. A clean-up would release what the next request gets."""
        overwritten = isinstance(error, ResponseError) and redis_py.wrong_type(error)
        return overwritten and self.limits.waits and self.token is None

    def held(self, now: float) -> None:
        """Notes that a string locks the key. A grant that it has overwritten is lost."""
        if self.course.has_grant:
            self._begins_again(now, self.last)
        self.course.held()

    def over(self) -> None:
        """Notes that the request is over, and that the caller has no grant of it. An owner that the caller has named
        may have another hold."""
        if self.owners is not None and self.is_copied:
            self.former.append(self.owner)

    def confirms(self) -> list[Command]:
        """Returns the commands that ask about an old grant, and start its lease again unless a named session does."""
        assert self.token is not None
        renewals = [] if self.named is not None else self.target.renew(self.owner, self.token, self.lease)
        return [*renewals, *self.target.check(self.token)]

    def asks(self, now: float) -> tuple[int, float]:
        """The server is asked about an old grant. Returns the number of the command, and until when it may be
        answered."""
        self.asks_until = self.limits.question(now)
        return self.course.sends(now), self.asks_until

    def confirmed(self, now: float, number: int, replies: list[Any]) -> None:
        """Takes the replies to `confirms`."""
        self.hears(now)
        if None in replies:
            self._begins_again(now, number)
        else:
            self.course.ok(now, number, min(replies[-len(self.target.names) :]) / 1000)

    def replicated(self, now: float, number: int, renewed: list[Any]) -> None:
        """Takes the replies to renewals that replicas have acknowledged."""
        if None in renewed:
            self._begins_again(now, number)
        else:
            # A cap may have cut the lease: then the server is asked.
            self.course.ok(now, number, 0.0 if 0 in renewed else None)

    def _begins_again(self, now: float, number: int) -> None:
        """The lock was granted, and lost since: the next command is a new request."""
        self.over()
        self.course.gone(now, number)
        self.request = new_request()
        self.owner = self.owner if self.owners is None else self.owners()
        self.token = self.slot = self.acknowledged = None

    def repeats(self, now: float) -> None:
        """The server of the grant is lost, or the connection of its session. The next command is a copy, which gets the
        same grant on another connection."""
        self.unbinds()
        self.token, self.unanswered, self.acknowledged = None, True, None
        self.course.lost(now)

    def unbinds(self) -> None:
        """The next command binds the hold to another connection than the last."""
        if self.connection is not None:
            self.bound.append(self.connection)
            self.connection = None

    def is_not_granted(self, now: float) -> bool:
        """Returns whether the lock counts as refused without a last answer: its time is over, and a server refused
        it."""
        return now >= self.limits.gives_up() and self.course.over(now).do == "refused"

    def keeps(self, talk: Any) -> bool:
        """Keeps a connection that the attempt leaves, if no answer came there. Returns whether it did."""
        if self.unanswered and talk.is_unanswered:
            self.talks.append(talk)
            return True
        return False

    def forgive(self, now: float, error: Exception) -> None:
        """Parts with the kept connections after this error, before a repeat stands for what was sent on them. With a
        session, they stay open, as `late`. If one of them has ended, the repeat has another owner; if the caller has
        named the owner, raises the error."""
        if self.session:
            self.late += self.talks
        else:
            self.spare += self.talks
        self.talks = []
        if not self.may_end_late():
            return
        if self.owners is None:
            raise error.reason if isinstance(error, redis_py.Unreachable) else error
        self.former.append(self.owner)
        self.owner, self.request, self.unanswered = self.owners(), new_request(), False
        self.token = self.slot = self.acknowledged = None
        self.course.orphaned(now)
        self.unbinds()
        self.parts()

    def may_end_late(self) -> bool:
        """Returns whether a connection of a session has ended on which a command was not answered: if the server
        executes the command late, the end of that connection releases the lock."""
        return any([line.has_ended() for line in self.late])

    def parts(self) -> None:
        """Parts with the connections that nobody needs at its end."""
        self.spare += self.bound
        self.bound = []
        if self.token is None:
            self.spare += self.late
            self.late = []

    def release_all(self, owner: bytes) -> list[Command]:
        """Returns the commands that release what a former owner may have been granted."""
        return self.target.release(owner, None, new_request(), 1, every=True)

    def owes(self) -> Debt | None:
        """Returns what it may have on the server, and forgets it."""
        owner = self.owner if self.owners is not None else None
        debt = Debt(self.token, self.unanswered, [*self.talks, *self.late, *self.bound], owner)
        self.talks, self.late, self.bound = [], [], []
        self.token, self.unanswered = None, False
        # No call follows: an interrupt in it would lose the debt.
        if debt.token is None and not debt.unanswered and not debt.talks:
            return None
        self.owed = debt
        return debt

    def enters(self, home: Any) -> None:
        """The next command goes to the server of this session."""
        if self.home is None:
            self.openings = home.openings
        elif self.home is not home:
            # An earlier copy may have been granted on another node, and the hold come here with its cluster slot.
            self.openings = -1
        self.home = home

    def check(self) -> None:
        """Raises `LockError` if its session is not open."""
        if self.named is not None:
            self.named.check()

    def _is_unknown(self, error: ResponseError) -> bool:
        """Returns whether the error leaves the outcome unknown, so that the command must be repeated."""
        if commands.code(error) == "NOSESSION" and self.named is not None:
            # An earlier copy may have been granted all the same.
            self.home.missing()
            return True
        # A failover, or an operator.
        return commands.code(error) == "UNBLOCKED"

    # Time limits

    def left(self, now: float) -> float:
        """Returns the seconds of waiting that are left; `inf` for an unlimited wait."""
        return self.limits.left(now)

    def limit(self) -> float | None:
        """Returns until when its caller waits, whatever happens. None: for as long as a server answers."""
        if self.limits.is_endless:
            return None
        return max(self.limits.gives_up() + LATE, self.asks_until)

    def replicas_in_time(self, now: float) -> Replicas | None:
        """Returns the replicas that must acknowledge a grant, with the time that is left for them."""
        if self.replicas is None:
            return None
        return replace(self.replicas, timeout=self.limits.of_replicas(now, self.replicas.timeout))

    # Commands

    def first(self) -> Command:
        """Returns the command that does not wait."""
        return self._acquire(None, bind=True)

    def command(self, now: float) -> Command:
        """Returns the command to send now, which waits."""
        return self._acquire(self.course.block(now), bind=True)

    def once_more(self) -> Command:
        """Returns a repeat that tells whether a command that was sent and given up has the lock."""
        return self._acquire(None, bind=False)

    def undo(self, token: int) -> list[Command]:
        """Returns the commands that release what the attempt got. They are the same each time: the repeat of a release
        that was executed must not release another entry."""
        return self.target.release(self.owner, token, self.request, self.target.permits)

    def _acquire(self, block: int | None, *, bind: bool) -> Command:
        options = commands.options(
            lease=self.lease,
            block=block,
            session=bind and self.session,
            request=self.request,
            named=self.home.id if bind and self.home is not None else None,
            max_hold=self.max_hold,
        )
        return (*self.target.acquire(self.owner), *options)
