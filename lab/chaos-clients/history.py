"""The history of a run, as its programs saw it: an attempt is one acquisition and all that followed from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TextIO


@dataclass
class Sample:
    """The words of a program about its lock, between two times, in microseconds of the machine's monotonic clock."""

    before: int
    after: int
    remaining: int
    lost: bool

    @property
    def believes(self) -> bool:
        """Returns whether it said that it holds the lock."""
        return self.remaining > 0 and not self.lost


@dataclass
class Attempt:
    """An acquisition: `kind` is fixed, keep (renewed) or named; lease and wait are ms, all other times microseconds."""

    program: str
    worker: str
    process: int
    lock: str
    mode: str
    slots: int | None
    kind: str
    lease: int
    wait: int
    began: int
    ended: int = 0
    # `died`: its program was killed meanwhile.
    result: str = ""
    message: str = ""
    token: int = 0
    slot: int | None = None
    samples: list[Sample] = field(default_factory=list)
    # When the release was asked for and answered, and its result. None: nobody released it.
    releasing: int | None = None
    released: int = 0
    release: str = ""
    release_message: str = ""
    # When its program was killed.
    killed: int | None = None

    @property
    def is_granted(self) -> bool:
        """Returns whether the lock was granted."""
        return self.result == "granted"

    @property
    def name(self) -> str:
        """Returns the program and its worker."""
        return f"{self.program}/{self.worker}"

    def believed(self) -> tuple[int, int] | None:
        """Returns from when to when it certainly believed: from the first to the last time that it said so."""
        said = [sample for sample in self.samples if sample.believes]
        return (said[0].after, max(said[0].after, said[-1].before)) if said else None

    def claimed_until(self) -> int:
        """Returns until when it believed, by the last time it said so: to the end named then, or to its release, its
        death or the news of the loss, whichever came first."""
        said = [sample for sample in self.samples if sample.believes]
        if not said:
            return 0
        ends = said[-1].before + said[-1].remaining
        # A sample without belief is after that end, or tells of the loss: until then the program believed.
        later = [sample.before for sample in self.samples if not sample.believes]
        return min([ends, *later, *(each for each in (self.releasing, self.killed) if each is not None)])

    def lines(self) -> Iterator[dict[str, Any]]:
        """Returns its operations, in the form of docs/chaos.md."""
        same = {"process": self.name, "lock": self.lock, "mode": "permit" if self.slots else self.mode}
        result = {"granted": "granted", "refused": "refused"}.get(self.result, "unknown")
        yield {**same, "op": "acquire", "call": self.began, "return": self.ended if result != "unknown" else None,
               "result": result, "token": self.token or None, "lease": self.lease * 1000, "limit": self.slots,
               "slot": self.slot}
        for sample in self.samples:
            if sample.lost:
                yield {**same, "op": "lost", "call": sample.before, "return": sample.after, "result": "lost",
                       "token": self.token}
                break
            if sample.believes:
                yield {**same, "op": "held", "call": sample.before, "return": sample.after, "result": "held",
                       "token": self.token, "until": sample.before + sample.remaining}
        if self.releasing is not None:
            # The store for Symfony does not say whether the server still had it.
            sure = self.release in ("released", "lost") and not self.program.startswith("php")
            result = self.release if sure else "unknown"
            ended = self.released if result != "unknown" else None
            yield {**same, "op": "release", "call": self.releasing, "return": ended, "result": result,
                   "token": self.token}


def write(file: TextIO, attempts: list[Attempt]) -> None:
    """Appends the operations in the order in which they began."""
    lines = [line for attempt in attempts for line in attempt.lines()]
    for line in sorted(lines, key=lambda line: line["call"]):
        file.write(json.dumps(line) + "\n")
    file.flush()
