"""Proxies before the server that lose, change, delay or cut commands and replies."""

from __future__ import annotations

import queue
import socket
import threading
import time
from typing import Any

from kit import address


class CuttingProxy:
    """Passes everything on, until it is told to cut: then the server gets the next command of that name, and the
    client, instead of the reply, the end of its connection."""

    def __init__(self, port: int | None = None) -> None:
        """`port`: of another server than the one at DLOCK_TEST_PORT."""
        where = address()
        self._server: tuple[str, int] = (where["host"], port or where["port"])
        self._cut: bytes | None = None
        self._said: tuple[bytes, bytes] | None = None
        self._times = 0
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()
        # Where clients connect to.
        self.address: dict[str, Any] = {"host": host, "port": port}
        self._ends: list[socket.socket] = [self._listener]
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, command: str, times: int = 1) -> None:
        """The next replies to this command are lost, that number of times."""
        self._cut, self._times = command.encode(), times

    def say(self, command: str, reply: str) -> None:
        """The next command of that name is executed, and this is its reply."""
        self._said = (command.encode(), reply.encode())

    def lead(self, port: int) -> None:
        """New connections lead to this server. Those that are there stay."""
        self._server = (self._server[0], port)

    def close(self) -> None:
        """Ends it and its connections."""
        self._closed = True
        for end in self._ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            self._ends += [client, upstream]
            if self._closed:
                client.close()
                upstream.close()
                return
            threading.Thread(target=self._serve, args=(client, upstream), daemon=True).start()

    def _serve(self, client: socket.socket, upstream: socket.socket) -> None:
        """Sends one command after the other, as a client that waits for each reply sends them."""
        try:
            while command := client.recv(65536):
                upstream.sendall(command)
                reply = upstream.recv(65536)
                if self._times and self._cut is not None and self._cut in command:
                    self._times -= 1
                    self.cuts += 1
                    break
                if self._said is not None and self._said[0] in command:
                    reply, self._said = self._said[1], None
                client.sendall(reply)
        except OSError:
            pass
        finally:
            client.close()
            upstream.close()


class Relay(CuttingProxy):
    """Passes everything on, whenever it comes: also replies that come in pieces. Cuts nothing."""

    def _serve(self, client: socket.socket, upstream: socket.socket) -> None:
        threading.Thread(target=_pass_on, args=(upstream, client), daemon=True).start()
        _pass_on(client, upstream)


class Delay(CuttingProxy):
    """Passes everything on, but one command only later, even if its client does not wait for it any more."""

    def __init__(self, port: int | None = None) -> None:
        super().__init__(port)
        self._kept: bytes | None = None
        self._refused: tuple[bytes, bytes] | None = None
        self._times = self._breaks = 0
        self._waiting: socket.socket | None = None
        self.keeps = threading.Event()
        self._goes_on = threading.Event()

    def keep(self, word: str, *, breaks: int = 0, times: int = 1) -> None:
        """The next commands with this word, `times` of them, do not arrive until `deliver`. `breaks`: the clients of
        the first ones lose the connection."""
        self._breaks, self._times = breaks, times
        self._kept = word.encode()

    def part(self) -> None:
        """The client of the command that is kept back loses the connection."""
        assert self._waiting is not None
        _end(self._waiting)

    def refuse(self, word: str, reply: str) -> None:
        """The next command with this word, and those sent with it, do not arrive. Each gets this reply."""
        self._refused = (word.encode(), reply.encode())

    def deliver(self) -> None:
        """Lets the command arrive."""
        self._goes_on.set()

    def _serve(self, client: socket.socket, upstream: socket.socket) -> None:
        threading.Thread(target=_pass_on, args=(upstream, client), daemon=True).start()
        try:
            while command := client.recv(65536):
                if self._refused is not None and self._refused[0] in command:
                    reply, self._refused = self._refused[1], None
                    client.sendall(reply * command.count(b"DLOCK."))
                    self.keeps.set()
                    continue
                if self._times and self._kept is not None and self._kept in command:
                    # The commands before it arrive.
                    at = command.rindex(b"*", 0, command.index(self._kept))
                    upstream.sendall(command[:at])
                    command, self._waiting = command[at:], client
                    self._times -= 1
                    if self._breaks:
                        self._breaks -= 1
                        _end(client)
                    self.keeps.set()
                    self._goes_on.wait()
                upstream.sendall(command)
        except OSError:
            pass
        finally:
            _end(client, upstream)


class Stall(CuttingProxy):
    """Passes everything on, but keeps replies back while it is told to: as for a program that is paused."""

    def __init__(self, port: int | None = None) -> None:
        super().__init__(port)
        self._flows = threading.Event()
        self._flows.set()

    def stall(self) -> None:
        """From now on, replies are kept back."""
        self._flows.clear()

    def flow(self) -> None:
        """Lets the replies arrive."""
        self._flows.set()

    def _serve(self, client: socket.socket, upstream: socket.socket) -> None:
        threading.Thread(target=_pass_on, args=(client, upstream), daemon=True).start()
        try:
            while data := upstream.recv(65536):
                self._flows.wait()
                client.sendall(data)
        except OSError:
            pass
        finally:
            _end(client, upstream)


class Slow(CuttingProxy):
    """Passes everything on, in each direction after a time."""

    def __init__(self, seconds: float, port: int | None = None) -> None:
        super().__init__(port)
        self._seconds = seconds

    def _serve(self, client: socket.socket, upstream: socket.socket) -> None:
        threading.Thread(target=_pass_on_later, args=(upstream, client, self._seconds), daemon=True).start()
        _pass_on_later(client, upstream, self._seconds)


class Halves(CuttingProxy):
    """Passes everything on, but only the first bytes of one reply."""

    def __init__(self, port: int | None = None) -> None:
        super().__init__(port)
        self._halves: bytes | None = None

    def halve(self, word: str) -> None:
        """The next reply to a command with this word does not arrive to its end."""
        self._halves = word.encode()

    def _serve(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while command := client.recv(65536):
                upstream.sendall(command)
                reply = upstream.recv(65536)
                if self._halves is not None and self._halves in command:
                    self._halves = None
                    client.sendall(reply[:2])
                    # Until the client gives up.
                    client.settimeout(20)
                    client.recv(1)
                    break
                client.sendall(reply)
        except OSError:
            pass
        finally:
            client.close()
            upstream.close()


def _pass_on(source: socket.socket, to: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            to.sendall(data)
    except OSError:
        pass
    finally:
        _end(source, to)


def _pass_on_later(source: socket.socket, to: socket.socket, seconds: float) -> None:
    """Passes on each piece of data, and then the end of the stream, this many seconds after it came."""
    due: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def deliver() -> None:
        try:
            data = b"."
            while data:
                when, data = due.get()
                time.sleep(max(0.0, when - time.monotonic()))
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            _end(source, to)

    threading.Thread(target=deliver, daemon=True).start()
    data = b"."
    while data:
        try:
            data = source.recv(65536)
        except OSError:
            data = b""
        due.put((time.monotonic() + seconds, data))


def _end(*ends: socket.socket) -> None:
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
