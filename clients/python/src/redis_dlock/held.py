"""A lock of threads from its grant on: how it is renewed and released, and what the server says of it."""

# Written by scripts/python-threads from async_held.py.

from __future__ import annotations

import contextlib
import math
import time
from typing import Any, Literal

from redis.exceptions import ResponseError

from . import redis_py
from .acquisition import Acquisition
from .talk import Line
from .sync_wire import Wire
from .base import LockBase, least
from .binding import Binding
from .commands import Command, milliseconds, rest_of
from .holds import Hold
from .limits import LATE
from .options import check_lease


class Held(LockBase[Line]):
    """The calls of a lock that is held."""

    def _prepare(self) -> None:
        self._wire = Wire(self.redis, self.name)

    def _watch(self, hold: Hold[Line]) -> Any:
        """Looks after a hold, and returns the watch."""
        raise NotImplementedError

    def _keep(self, attempt: Acquisition) -> None:
        hold, replaced = self._remember(attempt)
        for each in replaced:
            self._let_go(each)
        if self.auto_renewal or self.on_lost is not None or attempt.connection is not None or self._named is not None:
            self._watch(hold)

    def _forget(self, attempt: Acquisition) -> None:
        """Releases what an acquisition that failed may have got."""
        hold = self.local.find(attempt.owner, attempt.token) if attempt.token is not None else None
        if hold is not None:
            self._let_go(hold)
            self.local.forget(hold)
        self._wire.give_up(attempt)
        self._over(attempt)

    def _over(self, attempt: Acquisition) -> None:
        """An acquisition ends without a grant. A copy of its request may still take the lock."""
        attempt.over()
        self._wire.release_former(attempt)

    def _enter(self, hold: Hold[Line], attempt: Acquisition) -> bool:
        try:
            self._wire.acquire(attempt)
        except ResponseError as error:
            self._refused(attempt, error)
        self._copied(hold, attempt)
        if attempt.token == hold.token:
            if self._entered(hold):
                # Without an answer, the hold stays certain for as long as it was.
                with contextlib.suppress(*redis_py.LOST, ResponseError):
                    self._ask_until(hold, attempt.limits.gives_up() + LATE)
            return True
        self._wire.give_up(attempt)
        self._let_go(hold)
        raise self._lost_before_entry(hold)

    def _ask_until(self, hold: Hold[Line], until: float) -> int | None:
        """Asks the server how many ms of a hold are left, and corrects its validity. Returns the answer."""
        question = hold.validity.asks(time.monotonic())
        try:
            left = self._left_now(hold, until)
        except BaseException:
            hold.validity.unasked(question)
            raise
        if self._named is None:
            hold.validity.left(time.monotonic(), question, (left or 0) / 1000)
        return left

    # The following calls take 5 s at most. If no answer has come then, they raise redis-py's `ConnectionError` or
    # `TimeoutError`.

    def locked(self) -> bool:
        """Returns whether an owner has the lock or waits for it, or the key has another type."""
        try:
            found = self._wire.ask([("DLOCK.INFO", name) for name in self._target.names], redis_py.latest())
            return found != [None] * len(found)
        except ResponseError as error:
            if redis_py.wrong_type(error):
                return True
            raise

    def owned(self) -> bool:
        """Returns whether this lock object has the lock. It may be lost by the time that you read the answer."""
        hold = self._hold
        return hold is not None and self._left_now(hold, redis_py.latest()) is not None

    def _left_now(self, hold: Hold[Line], until: float) -> int | None:
        try:
            return self._left_of(hold, self._wire.ask(self._left(hold), until))
        except ResponseError as error:
            if redis_py.wrong_type(error):
                hold.gone()
                return None
            raise

    def release(self) -> None:
        """Releases the lock, or one entry of a reentrant one.

        Raises `LockError` if it was not acquired, `LockNotOwnedError` if it has been lost since.
        """
        self._give_back(1)

    def _goes_on_releasing(self, hold: Hold[Line] | None, entries: int) -> None:
        """Continues a release at the end of a block that was interrupted: in the background, or with the last release
        of the hold. `entries`: the entries of the hold before the interrupted release."""
        if hold is None:
            if self._is_of_parent() or (hold := self._hold) is None:
                return
            entries = hold.entries
        commands: list[Command] = []
        if hold.entries == entries and self.local.remembers(hold):
            number = self._released(hold)
            if self._leaves_to_last(hold, number):
                return
            commands = self._release(hold, number, self._stays(hold, number))
            self._still_entered(hold, None, number, stays=False)
        if not self.local.remembers(hold):
            self._let_go(hold)
        if commands:
            self._wire.tell(commands, hold)

    def _leaves_block(self, hold: Hold[Line] | None, entries: int) -> None:
        """Leaves a release at the end of an inner block that has failed to the last release of the hold, because nobody
        repeats it."""
        if hold is not None and hold.entries == entries and self.local.remembers(hold):
            self._leaves_to_last(hold, self._released(hold))

    def _released(self, hold: Hold[Line]) -> int:
        """Returns the number of entries that a release gives back."""
        return 1

    def _ends_with(self, failure: BaseException) -> None:
        """Releases the lock if it is held, after a failure that came after the grant. An error of the release becomes a
        note of the failure."""
        if self.local.hold is not None:
            self.__exit__(None, failure, None)

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        raise NotImplementedError

    def release_after(self, seconds: float) -> None:
        """Releases the lock in this many seconds: until then, a lease keeps it that nothing renews. Replaces `at_least`
        for this hold; 0 releases the lock at once.

        A renewal that got no answer may still be executed, and would shorten the lease: this method then first waits
        for a second, or for half of the time that is left if that is less. Raises the errors of `release`.
        """
        check_lease("seconds", seconds)
        hold = self._to_release()
        hold.stays_until = time.monotonic() + seconds if seconds > 0 else -math.inf
        if seconds > 0 and hold.validity.is_open():
            time.sleep(min(redis_py.SEES_AN_END[-1], self.remaining / 2))
        self.release()

    def _give_back(self, entries: int) -> None:
        hold = self._to_release()
        stays, until = self._stays(hold, entries), redis_py.latest()
        commands = self._release(hold, entries, stays)
        if hold.watch is not None and hold.entries <= entries:
            hold.watch.stop()
        if hold.entries <= entries:
            hold.validity.release(time.monotonic())
        try:
            if hold.undoing is not None:
                if not self._wire.undone(hold, until):
                    hold.doubts()
                commands = self._release(hold, entries, stays)
            if hold.unsure and hold.entries > entries:
                # An inner release is only counted here. The server is asked whether the lock is lost.
                reply, repeated = None if self._left_now(hold, until) is None else 0, False
            else:
                replies, repeated = self._wire.release(commands, hold, until)
                reply = least(replies)
        except ResponseError as error:
            hold.release_sent = False
            if not redis_py.wrong_type(error):
                if hold.entries <= entries:
                    self._end_refused(hold)
                raise
            reply, repeated = None, False
        except BaseException:
            if isinstance(hold.watch, Binding):
                if hold.entries <= entries:
                    self._release_later(hold)
                    if self._may_be_held_late(hold):
                        self._release_copies(hold)
                raise
            # The last release closes the connection of the hold, whose end releases it in any case. Before that, the
            # other entries need the connection.
            if hold.entries <= entries:
                self._let_go(hold)
            raise
        if self._still_entered(hold, reply, entries, stays):
            if repeated:
                # A copy may still arrive. It would release another entry once the server keeps another id.
                hold.doubts()
            return
        self._let_go(hold)
        # If a repeat finds no hold, the first copy has released it, provided that the lock was held then.
        if reply is None and (stays or not repeated or not hold.was_held):
            raise self._no_longer_owned("release")

    def _end_refused(self, hold: Hold[Line]) -> None:
        """Makes sure that the session of the hold does not keep it, after the server has refused the release."""
        if isinstance(hold.watch, Binding):
            self._release_later(hold)
        elif hold.connection is not None:
            self._let_go(hold)
            # If a repeat finds no hold, the end of the connection has released it.
            hold.release_sent = True

    def _let_go(self, hold: Hold[Line]) -> None:
        if hold.watch is not None and hold.watch.stop():
            self._release_later(hold)
        for line in hold.connections():
            line.close()
        hold.unbinds()
        if self._may_be_held_late(hold):
            self._release_copies(hold)

    def _release_copies(self, hold: Hold[Line]) -> None:
        remembers = self.local.remembers(hold)
        # The caller may enter a hold again whose release has failed: a session must not release it later.
        home = None if remembers else hold.home
        self._wire.release_late(hold.owner, self._target, self._left(hold), home)
        # The mark stays if an interrupt came before, or if the caller may repeat the release.
        hold.is_copied = remembers

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Adds these seconds to the time that is left. With `replace_ttl`, sets the time that is left to these
        seconds."""
        hold, _ = self._to_renew("extend")
        lease, until = milliseconds(additional_time), redis_py.latest()
        if not (replace_ttl or self._replaces_ttl):
            left = self._left_now(hold, until)
            if left is None:
                raise self._no_longer_owned("extend")
            lease += left
        return self._renew(hold, lease, until, "extend")

    def reacquire(self) -> Literal[True]:
        """Starts the timeout again."""
        hold, timeout = self._to_renew("reacquire")
        return self._renew(hold, milliseconds(timeout), redis_py.latest(), "reacquire")

    def _renew(self, hold: Hold[Line], lease: int, until: float, doing: str) -> Literal[True]:
        if self._named is not None:
            lease = self._named.lease(lease)
        lease = max(lease, rest_of(hold.stays_until))
        sent = self._renewing(hold, lease, doing)
        try:
            renewals = self._target.renew(hold.owner, hold.token, lease)
            replies, repeated = self._wire.renew(
                renewals, self._replicas, until, lambda: hold.validity.refused(time.monotonic(), sent)
            )
            renewed = least(replies)
            if renewed == 0:
                # A cap has cut the lease: the hold lasts for less than was asked.
                hold.validity.capped(time.monotonic(), sent)
                renewed = lease = self._ask_until(hold, until) or 0
                renewed = renewed or None
            else:
                hold.validity.ok(time.monotonic(), sent, copies=repeated)
        except BaseException as error:
            if not isinstance(error, ResponseError) or not redis_py.wrong_type(error):
                hold.validity.cut(time.monotonic(), sent)
                raise
            renewed = None
        if renewed is None:
            hold.gone()
            raise self._no_longer_owned(doing)
        self._renewed(hold, sent, lease)
        return True
