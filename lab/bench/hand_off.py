#!/usr/bin/env python3
"""Counts the instructions of a hand-off with 64 waiters, function by function, with callgrind.

Usage: lab/bench/hand_off.py SERVER MODULE

A hand-off is the release of a lock with the next wait of the client that released it, in one packet, and the grant to the
head of the queue. Two servers run one after the other, with few hand-offs and with many: the difference is the cost of
the additional ones. Prints the module's own instructions by function, and the calls by its functions that cost most.
"""

import collections
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

# The holder of the lock, and 64 waiters.
CLIENTS = 65
# Each client gets the lock equally often.
FEW, MANY = 3 * CLIENTS, 12 * CLIENTS
# How many functions and calls are printed.
SHOWN = 30


def packed(*words: str) -> bytes:
    """Returns a command as a client sends it."""
    return f"*{len(words)}\r\n".encode() + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words)


def free_port() -> tuple[int, socket.socket]:
    """Returns a port, and the UDP socket of its number, which keeps other tests from the port: see CONTRIBUTING.md."""
    for port in range(11000, 21000):
        held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            held.bind(("127.0.0.1", port))
        except OSError:
            held.close()
        else:
            return port, held
    raise OSError("no free port")


def connect(port: int) -> socket.socket:
    """Connects to a server that may still be starting."""
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.1)
    raise OSError("the server does not start")


def read(client: socket.socket, reply: bytes) -> None:
    """Reads one line, and fails unless it begins with `reply`."""
    line = b""
    while not line.endswith(b"\r\n"):
        byte = client.recv(1)
        if not byte:
            raise ConnectionError("the server has closed the connection")
        line += byte
    if not line.startswith(reply):
        raise ValueError(f"unexpected reply: {line!r}")


def count(server: str, module: str, hand_offs: int, out: pathlib.Path) -> None:
    """Runs a server under callgrind that hands a lock over this often, and writes the instructions to `out`."""
    port, held = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(out.parent), "--loglevel", "warning"]
    # The server may be a script that runs the program. A script that becomes the program writes the same file, later.
    valgrind = ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes", f"--callgrind-out-file={out}"]
    # Waits are long under callgrind. Without log-wait -1, writing them to the log would be counted.
    options += ["--loadmodule", module, "log-wait", "-1"]
    process = subprocess.Popen([*valgrind, server, *options], stdout=subprocess.DEVNULL)
    clients = [connect(port) for _ in range(CLIENTS)]
    owners = [f"{number:08x}-1111-4222-8333-0123456789ab" for number in range(CLIENTS)]
    waits = [packed("DLOCK.ACQUIRE", "lock:000000", owner, "PX", "600000", "BLOCK", "0") for owner in owners]
    for client, wait in zip(clients, waits, strict=True):
        client.sendall(wait)
        if client is clients[0]:
            read(client, b":")
        else:
            # The server gets time to read the request, so that the queue has the order of the clients.
            time.sleep(0.01)
    for number in range(hand_offs):
        giver = number % CLIENTS
        clients[giver].sendall(packed("DLOCK.RELEASE", "lock:000000", owners[giver]) + waits[giver])
        read(clients[giver], b":1")
        read(clients[(number + 1) % CLIENTS], b":")
    connect(port).sendall(packed("SHUTDOWN", "NOSAVE"))
    process.wait()
    held.close()


def costs(out: pathlib.Path, module: str) -> collections.Counter[tuple[str, str]]:
    """Returns the instructions of each pair: a function of the module, and a function that it called.

    The pair of a function and "" has the instructions of its own code, that of "" and "" those of the whole server.
    """
    names: dict[tuple[str, str], str] = {}
    current = {"fn": "", "cfn": "", "ob": ""}
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    is_call = False
    for line in out.read_text(errors="replace").splitlines():
        if match := re.fullmatch(r"(c?)(fn|ob)=\((\d+)\)(?: (.*))?", line):
            called, kind, number, name = match.groups()
            full = names.setdefault((kind, number), name or "")
            # The object of a called function (cob) is not needed.
            if called + kind != "cob":
                current[called + kind] = full
        elif line.startswith("calls="):
            is_call = True
        elif line.startswith("totals:"):
            found["", ""] = int(line.split()[1])
        elif re.match(r"[-+*\d]", line):
            if pathlib.Path(current["ob"]).name == module:
                found[current["fn"], current["cfn"] if is_call else ""] += int(line.split()[1])
            is_call = False
    return found


def main() -> None:
    """Counts the instructions, and prints the cost of a hand-off."""
    server, module = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for hand_offs in (FEW, MANY):
            out = pathlib.Path(folder, str(hand_offs))
            count(server, module, hand_offs, out)
            found.append(costs(out, pathlib.Path(module).name))
    each = {key: (cost - found[0][key]) / (MANY - FEW) for key, cost in found[1].items()}
    print(f"{each.pop(('', '')):8.0f}  all")
    own = {function: cost for (function, called), cost in each.items() if not called}
    print(f"{sum(own.values()):8.0f}  of the module's own, and by function:")
    for function, cost in sorted(own.items(), key=lambda item: -item[1])[:SHOWN]:
        print(f"{cost:8.0f}  {function}")
    print("calls:")
    calls = {" -> ".join(key): cost for key, cost in each.items() if key[1]}
    for call, cost in sorted(calls.items(), key=lambda item: -item[1])[:SHOWN]:
        print(f"{cost:8.0f}  {call}")


if __name__ == "__main__":
    main()
