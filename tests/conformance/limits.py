"""Measures how an adapter keeps its time limits, and prints its row of the table in docs/time-limits.md.

    python limits.py [--runs N] [--title TITLE] -- ADAPTER…

Needs what run.py needs. Takes about 45 seconds: the last column is one wait for the 30 seconds of an outage.
"""

from __future__ import annotations

import argparse
import queue
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Optional

from run import OPTIONS, Adapter
from servers import Proxy, Server, soon

Answer = queue.Queue[dict[str, Any]]
# The result, if it is not the wanted one, and the seconds. None: the adapter cannot do this.
Cell = Optional[tuple[str, float]]
NO_LIMIT = None


class Bench:
    """An adapter, and a server of its own behind a proxy, with a replica if that is asked for."""

    def __init__(self, adapter: Adapter, *, replica: bool = False) -> None:
        self._adapter = adapter
        self.cancels = "cancel" in adapter.features
        self.server = Server()
        self.replica = Server() if replica else None
        if self.replica is not None:
            self.replica.replicate(self.server)
        self.way = Proxy(self.server.port)
        # The first acquisition and the first wait of a program take longer, in Java above all.
        self.result("a", 60000, name="warm")
        self.result("b", 100, name="warm")
        self.holding = self.result("h", NO_LIMIT)

    def acquire(self, lock: str, wait: int | None, name: str = "job") -> Answer:
        """Begins an acquisition. `wait` in ms; 0: a try, None: no limit."""
        options = {**OPTIONS, "wait": wait, "lease": 60000}
        return self._adapter.ask(do="acquire", lock=lock, port=self.way.port, name=name, **options)

    def result(self, lock: str, wait: int | None, name: str = "job") -> dict[str, Any]:
        """Acquires, and returns the answer."""
        return self.acquire(lock, wait, name).get(timeout=60)

    def queued(self, number: int) -> None:
        """Waits until this number of requests is in the queue."""
        soon(f"{number} requests are in the queue", lambda: int(self.server.info("job").get("waiters", 0)) == number)

    def cancel(self, lock: str, answer: Answer) -> Cell:
        """Cancels an acquisition."""
        began = time.monotonic()
        self._adapter.ask(do="cancel", lock=lock)
        return took(answer, began, "canceled")

    def stop(self) -> None:
        """Kills the server."""
        self.way.lead(None)
        self.server.close()

    def start(self) -> None:
        """Starts an empty server in its place."""
        self.server = Server()
        self.way.lead(self.server.port)

    def fail_over(self) -> None:
        """Kills the primary. Half a second later, the replica becomes the primary."""
        assert self.replica is not None
        primary, self.server = self.server, self.replica
        soon("the replica has all", lambda: self.server.client.info("replication")["slave_repl_offset"]
             == primary.client.info("replication")["master_repl_offset"])
        self.way.lead(None)
        primary.close()
        time.sleep(0.5)
        self.server.call("REPLICAOF", "NO", "ONE")
        self.way.lead(self.server.port)

    def close(self) -> None:
        """Ends the servers."""
        self.way.close()
        self.server.close()
        if self.replica is not None:
            self.replica.close()


# The results of a wait in the queue at an outage. The server had said no, so a package may say `refused`.
OVER = ("refused", "unreachable")


def took(answer: Answer, since: float, *wanted: str) -> Cell:
    """Returns how long an acquisition took, and its result unless that is a wanted one."""
    got = answer.get(timeout=90)
    note = "" if got["result"] in wanted else f"{got['result']} "
    return note, got["at"] - since


def down(bench: Bench) -> list[Cell]:
    """Measures a try, a wait of 1 s and a cancellation. Then a wait without a limit, after the server is back."""
    bench.stop()
    cells = [took(bench.acquire("t", 0), time.monotonic(), "unreachable")]
    cells.append(took(bench.acquire("l", 1000), time.monotonic(), "unreachable"))
    cells.append(None)
    if bench.cancels:
        waiting = bench.acquire("c", NO_LIMIT)
        time.sleep(0.5)
        cells[-1] = bench.cancel("c", waiting)
    waiting = bench.acquire("u", NO_LIMIT)
    time.sleep(1)
    bench.start()
    cells.append(took(waiting, time.monotonic(), "granted"))
    return cells


