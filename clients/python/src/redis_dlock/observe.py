"""Observers of a lock, and leader election, for threads and processes."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Any

from redis.backoff import NoBackoff
from redis.exceptions import LockError, LockNotOwnedError, ResponseError
from redis.retry import Retry

from . import observed as holders
from . import owners, redis_py
from .commands import Name
from .errors import DeadlockError, ReplicasError, attach
from .observed import Holder
from .sync import DLock
from .sync_wire import Wire
from .talk import Talk


def holder(redis: Any, name: Name) -> Holder | None:
    """Returns the holder of a lock; None: it is free. Costs one command."""
    return holders.read(Wire(redis, name).ask([holders.question(name)], redis_py.latest())[0])[0]


def watch(redis: Any, name: Name) -> Watcher:
    """Returns an iterator over the holders of a lock: the present one at once, then each change. None: it is free.

        for leader in watch(redis, "leader"):
            print(leader.owner if leader else "no leader")

    The server reports changes (`CLIENT TRACKING`), so nothing polls. The iterator asks when a lease ends, and every
    10 s, which notices a dead connection. Changes that follow each other quickly may be reported as one. During an
    outage the iterator waits. It takes two connections outside of the pool until it is closed: by `close()` from any
    thread, or at the end of a `with` block.
    """
    return Watcher(redis, name)


class Watcher:
    """See `watch`."""

    def __init__(self, redis: Any, name: Name) -> None:
        self._wire = Wire(redis, name)
        self._name = name
        self._closed = False
        self._wakes, self._waker = socket.socketpair()
        self._changes = self._run()

    def __iter__(self) -> Iterator[Holder | None]:
        return self

    def __next__(self) -> Holder | None:
        return next(self._changes)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration."""
        self._closed = True
        try:
            self._waker.send(b".")
        except OSError:
            pass  # The iteration has ended.
        try:
            self._changes.close()
        except ValueError:
            return  # A different thread iterates, and closes the rest.
        self._wakes.close()
        self._waker.close()

    def _run(self) -> Generator[Holder | None, None, None]:
        known: list[Holder | None] = []
        pause = 0.0
        try:
            while not self._closed:
                link: Link | None = None
                try:
                    link = Link(self._wire)
                    while not self._closed:
                        found, seconds = link.ask(self._name)
                        pause = 0.0
                        if known != [found]:
                            known = [found]
                            yield found
                        else:
                            link.wait(seconds, self._wakes)
                except Exception as error:
                    if not holders.may_repeat(error):
                        raise
                    self._pause(pause)
                    pause = min(max(2 * pause, redis_py.OUTAGE_PAUSE), holders.LONGEST_PAUSE)
                finally:
                    if link is not None:
                        link.close()
        finally:
            self._wakes.close()
            self._waker.close()

    def _pause(self, seconds: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakes, selectors.EVENT_READ)
            selector.select(seconds)


class Link:
    """Two connections: one asks for keys, and the server tells the other one of their changes."""

    def __init__(self, wire: Wire) -> None:
        wire._look(redis_py.latest())
        source = wire._source()
        settings = holders.settings_of(source, Retry(NoBackoff(), 0))
        self._asking = source.connection_class(**settings)
        self._listening = source.connection_class(**settings)
        self._questions = Talk(self._asking)
        try:
            self._listening.connect()
            [number] = Talk(self._listening).exchange(("CLIENT", "ID"))
            Talk(self._listening).exchange(("SUBSCRIBE", holders.INVALIDATED))
            self._asking.connect()
            self._questions.exchange(("CLIENT", "TRACKING", "ON", "REDIRECT", number))
        except BaseException:
            self.close()
            raise

    def ask(self, name: Name) -> tuple[Holder | None, float]:
        """Returns the holder, and the seconds after which the question should be repeated."""
        return holders.read(self._questions.exchange(holders.question(name))[0])

    def wait(self, seconds: float, wakes: socket.socket) -> None:
        """Waits for a change, the end of a connection or a byte from `wakes`, for this time at most."""
        with selectors.DefaultSelector() as selector:
            for each in (wakes, self._listening._sock, self._asking._sock):
                selector.register(each, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(seconds)]
        if self._listening._sock in ready:
            self._listening.read_response(disable_decoding=True)

    def close(self) -> None:
        """Closes both."""
        self._asking.disconnect()
        self._listening.disconnect()


