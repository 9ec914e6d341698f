"""The judge on rounds made by hand: python test_judge.py"""

from __future__ import annotations

import unittest
from typing import Any

from history import Attempt, Sample
from judge import Round, judge, of_majority

MS = 1000


def attempt(who: str, begin: int, end: int, token: int, **more: Any) -> Attempt:
    """Returns a grant that was believed in between these ms and then released."""
    made = Attempt(who, "a", 7, "0/k", "exclusive", None, "fixed", 9000, 0, begin * MS, begin * MS, "granted")
    made.token = token
    made.samples = [Sample(at * MS, at * MS, 1 * MS, False) for at in (begin, end)]
    made.releasing, made.released, made.release = end * MS, end * MS, "released"
    for name, value in more.items():
        setattr(made, name, value)
    return made


class Judge(unittest.TestCase):
    """Each rule, broken and kept."""

    def finds(self, word: str, *attempts: Attempt, **more: Any) -> None:
        """Fails unless one sentence, with this word, is found."""
        found = judge(Round(list(attempts), **more))
        self.assertEqual([word in each for each in found], [True], found)

    def accepts(self, *attempts: Attempt, **more: Any) -> None:
        """Fails if anything is found."""
        self.assertEqual(judge(Round(list(attempts), **more)), [])

    def test_exclusion(self) -> None:
        self.finds("two believe", attempt("a", 0, 100, 1), attempt("b", 50, 150, 2))
        self.accepts(attempt("a", 0, 100, 1), attempt("b", 100, 150, 2))
        self.accepts(attempt("a", 0, 100, 1, mode="read"), attempt("b", 50, 150, 2, mode="read"))
        self.finds("two believe", attempt("a", 0, 100, 1, mode="read"), attempt("b", 50, 150, 2, mode="write"))

    def test_what_is_said_of_the_future_counts_until_a_release_a_loss_or_death(self) -> None:
        said = {"samples": [Sample(0, 0, 500 * MS, False)], "releasing": None, "release": ""}
        later = attempt("b", 300, 400, 2)
        left = {"left": [{"lock": "0/k", "holds": []}]}
        self.finds("two believe", attempt("a", 0, 0, 1, **said), later, **left)
        self.accepts(attempt("a", 0, 0, 1, **{**said, "killed": 200 * MS}), later)
        lost = [*said["samples"], Sample(250 * MS, 250 * MS, 0, True)]
        self.accepts(attempt("a", 0, 0, 1, **{**said, "samples": lost}), later, faults=[("cut", "", 0, 100 * MS)])

    def test_permits(self) -> None:
        permit = {"slots": 2}
        two = [attempt("a", 0, 100, 1, slot=0, **permit), attempt("b", 0, 100, 2, slot=1, **permit)]
        self.accepts(*two)
        self.finds("3 of 2 permits", *two, attempt("c", 50, 90, 3, slot=2, **permit))
        two[1].slot = 0
        self.assertTrue(all("number 0" in each for each in judge(Round(two))))

    def test_tokens(self) -> None:
        self.finds("goes back", attempt("a", 0, 10, 2), attempt("b", 20, 30, 1))
        self.finds("have the token", attempt("a", 0, 10, 1), attempt("b", 20, 30, 1))

    def test_limits(self) -> None:
        late = attempt("a", 0, 10, 1, began=-4000 * MS)
        self.finds("instead of", late)
        self.accepts(late, faults=[("program stopped", "a", -3000 * MS, -1000 * MS)])

    def test_losses_and_failures_need_a_reason(self) -> None:
        lost = attempt("a", 0, 10, 1, release="lost")
        self.finds("lost for no reason", lost)
        self.accepts(lost, faults=[("restart", "", 0, 5 * MS)])
        failed = attempt("a", 0, 10, 0, result="unreachable", samples=[], releasing=None, release="")
        self.finds("failed for no reason", failed)
        self.accepts(failed, faults=[("restart", "", -1000 * MS, 0)])
        self.finds("failed for no reason", failed, faults=[("program stopped", "b", 0, 5 * MS)])

    def test_a_loss_is_told(self) -> None:
        silent = [Sample(0, 0, 1, False), Sample(10 * MS, 10 * MS, 0, False), Sample(4000 * MS, 4000 * MS, 0, False)]
        self.finds("was not told", attempt("a", 0, 10, 1, samples=silent, releasing=None, release=""))

    def test_what_is_left_has_a_reason(self) -> None:
        left = {"left": [{"lock": "0/k", "holds": [{"owner": "host:7:1:ff", "token": 1}]}]}
        self.finds("left in", attempt("a", 0, 10, 1), **left)
        self.accepts(attempt("a", 0, 10, 1, release="", releasing=None), **left)
        self.accepts(attempt("a", 0, 10, 1), killed={7}, **left)
        self.finds("granted nothing", attempt("a", 0, 10, 2), **left)

    def test_what_a_killed_agent_was_doing_may_stay(self) -> None:
        left = {"left": [{"lock": "0/k", "holds": [{"owner": "host:7:1:ff", "token": 5 * MS}]}]}
        asked = attempt("a", 0, 10, 0, result="canceled", samples=[], releasing=None, release="")
        self.finds("granted nothing", asked, **left)
        self.accepts(asked, faults=[("agent killed", "", 9 * MS, 11 * MS)], **left)
        self.finds("granted nothing", asked, faults=[("agent killed", "", -9 * MS, -1 * MS)], **left)

    def test_a_release_that_met_a_killed_agent_may_have_freed_nothing(self) -> None:
        left = {"left": [{"lock": "0/k", "holds": [{"owner": "host:7:1:ff", "token": 1}]}]}
        released = attempt("a", 0, 10, 1, released=12 * MS)
        self.accepts(released, faults=[("agent killed", "", 11 * MS, 13 * MS)], **left)
        self.finds("left in", released, faults=[("agent killed", "", 2 * MS, 4 * MS)], **left)

    def test_replicas_of_a_busy_machine_may_be_silent_for_a_short_wait(self) -> None:
        few = {"result": "too-few-replicas", "samples": [], "releasing": None, "release": ""}
        self.accepts(attempt("a", 0, 10, 0, wait=300, **few))
        self.finds("for no reason", attempt("a", 0, 10, 0, wait=1000, **few))
        self.finds("for no reason", attempt("a", 0, 10, 0, wait=0, **few))

    def test_a_failover_may_undo_a_release_that_no_replica_had(self) -> None:
        left = {"left": [{"lock": "0/k", "holds": [{"owner": "host:7:1:ff", "token": 1}]}]}
        released = attempt("a", 0, 10, 1, released=12 * MS)
        died = {"faults": [("failover", "", 200 * MS, 2_000 * MS)]}
        self.accepts(released, replicates=True, **died, **left)
        self.finds("left in", released, **died, **left)
        self.finds("left in", released, replicates=True, faults=[("failover", "", 2 * MS, 4 * MS)], **left)
        self.finds("left in", released, replicates=True, faults=[("delay", "", 200 * MS, 2_000 * MS)], **left)

    def test_a_command_that_ends_at_its_limit_may_leave_what_it_was_granted_without_an_answer(self) -> None:
        left = {"left": [{"lock": "0/k", "holds": [{"owner": "host:7:1:ff", "token": 5 * MS}]}]}
        none = {"samples": [], "releasing": None, "release": ""}
        asked = attempt("dlock run", 0, 10, 0, result="refused", wait=300, ended=300 * MS, **none)
        self.finds("granted nothing", asked, **left)
        self.accepts(asked, faults=[("replies held", "", 4 * MS, 20 * MS)], **left)
        asked.program = "rust"
        self.finds("granted nothing", asked, faults=[("replies held", "", 4 * MS, 20 * MS)], **left)

    def test_the_store_for_symfony_does_not_say_that_it_released_nothing(self) -> None:
        left = {"left": [{"lock": "0/k", "holds": [{"owner": "host:7:1:ff", "token": 1}]}]}
        killed = {"faults": [("agent killed", "", 2 * MS, 4 * MS)]}
        self.accepts(attempt("php", 0, 10, 1), **left, **killed)
        self.finds("left in", attempt("php", 0, 10, 1), **left)
        self.finds("left in", attempt("a", 0, 10, 1), **left, **killed)

    def test_a_quorum_has_what_a_majority_has(self) -> None:
        def server(**owners: int) -> list[dict[str, Any]]:
            return [{"lock": "0/k", "holds": [{"owner": each, "token": token} for each, token in owners.items()]}]

        self.assertEqual(of_majority([server(a=1), server(b=2), []]), [])
        [lock] = of_majority([server(a=9), server(a=1), server(a=1, b=2)])
        self.assertEqual(lock["holds"], [{"owner": "a", "token": 1}])


if __name__ == "__main__":
    unittest.main()
