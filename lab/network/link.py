"""Two networks with a link between them that delays each packet, for kernels without `netem`.

Each network is a namespace with one TUN device. A process of its own passes packets from one device to the other, in
their order, each as late as the delay says. The kernel's TCP is at both ends, as on a real link.
"""

from __future__ import annotations

import collections
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import time
from types import TracebackType

SERVER, CLIENT = "10.77.0.1", "10.77.0.2"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
PR_SET_TIMERSLACK = 29


class Link:
    """The networks `server` and `client`, for the time of a `with` block."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: of the delay in each direction."""
        self.seconds = seconds
        self._names = [f"dlock-{side}-{os.getpid()}" for side in ("server", "client")]
        self._carrier = 0

    def inside(self, side: str, *words: str) -> list[str]:
        """Returns the words that start a program in one of the networks."""
        return ["ip", "netns", "exec", self._names[side == "client"], *words]

    def __enter__(self) -> Link:
        ends = [self._network(name, number) for number, name in enumerate(self._names)]
        self._carrier = os.fork()
        if not self._carrier:
            carry(ends, self.seconds)
        for end in ends:
            os.close(end)
        return self

    def _network(self, name: str, number: int) -> int:
        """Makes a network, and returns its device."""
        ip("netns", "add", name)
        device, own = f"dlock{number}", (SERVER, CLIENT)[number]
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH14x", device.encode(), IFF_TUN | IFF_NO_PI))
        ip("link", "set", device, "netns", name)
        ip("-n", name, "addr", "add", f"{own}/30", "dev", device)
        for each in ("lo", device):
            ip("-n", name, "link", "set", each, "up")
        return tun

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.kill(self._carrier, 9)
        os.waitpid(self._carrier, 0)
        for name in self._names:
            ip("netns", "del", name)


def ip(*words: str) -> None:
    """Runs `ip`."""
    subprocess.run(["ip", *words], check=True)


def carry(ends: list[int], seconds: float) -> None:
    """Passes packets on until it is killed."""
    # Sleeps that end 50 µs late, as by default, would add to the delay.
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    queue: collections.deque[tuple[float, int, bytes]] = collections.deque()
    while True:
        rest = max(0.0, queue[0][0] - time.monotonic()) if queue else None
        ready, _, _ = select.select(ends, [], [], rest)
        due = time.monotonic() + seconds
        for end in ready:
            queue.append((due, ends[1 - ends.index(end)], os.read(end, 65536)))
        while queue and queue[0][0] <= time.monotonic():
            _, to, packet = queue.popleft()
            os.write(to, packet)
