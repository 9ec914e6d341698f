"""Finds ports for tests, and says how long the machine kept processes waiting."""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

# Processes with adjacent ids begin far apart.
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
        # Open until the process ends: CONTRIBUTING.md has the rule.
        held.detach()
        return port


def waited_for_a_core() -> float:
    """Returns for how many seconds some process was ready to run and had no core. Without pressure files: 0."""
    try:
        some = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except OSError:
        return 0.0
    return int(some.rpartition("=")[2]) / 1e6
