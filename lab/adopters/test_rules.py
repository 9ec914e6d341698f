"""Histories made by hand, right and falsified: $(../../scripts/python) test_rules.py"""

from __future__ import annotations

import sys
import unittest
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "chaos-clients"))
from documented import odd  # noqa: E402 - the path comes first
from judge import Round  # noqa: E402 - the path comes first
from rules import excuses, violations  # noqa: E402
from visits import Line, Visits  # noqa: E402

MS = 1000


def line(event: str, number: int, at: int, **fields: Any) -> Line:
    """Returns a line of a program, at this ms."""
    return {"event": event, "id": number, "at": [at * MS, at * MS], **fields}


def visit(number: int, begin: int, end: int, token: int, lock: str = "customer:1", **more: Any) -> list[Line]:
    """Returns the lines of a lock that is held in between these ms, and then released."""
    slot = more.pop("slot", None)
    held = {"remaining": 2000.0, "lost": False}
    return [
        line("asking", number, begin, lock=lock, lease=2000, wait=2000, **more),
        line("inside", number, begin, token=token, **held, **({"slot": slot} if slot is not None else {})),
        line("leaving", number, end, **held),
        line("left", number, end),
    ]


def failed(took: int, wait: int = 2000, at: int = 0) -> list[Line]:
    """Returns the lines of a wait that no server has answered when it ends, after these ms."""
    away = {"type": "redis.exceptions.ConnectionError", "message": "away"}
    return [line("asking", 1, at, lock="customer:1", lease=2000, wait=wait), line("error", 1, at + took, **away)]


# A machine that is late all the time for ten seconds.
LATE_ALL_THE_TIME = [(at * 100 * MS, 90 * MS) for at in range(1, 100)]


