"""The lines of programs become the history of a run. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from documented import meaning
from history import Attempt, Sample

Line = dict[str, Any]
# A wait without a limit, in ms.
FOREVER = 1_000_000_000


@dataclass
class Visits:
    """The acquisitions of one process."""

    program: str
    process: int
    attempts: dict[int, Attempt] = field(default_factory=dict)
    # The acquisitions that the process is in the midst of.
    open: set[int] = field(default_factory=set)
    # Lines that are wrong.
    wrong: list[str] = field(default_factory=list)

    def read(self, lines: Iterable[Line]) -> Visits:
        """Reads all lines."""
        for line in lines:
            self.add(line)
        return self

    @property
    def is_inside(self) -> bool:
        """Returns whether the process has a lock, as far as is known."""
        return any(self.attempts[number].is_granted for number in self.open)

    def add(self, line: Line) -> None:
        """Reads a line."""
        event, number, (before, after) = line["event"], line["id"], line["at"]
        if event == "asking":
            wait = FOREVER if line["wait"] < 0 else line["wait"]
            self.open.add(number)
            self.attempts[number] = Attempt(
                self.program, str(number), self.process, f"0/{line['lock']}", "exclusive", line.get("limit"),
                "fixed", line["lease"], wait, before)
            return
        if number not in self.open:
            self.wrong.append(f"{self.program}: a line of an acquisition that is not under way: {line}")
            return
        attempt = self.attempts[number]
        if event == "inside":
            attempt.result, attempt.ended = "granted", after
            attempt.token, attempt.slot = line["token"], line.get("slot")
        if event in ("inside", "still", "leaving"):
            attempt.samples.append(sample(line))
        if event == "leaving":
            attempt.releasing = before
        if event in ("left", "refused", "canceled", "error"):
            self._ends(attempt, line)
            self.open.discard(number)

    def _ends(self, attempt: Attempt, line: Line) -> None:
        event, after = line["event"], line["at"][1]
        what = meaning(self.program, line["type"], attempt.is_granted) if event == "error" else event
        said = f"{line['type']}: {line['message']}" if event == "error" else ""
        if what is None:
            self.wrong.append(f"{self.program}: an error that its package does not document, {said}, {attempt}")
            what = "error"
        if not attempt.is_granted:
            attempt.ended, attempt.result, attempt.message = after, what, said
            if event == "left":
                self.wrong.append(f"{self.program}: left without having been inside: {attempt}")
            return
        if attempt.releasing is None and attempt.samples[-1].believes:
            self.wrong.append(f"{self.program}: did not say when it left: {attempt}")
        attempt.released, attempt.release_message = after, said
        if event == "left":
            what = "lost" if line.get("lost") else "kept" if line.get("kept") else "released"
        # The lease had ended by the program's own count, so the release may have found no hold.
        if what == "released" and not attempt.samples[-1].believes:
            what = "abandoned"
        # The error of a body that gave up is reported instead of the outcome of the release.
        attempt.release = {"unreachable": "failed", "too-few-replicas": "failed", "abandoned": ""}.get(what, what)

    def died(self, at: int) -> None:
        """Ends what the process was in the midst of: it was killed then."""
        for number in self.open:
            attempt = self.attempts[number]
            attempt.killed = at
            attempt.result, attempt.ended = attempt.result or "died", attempt.ended or at
        self.open.clear()


def sample(line: Line) -> Sample:
    """Returns what a program said of its lock, cut to 60 s. A program that knows only that the lock is not lost counts as
    having 1 µs left."""
    remaining = line["remaining"]
    known = int(remaining * 1000) if remaining is not None else int(not line["lost"])
    return Sample(*line["at"], min(known, 60_000_000), line["lost"])
