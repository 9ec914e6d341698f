"""Finds ports for tests, and says how long the machine kept processes waiting."""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

# Each process begins with a port of its own. Processes with adjacent ids begin 97 ports apart.
_numbers = itertools.count(os.getpid() * 97)


def free_port() -> int:
    """Returns a port where nobody listens, and that no other suite takes while this process runs."""
    while True:
        port = 11_000 + next(_numbers) % 10_000
        held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            held.bind(("127.0.0.1", port))
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            held.close()
            continue
        # The socket stays open until the process ends, so that no other suite takes the port: see CONTRIBUTING.md.
        held.detach()
        return port


def waited_for_a_core() -> float:
    """Returns for how many seconds some process of this machine was ready to run and had no core. Returns 0 if the
    kernel has no `/proc/pressure`."""
    try:
        some = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except OSError:
        return 0.0
    return int(some.rpartition("=")[2]) / 1e6