class Rules(unittest.TestCase):
    """Each rule, broken and kept."""

    def found(self, *programs: list[Line], orders: dict[str, list[str]] | None = None, **more: Any) -> list[str]:
        """Returns what is wrong with the lines of Python programs, each of a process of its own."""
        them = [Visits(f"python pool {at}", at).read(lines) for at, lines in enumerate(programs, 1)]
        attempts = [attempt for each in them for attempt in each.attempts.values()]
        it = Round(attempts=attempts, seen=[word for each in them for word in each.wrong], **more)
        return violations(it, orders or {})

    def finds(self, words: str, *programs: list[Line], **more: Any) -> None:
        """Fails unless this is found, and nothing else."""
        found = self.found(*programs, **more)
        self.assertEqual([words in each for each in found], [True], found)

    def test_no_two_are_inside_at_one_time(self) -> None:
        self.assertEqual(self.found(visit(1, 0, 100, 5), visit(1, 100, 200, 6)), [])
        self.finds("two believe", visit(1, 0, 100, 5), visit(1, 50, 200, 6))

    def test_a_holder_that_is_stopped_counts_as_inside_for_as_long_as_its_lock_said(self) -> None:
        stopped = visit(1, 0, 0, 5)[:2]
        woken = [line("still", 1, 3000, remaining=0.0, lost=True),
                 line("error", 1, 3001, type="redis.exceptions.LockNotOwnedError", message="")]
        fault = {"faults": [("program stopped", "python pool 1", 0, 2900 * MS)]}
        self.finds("two believe", [*stopped, *woken], visit(1, 1500, 1600, 6), **fault)
        self.assertEqual(self.found([*stopped, *woken], visit(1, 2100, 2200, 6), **fault), [])

    def test_a_holder_without_a_remaining_time_counts_as_inside_when_it_says_so(self) -> None:
        lines = [{**each, "remaining": None} if "remaining" in each else each for each in visit(1, 0, 100, 5)]
        self.assertEqual(self.found(lines, visit(1, 100, 200, 6)), [])
        self.finds("two believe", lines, visit(1, 50, 200, 6))

    def test_slots_differ_and_permits_stay_within_the_limit(self) -> None:
        gpus = [visit(1, 0, 100, 5 + at, "gpu", slot=at, limit=3) for at in range(3)]
        self.assertEqual(self.found(*gpus), [])
        self.finds("two have the number 2", gpus[0], gpus[2], visit(1, 50, 90, 9, "gpu", slot=2, limit=3))
        self.assertIn("4 of 3 permits", " ".join(self.found(*gpus, visit(1, 50, 90, 9, "gpu", slot=0, limit=3))))

    def test_a_job_runs_once_a_period_by_the_time_of_the_server(self) -> None:
        period = 4_000_000
        report = "report"
        self.assertEqual(self.found(visit(1, 0, 9, period, report), visit(1, 10, 20, 2 * period - 300_000, report)), [])
        self.finds("a second run in a period", visit(1, 0, 9, period, report),
                   visit(1, 10, 20, 2 * period - 500_000, report))

    def test_an_order_is_paid_once_by_a_database_that_refuses_old_tokens(self) -> None:
        late = ["begin 5 a", "begin 6 b", "paid 6 b", "paid 5 a"]
        self.assertEqual(self.found(orders={"7": late, "8": ["begin 5 a", "paid 5 a", "begin 6 b"]}), [])
        self.finds("order 7 is paid 2 times", orders={"7": ["begin 6 a", "begin 5 b", "paid 6 a", "paid 7 b"]})

    def test_an_error_needs_a_name_that_is_documented_and_a_fault(self) -> None:
        away = failed(2000)
        self.finds("failed for no reason", away)
        self.assertEqual(self.found(away, faults=[("restart", "", 0, 5 * MS)]), [])
        unknown = [*visit(1, 0, 0, 5)[:1], line("error", 1, 10, type="builtins.KeyError", message="'x'")]
        self.finds("does not document", unknown, faults=[("restart", "", 0, 5 * MS)], late=LATE_ALL_THE_TIME)

    def test_a_fault_is_no_reason_if_the_limit_has_not_passed(self) -> None:
        for took in (10, 1990):
            self.finds("failed before its limit", failed(took), faults=[("freeze", "", 0, 3000 * MS)])
            self.finds("failed before its limit", failed(took), late=LATE_ALL_THE_TIME)
        for faults in [], [("freeze", "", 0, 3000 * MS)]:
            self.finds("failed before its limit", failed(29_000, wait=-1), faults=faults)
        self.assertEqual(self.found(failed(30_001, wait=-1), faults=[("freeze", "", 0, 30_001 * MS)]), [])

    def test_a_fault_is_a_reason_only_if_it_is_felt_meanwhile(self) -> None:
        self.assertEqual(self.found(failed(2001, at=5000), faults=[("cut", "", 4100 * MS, 4100 * MS)]), [])
        for fault in (("cut", "", 3900 * MS, 3900 * MS), ("freeze", "", 7100 * MS, 9000 * MS),
                      ("delay of 20 ms", "", 0, 9000 * MS), ("replica away", "", 0, 9000 * MS),
                      ("program stopped", "go web 1", 0, 9000 * MS)):
            self.finds("failed for no reason", failed(2001, at=5000), faults=[fault])

    def test_the_machine_is_late_only_where_a_wait_needs_answers_in_time(self) -> None:
        for at in (300, 1800):
            self.assertEqual(self.found(failed(2001), late=[(at * MS, 50 * MS)]), [])
            self.finds("failed for no reason", failed(2001), late=[(at * MS, 40 * MS)])
        self.finds("failed for no reason", failed(2001), late=[(1200 * MS, 600 * MS)])
        few = {"type": "redis_dlock.errors.ReplicasError", "message": "0 of 1 replicas acknowledged within 0.05 s"}
        for took in (1905, 2050):
            ends = [failed(0)[0], line("error", 1, took, **few)]
            self.assertEqual(self.found(ends, late=[((took - 10) * MS, 50 * MS)]), [])
            self.finds("failed for no reason", ends, late=[(1200 * MS, 600 * MS)])
        early = [failed(0)[0], line("error", 1, 1890, **few)]
        self.finds("failed for no reason", early, late=[(1880 * MS, 50 * MS)])
        self.finds("failed for no reason", failed(10, wait=0), late=LATE_ALL_THE_TIME)
        self.assertEqual(self.found(failed(1001, wait=0), late=LATE_ALL_THE_TIME), [])

    def test_nothing_is_written_to_stderr_but_what_packages_log(self) -> None:
        logged = "The release of gpu failed: LockNotOwnedError: gone\n\ncustomer:1 was not released: no connection\n"
        self.assertEqual(odd("asyncio slots 1", logged), [])
        self.assertEqual(odd("go slots 1", "panic: oh\n"), ["panic: oh"])
        self.assertEqual(odd("python web 1", logged + "Exception in thread 7"), ["Exception in thread 7"])

    def test_the_report_tells_what_has_been_excused(self) -> None:
        them = [Visits("python pool 1", at).read(failed(2001, at=9000 * at)) for at in (0, 1)]
        attempts = [attempt for each in them for attempt in each.attempts.values()]
        faults = [("cut", "", 9500 * MS, 9500 * MS)]
        self.assertEqual(excuses(Round(attempts=attempts, faults=faults)), {"none": 1, "fault": 1})

    def test_a_failover_may_lose_what_no_replica_had_to_acknowledge(self) -> None:
        both = visit(1, 0, 100, 5, "php-leader"), visit(1, 50, 200, 6, "php-leader")
        failover = [("failover", "", 20 * MS, 40 * MS)]
        self.finds("two believe", *both, replicates=True)
        self.assertEqual(self.found(*both, replicates=True, faults=failover), [])
        self.finds("two believe", *both, faults=failover)
        self.finds("two believe", visit(1, 0, 100, 5), visit(1, 50, 200, 6), replicates=True, faults=failover)

    def test_a_lock_is_not_lost_for_no_reason(self) -> None:
        lost = [*visit(1, 0, 0, 5)[:2], line("still", 1, 50, remaining=0.0, lost=True), line("error", 1, 51,
                type="abandoned", message="")]
        self.finds("lost for no reason", lost)
        self.assertEqual(self.found(lost, faults=[("restart", "", 20 * MS, 40 * MS)]), [])

    def test_nothing_is_left_but_by_those_that_died(self) -> None:
        left = {"left": [{"lock": "0/customer:1", "holds": [{"owner": "host:1:1:x", "token": 5}]}]}
        self.finds("left in 0/customer:1", visit(1, 0, 100, 5), **left)
        died = Visits("python pool 1", 1).read(visit(1, 0, 100, 5)[:2])
        died.died(150 * MS)
        self.assertEqual(violations(Round(attempts=list(died.attempts.values()), killed={1}, **left), {}), [])

    def test_programs_say_when_they_leave(self) -> None:
        self.finds("did not say when it left", [*visit(1, 0, 0, 5)[:2], line("left", 1, 100)])
        self.finds("not under way", [*visit(1, 0, 100, 5), line("still", 1, 120, remaining=1.0, lost=False)])


if __name__ == "__main__":
    unittest.main()