def hung(bench: Bench) -> list[Cell]:
    """Measures a try, a wait of 1 s, one that was in the queue before the server hung, and a cancellation."""
    waiting, began = bench.acquire("q", 1000), time.monotonic()
    bench.queued(1)
    bench.server.freeze()
    cells = [took(waiting, began, *OVER)]
    cells.insert(0, took(bench.acquire("l", 1000), time.monotonic(), "unreachable"))
    cells.insert(0, took(bench.acquire("t", 0), time.monotonic(), "unreachable"))
    if not bench.cancels:
        return [*cells, None]
    bench.server.thaw()
    bench.queued(0)
    waiting = bench.acquire("c", NO_LIMIT)
    bench.queued(1)
    bench.server.freeze()
    time.sleep(0.3)
    return [*cells, bench.cancel("c", waiting)]


def killed(bench: Bench) -> list[Cell]:
    """Measures a wait of 1 s, during which the server is killed."""
    waiting, began = bench.acquire("l", 1000), time.monotonic()
    bench.queued(1)
    bench.stop()
    return [took(waiting, began, *OVER)]


def failed_over(bench: Bench) -> list[Cell]:
    """Measures a wait of 1 s, and for a wait without a limit the time from DEL on the new primary to the grant."""
    limited, began = bench.acquire("l", 1000), time.monotonic()
    bench.queued(1)
    unlimited = bench.acquire("u", NO_LIMIT)
    bench.queued(2)
    bench.fail_over()
    cells = [took(limited, began, "refused")]
    bench.queued(1)
    bench.server.call("DEL", "job")
    cells.append(took(unlimited, time.monotonic(), "granted"))
    return cells


def hung_for_good(bench: Bench) -> list[Cell]:
    """Measures how soon a wait without a limit gives the server up."""
    waiting = bench.acquire("u", NO_LIMIT)
    bench.queued(1)
    bench.server.freeze()
    return [took(waiting, time.monotonic(), "unreachable")]


HEAD = [
    "down: try", "down: 1 s", "down: cancel", "back: no limit",
    "hung: try", "hung: 1 s", "hung: 1 s in the queue", "hung: cancel",
    "killed: 1 s", "failover: 1 s", "failover: no limit", "hung: no limit",
]


def measured(command: list[str], outage: Callable[[Bench], list[Cell]], runs: int) -> list[str]:
    """Returns the cells of an outage, each the slowest of several runs."""
    all_cells: list[list[Cell]] = []
    for _ in range(runs):
        adapter = Adapter(command)
        bench = Bench(adapter, replica=outage is failed_over)
        try:
            all_cells.append(outage(bench))
        finally:
            bench.close()
            adapter.close()
    return [printed(cells) for cells in zip(*all_cells)]


def printed(cells: Iterable[Cell]) -> str:
    """Returns the slowest, or one with an unwanted result."""
    present = [cell for cell in cells if cell is not None]
    if not present:
        return "–"
    note, seconds = max(present, key=lambda cell: (cell[0] != "", cell[1]))
    return f"{note}{seconds:.2f}"


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3, help="of which the slowest counts (default 3)")
    parser.add_argument("--title", default="adapter", help="the first cell of the row")
    parser.add_argument("adapter", nargs="+")
    arguments = parser.parse_args()
    row: list[str] = []
    for outage in (down, hung, killed, failed_over):
        row += measured(arguments.adapter, outage, arguments.runs)
    row += measured(arguments.adapter, hung_for_good, 1)
    print("| package | " + " | ".join(HEAD) + " |")
    print("|---" * (len(HEAD) + 1) + "|")
    print(f"| {arguments.title} | " + " | ".join(row) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
