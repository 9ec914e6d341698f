"""One acquisition, however often it is sent. Pure: reads no clock and sends nothing; times are arguments."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from . import commands, redis_py
from .commands import Command, Target

# How long an acquisition that does not wait looks for a server, in seconds.
TRY = 1.0
# How much longer than the limit of a wait an answer is waited for, in seconds.
LATE = 0.15
# How long a server is asked for a grant that is old when the time of the wait is over, in seconds.
_LAST_QUESTION = 0.1
# A session whose lease is not known counts as old after this time, in seconds.
_FIRST_LOOK = 1.0
# The longest `BLOCK` that the server takes, in ms.
_LONGEST_BLOCK = 2**53
# A reply may take this much longer than `BLOCK` before its connection counts as dead, in seconds.
_GRACE = 5.0


@dataclass(frozen=True)
class Replicas:
    """How many replicas must acknowledge a grant and a renewal, and in how many seconds."""

    count: int
    timeout: float

    def wait(self) -> Command:
        """Returns the command that waits for them."""
        return commands.wait(self.count, self.timeout)

    def patience(self) -> float:
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

    def reads(self, replies: list[Any]) -> None:
        """Takes replies to acquiring commands that still came."""
        for reply in replies:
            self.unanswered = False
            if isinstance(reply, (int, list)):
                self.token, _ = commands.token_and_slot(reply)


@dataclass
class Attempt:
    """Repeats carry the same `REQUEST`: after a lost connection, a repeat gets the place or the grant of the first."""

    target: Target
    owner: bytes
    lease: int | None
    session: bool
    # When waiting ends, by `time.monotonic()`. None: never.
    ends: float | None
    # False: do not wait at all.
    waits: bool = True
    # No command waits longer than this many seconds. None: one command waits for the whole time.
    wait_slice: float | None = None
    replicas: Replicas | None = None
    # How long a wait without a limit looks for a server, in seconds.
    outage: float = 30.0
    # The cap of a new hold in ms.
    max_hold: int | None = None
    # The `Session` that the grant is bound to. Then that of the server of the key, which is another one in a cluster, and
    # how often it had been opened before.
    named: Any = None
    home: Any = None
    openings: int = 0
    request: str = field(default_factory=lambda: uuid.uuid4().hex)

    # When it began, and when a server answered last.
    began: float = 0.0
    heard: float = 0.0
    # When the first command was sent that may have been granted. The lease counts from then.
    sent: float | None = None
    # The seconds that the lease lasts from then, as the server said. None: as long as it was asked for.
    lasts: float | None = None
    # Whether a server said that the lock is held by another.
    is_refused: bool = False
    # Whether a renewal of the grant was not answered: it may still be executed.
    is_open: bool = False
    # Whether the grant must be asked for once more, or was lost.
    queues_again: bool = False
    # Until when the caller waits for the answer about an old grant.
    asks_until: float = -math.inf
    # Whether a command was sent whose reply was not read. The lock may then be held.
    unanswered: bool = False
    # The token, from the moment the grant was read.
    token: int | None = None
    # The number, if one was asked for.
    slot: int | None = None
    # The connection that a granted session is bound to.
    connection: Any = None
    # How many replicas acknowledged the grant. None: they were not asked yet.
    acknowledged: int | None = None
    # Whether it is being cleaned up behind. In asyncio that takes a moment to begin.
    abandoned: bool = False
    # Whether the pool was asked for a connection.
    lent: bool = False
    # Connections on which a command may still be executed that was not answered.
    talks: list[Any] = field(default_factory=list)
    # Of a session, those of them for which another one has been sent. Their command may still arrive, and then it moves
    # the hold to its connection: they stay open for as long as the hold, or their end would release it.
    late: list[Any] = field(default_factory=list)
    def __post_init__(self) -> None:
        self.heard = self.began

    # What was sent, and what was heard

    def sends(self, now: float) -> None:
        """An acquiring command is about to be sent."""
        self.unanswered = True
        self.sent = now if self.sent is None else self.sent

    def refuses(self) -> None:
        """A server has answered nil: it has executed what was sent to it."""
        self.is_refused = True
        if not self.talks and not self.late:
            self.sent = None

    def hears(self, now: float) -> None:
        """A server has answered."""
        self.heard = now

    def is_old(self, now: float) -> bool:
        """Returns whether the grant counts from so long ago that the server must be asked before it is used."""
        if self.token is None or self.sent is None:
            return False
        if self.lasts is not None:
            # Not again because the way is slow.
            return now - self.sent >= self.lasts
        known = [each for each in (self.lease, self.max_hold) if each is not None]
        if not known:
            # The server's default lease.
            return not self.session or now - self.sent > _FIRST_LOOK
        return now - self.sent > min(known) / 3000

    def confirms(self) -> list[Command]:
        """Returns the commands that ask for an old grant, and start its lease again; a session decides by itself."""
        assert self.token is not None
        renewals = [] if self.named is not None else self.target.renew(self.owner, self.token, self.lease)
        return [*renewals, *self.target.check(self.token)]

    def confirmed(self, sent: float, replies: list[Any]) -> None:
        """Takes the replies to `confirms`, which was sent then. If the grant is gone, the next command is a new request."""
        if None in replies:
            self.begins_again()
            return
        self.sent, self.lasts = sent, min(replies[-len(self.target.names) :]) / 1000

    def replicated(self, sent: float, renewed: list[Any]) -> None:
        """Takes the replies to renewals that replicas have acknowledged, and that were sent then."""
        if None in renewed:
            self.begins_again()
            return
        # A cap has cut the lease: the server knows by how much.
        self.sent, self.lasts = sent, 0.0 if 0 in renewed else None

    def begins_again(self) -> None:
        """The lock was granted, and lost since: the next command is a new request."""
        self.request = uuid.uuid4().hex
        self.token = self.slot = self.sent = self.lasts = self.acknowledged = None
        self.is_refused = self.queues_again = True

    def repeats(self) -> None:
        """The connection of its session is lost. The next command is a copy, which gets the same grant on another one."""
        line, self.connection = self.connection, None
        if line.is_open():
            self.late.append(line)
        self.token, self.unanswered, self.queues_again = None, True, True

    def asks(self, now: float) -> float:
        """The server is asked for an old grant. Returns until when it may answer."""
        until = self.gives_up() + (0.0 if self.waits and self.ends is None else LATE)
        self.asks_until = max(until, now + _LAST_QUESTION)
        return self.asks_until

    def goes_round(self, now: float) -> bool:
        """Returns whether it must be sent again after its grant was lost, and time is left for that."""
        return self.queues_again and now < self.gives_up()

    def is_not_granted(self, now: float) -> bool:
        """Returns whether no answer means that the lock was not granted: its time is over, and a server refused it."""
        return self.is_refused and self.waits and self.ends is not None and now >= self.ends

    def keeps(self, talk: Any) -> bool:
        """Returns whether a connection is kept that it leaves, because it was not answered there."""
        if self.unanswered and talk.owes:
            self.talks.append(talk)
            return True
        return False

    def forgive(self) -> list[Any]:
        """Returns the connections that were kept. The next request stands for those that were sent on them."""
        talks, self.talks = self.talks, []
        if self.session:
            self.late += [talk for talk in talks if talk.is_open()]
            talks = [talk for talk in talks if talk not in self.late]
        return talks

    def parts(self) -> list[Any]:
        """Returns the connections that nobody needs after a refusal."""
        late, self.late = self.late, []
        return late

    def owes(self) -> Debt | None:
        """Returns what it may have on the server, and forgets it."""
        debt = Debt(self.token, self.unanswered, [*self.talks, *self.parts()])
        self.talks = []
        self.token, self.unanswered = None, False
        return debt if debt.token is not None or debt.unanswered or debt.talks else None

    def enters(self, home: Any) -> None:
        """The next command goes to the server of this session."""
        if self.home is None:
            self.openings = home.openings
        elif self.home is not home:
            # An earlier copy may have been granted elsewhere, and have come with its slot.
            self.openings = -1
        self.home = home

    def check(self) -> None:
        """Raises `LockError` if its session is not open."""
        if self.named is not None:
            self.named.check()

    def is_unknown(self, error: ResponseError) -> bool:
        """Returns whether the error leaves the outcome unknown, so that the command must be repeated."""
        if commands.code(error) == "NOSESSION" and self.named is not None:
            # An earlier copy may have been granted all the same.
            self.home.missing()
            return True
        # A failover, or an operator.
        return commands.code(error) == "UNBLOCKED"

    # Time limits

    def gives_up(self) -> float:
        """Returns when it stops looking for a server, by `time.monotonic()`."""
        if not self.waits:
            return self.began + TRY
        return self.heard + self.outage if self.ends is None else self.ends

    def step(self, now: float) -> float:
        """Returns until when a connection may be made, or a command that does not wait be answered."""
        return min(now + redis_py.STEP, self.gives_up() + LATE)

    def limit(self) -> float | None:
        """Returns until when its caller waits, whatever happens. None: for as long as a server answers."""
        if self.waits and self.ends is None:
            return None
        # The replicas are asked after the grant.
        extra = self.replicas.patience() if self.replicas is not None and self.token is not None else 0.0
        return max(self.gives_up() + LATE + extra, self.asks_until)

    def heartbeat(self) -> float:
        """Returns when a server should be asked whether it still answers, while a command waits."""
        return self.heard + self.outage / 3

    def probe(self, now: float) -> float:
        """Returns until when the answer to that question may come."""
        return min(now + min(self.outage / 3, TRY), max(now, self.gives_up()))

    def left(self, now: float) -> float:
        """Returns the seconds of waiting that are left; `inf` for an unlimited wait."""
        if not self.waits:
            return 0.0
        return math.inf if self.ends is None else max(0.0, self.ends - now)

    def first(self) -> Command:
        """Returns the command that does not wait."""
        return self._acquire(None, bind=True)

    def command(self, now: float) -> Command:
        """Returns the command to send now, which waits."""
        left = self._slice(now)
        block = 0 if left == math.inf else min(math.ceil(left * 1000), _LONGEST_BLOCK) or None
        return self._acquire(block, bind=True)

    def answer_by(self, now: float) -> float | None:
        """Returns until when the reply to `command` has to come. None: whenever it does."""
        if self.moves_on(now) is not None or self.left(now) == math.inf:
            return None if self.wait_slice is None else now + self._slice(now) + _GRACE
        return self.gives_up() + LATE

    def moves_on(self, now: float) -> float | None:
        """Returns the seconds after which the next slice is sent, well before this one ends. None: this is the last."""
        return None if self.wait_slice is None or self.left(now) <= self.wait_slice else self.wait_slice / 2

    def goes_on(self, now: float) -> bool:
        """Returns whether nil ended only a slice."""
        return self.wait_slice is not None and self.left(now) > 0

    def _slice(self, now: float) -> float:
        left = self.left(now)
        return left if self.wait_slice is None else min(left, self.wait_slice)

    def once_more(self) -> Command:
        """Returns a repeat that tells whether a command that was sent and given up has the lock."""
        return self._acquire(None, bind=False)

    def undo(self, token: int) -> list[Command]:
        """Returns the commands that release what the attempt got."""
        return self.target.release(self.owner, token, uuid.uuid4().hex, self.target.permits)

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
