"""The way between programs and a server: a network that delays, holds, loses and cuts."""

from __future__ import annotations

import asyncio
import contextlib
import random

Pair = tuple[asyncio.StreamWriter, asyncio.StreamWriter]


class Way:
    """Forwards connections at one port to another."""

    def __init__(self, port: int, to: int, choices: random.Random) -> None:
        self.port = port
        self._to = to
        self._choices = choices
        # The longest that a piece takes, in each direction, in seconds.
        self.delay = 0.0
        self._pairs: set[Pair] = set()
        # Connections that lost something, and end with the fault.
        self._missed: set[Pair] = set()
        self._swallows = False
        self._passes = {"commands": asyncio.Event(), "replies": asyncio.Event()}
        for event in self._passes.values():
            event.set()

    async def open(self) -> None:
        """Begins to listen."""
        self._server = await asyncio.start_server(self._join, "127.0.0.1", self.port)

    def hold(self, what: str) -> None:
        """Keeps commands or replies back. They arrive when they are let go."""
        self._passes[what].clear()

    def swallow(self) -> None:
        """Loses all replies. The connections that missed one end with the fault."""
        self._swallows = True

    def heal(self) -> None:
        """Carries everything at once again."""
        self.delay, self._swallows = 0.0, False
        for event in self._passes.values():
            event.set()
        for pair in self._missed & self._pairs:
            _cut(pair)
        self._missed.clear()

    def cut(self, share: float) -> None:
        """Breaks this share of the connections."""
        for pair in sorted(self._pairs, key=id):
            if self._choices.random() < share:
                _cut(pair)

    async def close(self) -> None:
        """Ends it and its connections."""
        self._server.close()
        self.heal()
        self.cut(1.0)

    async def _join(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            to_client.transport.abort()
            return
        pair = to_client, to_server
        self._pairs.add(pair)
        commands = self._carry(client, to_server, "commands", pair)
        await asyncio.gather(commands, self._carry(server, to_client, "replies", pair))
        self._pairs.discard(pair)
        _cut(pair)

    async def _carry(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, what: str, pair: Pair) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if self.delay:
                    await asyncio.sleep(self._choices.uniform(0, self.delay))
                await self._passes[what].wait()
                if self._swallows and what == "replies":
                    self._missed.add(pair)
                else:
                    to.write(data)
                    await to.drain()
            await self._passes[what].wait()
            if to.can_write_eof():
                to.write_eof()


def _cut(pair: Pair) -> None:
    for writer in pair:
        writer.transport.abort()
