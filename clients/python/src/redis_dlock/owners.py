"""Makes the names of owners, a new one for each acquisition, and of requests."""

from __future__ import annotations

import itertools
import os
import socket
from collections import deque

from . import options

# How many random bytes the name of a request has.
_REQUEST = 16
_numbers = itertools.count(1)
# The owners that callers have named last. They may have other holds than the one for which an owner was made.
named: deque[bytes] = deque(maxlen=1000)


def new(label: str | None = None) -> bytes:
    """Returns a new owner, which `dlock info` shows."""
    random = os.urandom(options.RANDOM)
    if label is not None:
        return options.owner_of_label(label, random)
    return options.owner_of_process(socket.gethostname(), os.getpid(), next(_numbers), random)


def new_request() -> str:
    """Returns a new name of a request."""
    return os.urandom(_REQUEST).hex()
