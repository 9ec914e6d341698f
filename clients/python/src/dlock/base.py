"""What the two lock classes have in common: settings, what is remembered, how replies are judged."""

from __future__ import annotations

import logging
import time
import uuid
from typing import Any, Generic, TypeVar

from redis.exceptions import LockError, LockNotOwnedError, ResponseError

from . import commands, redis_py
from .attempt import Attempt
from .commands import Command, Mode, Name
from .errors import DeadlockError
from .holds import Hold, PerTask, PerThread, Shared

C = TypeVar("C")

logger = logging.getLogger("dlock")


class LockBase(Generic[C]):
    """Neither sends nor waits."""

    # As redis-py declares them.
    name: Any
    local: Any

    def __init__(
        self,
        redis: Any,
        name: Name,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        mode: Mode = "exclusive",
        session: bool | None = None,
        reentrant: bool = False,
        wait_slice: float | None = None,
    ) -> None:
        """The parameters up to `raise_on_release_error` are those of redis-py's lock. What is different:

        `timeout`: the lease in seconds. None: the lock is held for as long as its connection lives (a session),
        which stays checked out of the client's pool until the release.

        `sleep` is not used for waiting, which is done in the server. It is the pause between two looks at a key that
        is not a dlock lock: somebody holds it the old way, with `SET NX`.

        And these are more:

        `mode`: "read" shares the lock with other readers, "write" excludes them; "exclusive" is a lock without
        readers.

        `session`: bind the hold to a connection also if it has a timeout (True), or never (False: it ends with the
        server's default lease unless it is extended). None: if it has no timeout.

        `reentrant`: who has the lock (the thread; in asyncio the task) may acquire it again, and releases it as
        often.

        `wait_slice`: for connections that something on the way closes when nothing was sent for a while. No command
        waits longer than so many seconds. The next one is sent on a second connection before that and takes over the
        place in line, so it is as if one had waited.
        """
        if mode not in ("exclusive", "read", "write"):
            raise ValueError(f"mode is exclusive, read or write, not {mode!r}")
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.mode: Mode = mode
        self.session = session
        self.reentrant = reentrant
        self.wait_slice = wait_slice
        self.local = self._memory()
        self._prepare()

    def _prepare(self) -> None:
        """The rest of the construction."""

    def _memory(self) -> Shared[C] | PerThread[C] | PerTask[C]:
        return PerThread() if self.thread_local else Shared()

    @property
    def _hold(self) -> Hold[C] | None:
        hold: Hold[C] | None = self.local.hold
        return hold

    @_hold.setter
    def _hold(self, hold: Hold[C] | None) -> None:
        self.local.hold = hold

    @property
    def owner(self) -> bytes | None:
        """Who the server knows as the holder; None: the lock is not held. To be given to `acquire(token=…)` of
        another lock object: whoever reads and then wants to write has to be the same owner."""
        hold = self._hold
        return None if hold is None else hold.owner

    @property
    def token(self) -> int | None:
        """The fencing token. Every grant has a higher one: send it along with every write, and have the receiver
        refuse lower ones than it has seen. None: the lock is not held."""
        hold = self._hold
        return None if hold is None else hold.token

    # Acquiring

    def _attempt(self, blocking: bool | None, blocking_timeout: float | None, token: str | bytes | None) -> Attempt:
        """A new acquisition, with an owner of its own unless the caller named one."""
        blocking = self.blocking if blocking is None else blocking
        patience = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        if not blocking:
            patience = 0
        owner = uuid.uuid4().hex.encode() if token is None else redis_py.encoder(self.redis).encode(token)
        ends = None if patience is None else time.monotonic() + patience
        session = not self.timeout if self.session is None else self.session
        lease = self._lease()
        return Attempt(self.name, owner, self.mode, self.reentrant, lease, session, ends, self.wait_slice)

    def _entry(self, hold: Hold[C]) -> Attempt:
        """Entering once more. It never waits, and leaves the binding to a connection as it is."""
        return Attempt(self.name, hold.owner, self.mode, True, self._lease(), False, time.monotonic())

    def _lease(self) -> int | None:
        return commands.milliseconds(self.timeout) if self.timeout else None

    def _again(self) -> Hold[C] | None:
        """The hold that would be entered once more."""
        hold = self._hold
        return hold if self.reentrant and hold is not None and hold.token is not None else None

    def _lost_before_entry(self) -> LockNotOwnedError:
        self._hold = None
        return self._not_owned("Cannot enter a lock again that's no longer owned")

    # Judging errors

    def _refused(self, error: ResponseError) -> None:
        """Raises what an acquisition failed with, unless the lock is held the old way."""
        if commands.code(error) == "DEADLOCK":
            raise DeadlockError(str(error), lock_name=self._printed()) from error
        if not redis_py.wrong_type(error):
            raise error

    def _printed(self) -> str:
        name: Name = self.name
        return name if isinstance(name, str) else bytes(name).decode(errors="replace")

    def _error(self, message: str) -> LockError:
        return LockError(message, lock_name=self._printed())

    def _not_owned(self, message: str) -> LockNotOwnedError:
        return LockNotOwnedError(message, lock_name=self._printed())

    def _not_acquired(self) -> LockError:
        return self._error("Unable to acquire lock within the time specified")

    # Releasing and renewing

    def _take_over(self, owner: str | bytes) -> None:
        encoded: bytes = redis_py.encoder(self.redis).encode(owner)
        if self.owner != encoded:
            self._hold = Hold(encoded)

    def _to_release(self) -> Hold[C]:
        hold = self._hold
        if hold is None:
            raise self._error("Cannot release a lock that's not owned or is already unlocked.")
        return hold

    def _release(self, hold: Hold[C]) -> Command:
        """The same for a release that was sent before and not answered."""
        hold.releasing = hold.releasing or uuid.uuid4().hex
        return commands.release(self.name, hold.owner, self.mode, hold.token, hold.releasing)

    def _still_entered(self, hold: Hold[C], reply: int | None) -> bool:
        """After a release that was answered. No longer: forgets the hold."""
        hold.releasing, hold.release_sent = None, False
        if reply == 0:
            hold.entries -= 1
            return True
        self._hold = None
        return False

    def _no_longer_owned(self, doing: str) -> LockNotOwnedError:
        return self._not_owned(f"Cannot {doing} a lock that's no longer owned")

    def _to_renew(self, doing: str) -> tuple[Hold[C], float]:
        """The hold, and the timeout in seconds."""
        hold = self._hold
        if hold is None:
            raise self._error(f"Cannot {doing} an unlocked lock")
        if self.timeout is None:
            raise self._error(f"Cannot {doing} a lock with no timeout")
        return hold, self.timeout

    def _renewal(self, hold: Hold[C], lease: int) -> Command:
        return commands.renew(self.name, hold.owner, self.mode, hold.token, lease)

    def _left(self, hold: Hold[C]) -> Command:
        """Asks for the milliseconds that are left, and so whether the hold lives."""
        if hold.token is None:
            return ("DLOCK.INFO", self.name, "OWNER", hold.owner)
        return ("DLOCK.CHECK", self.name, hold.token)

    def _left_of(self, hold: Hold[C], reply: Any) -> int | None:
        return reply if hold.token is not None else _ttl_of_owner(reply, self.mode)

    def _exit(self, error: LockError) -> None:
        """A release at the end of a `with` block has failed."""
        if self.raise_on_release_error:
            raise error
        logger.warning("%s was released, or no longer owned, before the end of its block: %s", self._printed(), error)


def _ttl_of_owner(info: Any, mode: Mode) -> int | None:
    """Milliseconds left of the hold of this mode, from the reply to `DLOCK.INFO … OWNER`."""
    wanted = "shared" if mode == "read" else "exclusive"
    for hold in _fields(info).get("holds", []):
        fields = _fields(hold)
        found = fields["mode"]
        if (found.decode() if isinstance(found, bytes) else found) == wanted:
            ttl: int = fields["ttl"]
            return ttl
    return None


def _fields(reply: Any) -> dict[str, Any]:
    """A map, which RESP2 sends flat."""
    if reply is None:
        return {}
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {name.decode() if isinstance(name, bytes) else name: value for name, value in pairs}