class Term:
    """The time for which a process is the leader."""

    def __init__(self, token: int, lock: DLock | None = None) -> None:
        # The fencing token: greater than that of every earlier leader. Send it with every write.
        self.token = token
        # Set when the term has ended, or must be assumed to have ended: stop working.
        self.ended = threading.Event()
        self._lock = lock

    @property
    def remaining(self) -> float:
        """The seconds for which the term certainly lasts if nothing renews it any more; 0 when it has ended. A process
        that was paused sees here at once that its term is over: `ended` is set a moment later."""
        return 0.0 if self.ended.is_set() else holders.left_of(self._lock)


class Election:
    """Leader election: of all processes that run an election of this name, one at a time is the leader.

        election = Election(redis, "leader", on_started=lead)
        election.run()

    `on_started(term)` is called when this process becomes the leader, and may do the leader's work. It returns soon
    after `term.ended` is set; if it returns earlier, the process stays the leader. `on_stopped(term)` is called
    afterwards. A leader that hangs may overlap with the next one: `term.token` lets the receivers of its writes refuse
    them.
    """

    def __init__(
        self,
        redis: Any,
        name: Name,
        on_started: Callable[[Term], Any],
        on_stopped: Callable[[Term], Any] | None = None,
        *,
        timeout: float = 10.0,
        candidate: str | None = None,
        **settings: Any,
    ) -> None:
        """`timeout`: the lease in seconds, after which another process leads if this one dies. It is renewed.

        `candidate`: the owner name by which observers know this process; it must be unique. `settings` are those of
        `DLock`.
        """
        redis_py.check_client(redis, asyncio=False)
        self.candidate = candidate or owners.new().decode()
        self._redis, self._name = redis, name
        self._on_started, self._on_stopped = on_started, on_stopped
        self._settings = {"timeout": timeout, "auto_renewal": True, "thread_local": False, **settings}
        self._stopped = threading.Event()
        self._term: Term | None = None

    @property
    def is_leader(self) -> bool:
        """Returns whether this process is the leader, as far as it knows."""
        term = self._term
        return term is not None and term.remaining > 0

    def leader(self) -> Holder | None:
        """Asks the server for the present leader."""
        return holder(self._redis, self._name)

    def run(self) -> None:
        """Takes part until `stop()` is called."""
        while not self._stopped.is_set():
            lock = DLock(self._redis, self._name, on_lost=self._lost, **self._settings)
            try:
                # In slices, so that `stop` does not wait for a grant.
                if not lock.acquire(blocking_timeout=1.0, token=self.candidate):
                    continue
                token = lock.token
            except (DeadlockError, LockNotOwnedError, ReplicasError, *redis_py.LOST):
                # The server or its replicas are away, or it still has the last term, whose lease ends soon.
                self._stopped.wait(holders.LONGEST_PAUSE)
                continue
            self._lead(lock, token)

    def stop(self) -> None:
        """Ends the term. `run` returns when the callbacks have returned; if none runs, within a second or two."""
        self._stopped.set()
        self._end()

    def _lead(self, lock: DLock, token: int) -> None:
        term = self._term = Term(token, lock)
        if lock.lost.is_set() or self._stopped.is_set():
            # The term has not begun.
            self._end()
            return self._release(lock)
        try:
            self._on_started(term)
            term.ended.wait()
        except BaseException as error:
            self._finish(lock, term, error)
            raise
        self._finish(lock, term, None)

    def _finish(self, lock: DLock, term: Term, failure: BaseException | None) -> None:
        term.ended.set()
        try:
            if self._on_stopped is not None:
                self._on_stopped(term)
        except Exception as error:
            if failure is None:
                raise
            attach(failure, error, "on_stopped failed")
        finally:
            self._release(lock)

    @staticmethod
    def _release(lock: DLock) -> None:
        try:
            lock.release()
        except (LockError, ResponseError, *redis_py.LOST):
            pass  # The lease has ended, or ends the term soon.

    def _lost(self, error: Exception) -> None:
        self._end()

    def _end(self) -> None:
        term = self._term
        if term is not None:
            term.ended.set()
