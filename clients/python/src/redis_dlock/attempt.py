"""One acquisition, however often it is sent."""

from __future__ import annotations

import math
import time
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

    # Whether a command was sent that may have waited.
    queued: bool = False
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
    # When it began, and when a server answered last.
    began: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)

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

    def hears(self) -> None:
        """A server has answered."""
        self.heard = time.monotonic()

    def gives_up(self) -> float:
        """Returns when it stops looking for a server, by `time.monotonic()`."""
        if not self.waits:
            return self.began + TRY
        return self.heard + self.outage if self.ends is None else self.ends

    def step(self) -> float:
        """Returns until when a connection may be made, or a command that does not wait be answered."""
        return min(time.monotonic() + redis_py.STEP, self.gives_up() + LATE)

    def limit(self) -> float | None:
        """Returns until when its caller waits, whatever happens. None: for as long as a server answers."""
        if self.waits and self.ends is None:
            return None
        # The replicas are asked after the grant.
        extra = self.replicas.patience() if self.replicas is not None and self.token is not None else 0.0
        return self.gives_up() + LATE + extra

    def heartbeat(self) -> float:
        """Returns when a server should be asked whether it still answers, while a command waits."""
        return self.heard + self.outage / 3

    def probe(self) -> float:
        """Returns until when the answer to that question may come."""
        now = time.monotonic()
        return min(now + min(self.outage / 3, TRY), max(now, self.gives_up()))

    def left(self) -> float:
        """Returns the seconds of waiting that are left; `inf` for an unlimited wait."""
        if not self.waits:
            return 0.0
        return math.inf if self.ends is None else max(0.0, self.ends - time.monotonic())

    def first(self) -> Command:
        """Returns the command that does not wait."""
        return self._acquire(None, bind=True)

    def command(self) -> Command:
        """Returns the command to send now, which waits."""
        left = self._slice()
        block = 0 if left == math.inf else math.ceil(left * 1000) or None
        return self._acquire(block, bind=True)

    def answer_by(self) -> float | None:
        """Returns until when the reply to `command` has to come. None: whenever it does."""
        if self.moves_on() is not None or self.left() == math.inf:
            return None if self.wait_slice is None else time.monotonic() + self._slice() + _GRACE
        return self.gives_up() + LATE

    def moves_on(self) -> float | None:
        """Returns the seconds after which the next slice is sent, well before this one ends. None: this is the last."""
        return None if self.wait_slice is None or self.left() <= self.wait_slice else self.wait_slice / 2

    def goes_on(self) -> bool:
        """Returns whether nil ended only a slice."""
        return self.wait_slice is not None and self.left() > 0

    def _slice(self) -> float:
        left = self.left()
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
