"""Tests of the judge, with rounds that are made by hand: python test_judge.py"""

from __future__ import annotations

import unittest
from typing import Any

from history import Attempt, Sample
from judge import Round, judge, of_majority

MS = 1000


def attempt(who: str, begin: int, end: int, token: int, **more: Any) -> Attempt:
    """Returns a grant in which the program believed from `begin` to `end` ms, and which it then released. Both answers
    claim 1 ms more. `more` replaces fields."""
    made = Attempt(who, "a", 7, "0/k", "exclusive", None, "fixed", 9000, 0, begin * MS, begin * MS, "granted")
    made.token = token
    made.samples = [Sample(at * MS, at * MS, 1 * MS, False) for at in (begin, end)]
    made.releasing, made.released, made.release = end * MS, end * MS, "released"
    for name, value in more.items():
        setattr(made, name, value)
    return made


class Judge(unittest.TestCase):
    """Rounds that break a rule, and rounds that keep it."""

    def finds(self, word: str, *attempts: Attempt, **more: Any) -> None:
        """Fails unless the judge finds exactly one violation, whose sentence has this word."""
        found = judge(Round(list(attempts), **more))
        self.assertEqual([word in each for each in found], [True], found)

    def accepts(self, *attempts: Attempt, **more: Any) -> None:
        """Fails if the judge finds a violation."""
        self.assertEqual(judge(Round(list(attempts), **more)), [])

    def test_two_programs_do_not_believe_at_one_time_unless_both_read(self) -> None:
        self.finds("two believe", attempt("a", 0, 100, 1), attempt("b", 50, 150, 2))
        self.accepts(attempt("a", 0, 100, 1), attempt("b", 100, 150, 2))
        self.accepts(attempt("a", 0, 100, 1, mode="read"), attempt("b", 50, 150, 2, mode="read"))
        self.finds("two believe", attempt("a", 0, 100, 1, mode="read"), attempt("b", 50, 150, 2, mode="write"))

    def test_a_claim_counts_until_the_end_that_it_names_or_a_release_a_loss_or_death(self) -> None:
        said = {"samples": [Sample(0, 0, 500 * MS, False)], "releasing": None, "release": ""}
        later = attempt("b", 300, 400, 2)
        left = {"left": [{"lock": "0/k", "holds": []}]}
        self.finds("two believe", attempt("a", 0, 0, 1, **said), later, **left)
        release = {"releasing": 200 * MS, "released": 201 * MS, "release": "released"}
        self.accepts(attempt("a", 0, 0, 1, **{**said, **release}), later)
        self.accepts(attempt("a", 0, 0, 1, **{**said, "killed": 200 * MS}), later)
        lost = [*said["samples"], Sample(250 * MS, 250 * MS, 0, True)]
        failover = {"faults": [("failover", "", 0, 100 * MS)]}
        self.accepts(attempt("a", 0, 0, 1, **{**said, "samples": lost}), later, **failover)

    def test_a_loss_that_is_told_late_does_not_shorten_the_claim_before_it(self) -> None:
        said, later = Sample(0, 0, 5000 * MS, False), attempt("b", 50, 3900, 2)
        failover = {"faults": [("failover", "", 0, 100 * MS)]}
        told = [said, Sample(4000 * MS, 4000 * MS, 0, True)]
        none = {"releasing": None, "release": ""}
        self.finds("two believe", attempt("a", 0, 0, 1, samples=told, **none), later, **failover)
        told[1] = Sample(4000 * MS, 4000 * MS, 1000 * MS, False)
        release = {"releasing": 4000 * MS, "released": 4001 * MS, "release": "lost"}
        self.finds("two believe", attempt("a", 0, 0, 1, samples=told, **release), later, **failover)

    def test_permits_are_not_more_than_the_limit_and_have_different_numbers(self) -> None:
        permit = {"slots": 2}
        two = [attempt("a", 0, 100, 1, slot=0, **permit), attempt("b", 20, 100, 2, slot=1, **permit)]
        self.accepts(*two)
        self.finds("3 of 2 permits", *two, attempt("c", 50, 90, 3, slot=None, **permit))
        two[1].slot = 0
        self.finds("number 0", *two)

    def test_an_exclusive_hold_excludes_permits_and_a_reader_does_not(self) -> None:
        permit = attempt("a", 0, 100, 1, slots=2, slot=0)
        self.finds("two believe", permit, attempt("b", 50, 90, 2))
        self.finds("two believe", permit, attempt("b", 50, 90, 2, mode="write"))
        self.accepts(permit, attempt("b", 50, 90, 2, mode="read"))

    def test_numbers_of_permits_are_below_their_limit(self) -> None:
        self.finds("number 7 of 2", attempt("a", 0, 100, 1, slots=2, slot=7))
        self.finds("number 2 of 2", attempt("a", 0, 100, 1, slots=2, slot=2))

    def test_tokens_of_a_lock_rise(self) -> None:
        self.finds("goes back", attempt("a", 0, 10, 2), attempt("b", 20, 30, 1))
        self.finds("have the token", attempt("a", 0, 10, 1), attempt("b", 20, 30, 1))

    def test_tokens_of_one_server_rise_over_all_its_locks(self) -> None:
        once, other = attempt("a", 0, 10, 5), attempt("b", 20, 30, 5, lock="0/j")
        self.finds("have the token", once, other)
        self.accepts(once, other, is_one=False)
        other.token = 3
        self.finds("goes back", once, other)
        self.accepts(once, other, is_one=False)
        other.began = 0
        self.accepts(once, other)

    def test_tokens_of_one_server_rise_over_all_rounds(self) -> None:
        self.finds("goes back", attempt("a", 0, 10, 5), highest=5)
        self.accepts(attempt("a", 0, 10, 5), highest=4)
        self.accepts(attempt("a", 0, 10, 5), highest=5, is_one=False)

    def test_a_hold_that_another_was_granted_since_is_not_said_to_be_released(self) -> None:
        lapsed = {"samples": [Sample(0, 0, 40 * MS, False), Sample(60 * MS, 60 * MS, 0, False)]}
        late = attempt("a", 0, 0, 1, releasing=100 * MS, released=101 * MS, **lapsed)
        self.finds("after another", late, attempt("b", 50, 90, 2))
        self.accepts(late, attempt("b", 101, 190, 2))
        self.accepts(attempt("php", 0, 0, 1, releasing=100 * MS, released=101 * MS, **lapsed), attempt("b", 50, 90, 2))
        late.release = "lost"
        self.accepts(late, attempt("b", 50, 90, 2))
        readers = {"mode": "read", "release": "released"}
        self.accepts(attempt("a", 0, 0, 1, releasing=100 * MS, released=101 * MS, **{**lapsed, **readers}),
                     attempt("b", 50, 90, 2, mode="read"))

    def test_a_free_lock_is_not_refused(self) -> None:
        none = {"samples": [], "releasing": None, "release": "", "result": "refused"}
        self.finds("refused though", attempt("a", 5000, 5001, 0, **none))
        self.finds("refused though", attempt("a", 5000, 6001, 0, began=5000 * MS, ended=6001 * MS, wait=1000, **none))
        # A busy machine explains that so short a wait runs out.
        self.accepts(attempt("a", 5000, 5001, 0, wait=300, **none))
        # A refusal does not explain another one.
        refusals = [attempt("a", at * 100, at * 100 + 1, 0, slots=2, **none) for at in range(50)]
        self.assertEqual(len(judge(Round(refusals))), 50)

    def test_a_refusal_is_explained_by_an_owner_that_may_hold_the_lock(self) -> None:
        none = {"samples": [], "releasing": None, "release": "", "lease": 700}
        refused = attempt("a", 5000, 5001, 0, **{**none, "result": "refused"})
        self.accepts(refused, attempt("b", 3000, 4500, 1))
        self.finds("refused though", refused, attempt("b", 3000, 3900, 1))
        self.finds("refused though", refused, attempt("b", 5002, 5003, 1))
        self.finds("refused though", refused, attempt("b", 3000, 4500, 1, lock="0/j"))
        forgot = {"releasing": None, "release": "", "lease": 4000}
        self.accepts(refused, attempt("b", 500, 600, 1, **forgot))
        self.finds("refused though", refused, attempt("b", -500, -400, 1, **forgot))
        cut = {"faults": [("cut", "b", 200 * MS, 300 * MS)]}
        self.accepts(refused, attempt("b", 500, 600, 0, result="error", **{**none, "lease": 4000}), **cut)
        # A request that is canceled without a fault leaves no hold behind.
        canceled = attempt("b", 500, 600, 0, result="canceled", **{**none, "lease": 12000})
        self.finds("refused though", refused, canceled)
        self.accepts(refused, canceled, faults=[("replies held", "b", 0, 2900 * MS)])
        self.accepts(refused, attempt("b", 4500, 4500, 0, result="", ended=0, **none))

    def test_a_fault_of_its_program_explains_a_refusal_of_a_free_lock(self) -> None:
        none = {"samples": [], "releasing": None, "release": "", "result": "refused"}
        refused = attempt("a", 5000, 5001, 0, **none)
        self.accepts(refused, faults=[("replies lost", "a", 4500 * MS, 4600 * MS)])
        self.finds("refused though", refused, faults=[("replies lost", "b", 4500 * MS, 4600 * MS)])
        self.finds("refused though", refused, faults=[("replies lost", "a", 500 * MS, 600 * MS)])

    def test_after_the_last_fault_each_lock_is_granted_to_somebody(self) -> None:
        none = {"samples": [], "releasing": None, "release": "", "wait": 300}
        asked = [attempt("a", 10_000 + at, 10_001 + at, 0, result="refused", **none) for at in range(3)]
        calm = {"calm": 9900 * MS, "faults": [("delay of 20 ms", "", 9000 * MS, 9900 * MS)]}
        self.finds("granted to nobody", *asked, **calm)
        self.finds("granted to nobody", *asked, attempt("b", 10_000, 10_500, 1, lock="0/j"), **calm)
        self.accepts(*asked, attempt("b", 10_000, 10_500, 1), **calm)
        # An earlier hold that may still be there explains the refusals.
        self.accepts(*asked, attempt("b", 500, 600, 1, releasing=None, release="", lease=12_000), **calm)
        self.accepts(*asked[:2], **calm)

    def test_after_the_last_fault_earlier_holds_do_not_explain_that_nothing_is_granted(self) -> None:
        none = {"samples": [], "releasing": None, "release": "", "result": "refused"}
        locks = [f"0/{at % 4}" for at in range(12)]
        asked = [attempt("a", 10_000, 10_001, 0, lock=lock, **none) for lock in locks]
        forgot = [attempt("b", 500, 600, at + 1, lock=lock, releasing=None, release="", lease=12_000)
                  for at, lock in enumerate(locks[:4])]
        self.finds("nothing was granted", *asked, *forgot, calm=9900 * MS)
        self.accepts(*asked, *forgot, attempt("b", 10_000, 10_100, 9, lock="0/j"), calm=9900 * MS)
        self.accepts(*asked[:9], *forgot, calm=9900 * MS)
        # With replicas, a primary may be without one for long, and then grants nothing.
        self.accepts(*asked, *forgot, calm=9900 * MS, replicates=True, is_one=False)

    def test_an_acquisition_ends_within_its_limit_except_while_its_program_is_stopped(self) -> None:
        late = attempt("a", 0, 10, 1, began=-4000 * MS)
        self.finds("instead of", late)
        self.accepts(late, faults=[("program stopped", "a", -3000 * MS, -1000 * MS)])

    def test_losses_and_failures_need_a_reason(self) -> None:
        lost = attempt("a", 0, 10, 1, release="lost")
        self.finds("lost for no reason", lost)
        self.accepts(lost, faults=[("restart", "", 0, 5 * MS)])
        self.finds("lost for no reason", lost, faults=[("restart", "", -2000 * MS, -1500 * MS)])
        failed = attempt("a", 0, 10, 0, result="unreachable", samples=[], releasing=None, release="")
        self.finds("failed for no reason", failed)
        self.accepts(failed, faults=[("restart", "", -1000 * MS, 0)])
        self.finds("failed for no reason", failed, faults=[("program stopped", "b", 0, 5 * MS)])

    def test_only_a_fault_that_can_end_a_hold_explains_its_loss(self) -> None:
        told = [Sample(3000 * MS, 3000 * MS, 9000 * MS, False), Sample(3200 * MS, 3200 * MS, 0, True)]
        lost = attempt("a", 3000, 3200, 1, lease=12_000, kind="keep", samples=told, releasing=None, release="")
        for kind in ("delay of 20 ms", "cut", "replies lost", "grants canceled", "program stopped"):
            self.finds("lost for no reason", lost, faults=[(kind, "", 3050 * MS, 3150 * MS)])
            self.finds("lost for no reason", lost, faults=[(kind, "", 0, 20 * MS)])
        self.finds("lost for no reason", lost, faults=[("failover", "b", 3050 * MS, 3150 * MS)])
        self.accepts(lost, faults=[("failover", "", 3050 * MS, 3150 * MS)])
        self.accepts(lost, faults=[("agent killed", "", 3050 * MS, 3150 * MS)])

    def test_silence_explains_a_loss_if_it_lasts_as_long_as_the_rest_of_the_lease(self) -> None:
        told = [Sample(0, 0, 1000 * MS, False), Sample(600 * MS, 600 * MS, 0, True)]
        lost = attempt("a", 0, 600, 1, lease=1000, kind="keep", samples=told, releasing=None, release="")
        self.accepts(lost, faults=[("replies held", "a", 10 * MS, 590 * MS)])
        self.finds("lost for no reason", lost, faults=[("replies held", "b", 10 * MS, 590 * MS)])
        self.finds("lost for no reason", lost, faults=[("replies held", "a", 10 * MS, 90 * MS)])
        self.finds("lost for no reason", lost, faults=[("delay of 20 ms", "a", 10 * MS, 590 * MS)])
        self.accepts(lost, faults=[("delay of 400 ms", "a", 10 * MS, 590 * MS)])
        told[0].remaining = 9000 * MS
        self.finds("lost for no reason", lost, faults=[("replies held", "a", 10 * MS, 590 * MS)])

    def test_silence_explains_the_loss_of_a_named_session_lock_after_the_timeout_of_the_session(self) -> None:
        told = [Sample(0, 0, 9000 * MS, False), Sample(1600 * MS, 1600 * MS, 0, True)]
        lost = attempt("a", 0, 1600, 1, lease=12_000, kind="named", samples=told, releasing=None, release="")
        self.accepts(lost, faults=[("replies held", "a", 10 * MS, 1510 * MS)])
        self.finds("lost for no reason", lost, faults=[("replies held", "a", 10 * MS, 310 * MS)])
        lost.kind = "keep"
        self.finds("lost for no reason", lost, faults=[("replies held", "a", 10 * MS, 1510 * MS)])

    def test_dlock_run_ends_its_command_soon_after_a_renewal_without_an_answer(self) -> None:
        said = [Sample(0, 0, 1, False), Sample(1140 * MS, 1140 * MS, 1, False)]
        lost = attempt("dlock run", 0, 1140, 1, released=1140 * MS, release="lost", lease=3000, samples=said)
        self.accepts(lost, faults=[("agent stopped", "", 990 * MS, 3000 * MS)])
        self.finds("lost for no reason", lost, faults=[("agent stopped", "", 1020 * MS, 3000 * MS)])
        lost.lease = 12_000
        self.finds("lost for no reason", lost, faults=[("agent stopped", "", 0, 3000 * MS)])

    def test_a_release_whose_answer_was_lost_may_find_nothing_when_it_is_sent_again(self) -> None:
        said = [Sample(0, 0, 9000 * MS, False), Sample(10 * MS, 10 * MS, 8990 * MS, False)]
        lost = attempt("a", 0, 10, 1, released=500 * MS, release="lost", samples=said)
        self.accepts(lost, faults=[("replies lost", "a", 5 * MS, 100 * MS)])
        self.finds("lost for no reason", lost, faults=[("replies lost", "a", -2000 * MS, -1500 * MS)])
        self.finds("lost for no reason", lost, faults=[("program stopped", "a", 5 * MS, 100 * MS)])

    def test_a_loss_is_told_in_time(self) -> None:
        silent = [Sample(0, 0, 1, False), Sample(10 * MS, 10 * MS, 0, False), Sample(4000 * MS, 4000 * MS, 0, False)]
        self.finds("was not told", attempt("a", 0, 10, 1, samples=silent, releasing=None, release=""))

    def test_what_is_left_has_a_reason(self) -> None:
        left = {"left": [{"lock": "0/k", "holds": [{"owner": "host:7:1:ff", "token": 1}]}]}
        self.finds("left in", attempt("a", 0, 10, 1), **left)
        self.accepts(attempt("a", 0, 10, 1, release="", releasing=None), **left)
        self.accepts(attempt("a", 0, 10, 1), killed={7}, **left)
        self.finds("granted nothing", attempt("a", 0, 10, 2), **left)

    def test_a_request_that_met_a_killed_agent_may_leave_a_hold(self) -> None:
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

    def test_on_a_busy_machine_replicas_may_be_silent_for_a_short_wait(self) -> None:
        few = {"result": "too-few-replicas", "samples": [], "releasing": None, "release": ""}
        self.accepts(attempt("a", 0, 10, 0, wait=300, **few))
        self.finds("for no reason", attempt("a", 0, 10, 0, wait=1000, **few))
        self.finds("for no reason", attempt("a", 0, 10, 0, wait=0, **few))

    def test_a_failover_may_undo_a_release_that_has_not_reached_the_replica(self) -> None:
        left = {"left": [{"lock": "0/k", "holds": [{"owner": "host:7:1:ff", "token": 1}]}]}
        released = attempt("a", 0, 10, 1, released=12 * MS)
        died = {"faults": [("failover", "", 200 * MS, 2_000 * MS)]}
        self.accepts(released, replicates=True, **died, **left)
        self.finds("left in", released, **died, **left)
        self.finds("left in", released, replicates=True, faults=[("failover", "", 2 * MS, 4 * MS)], **left)
        self.finds("left in", released, replicates=True, faults=[("delay of 400 ms", "", 200 * MS, 2_000 * MS)], **left)

    def test_dlock_run_that_ends_at_its_limit_may_leave_a_hold_whose_grant_it_did_not_hear(self) -> None:
        left = {"left": [{"lock": "0/k", "holds": [{"owner": "host:7:1:ff", "token": 5 * MS}]}]}
        none = {"samples": [], "releasing": None, "release": ""}
        asked = attempt("dlock run", 0, 10, 0, result="refused", wait=300, ended=300 * MS, **none)
        self.finds("granted nothing", asked, **left)
        self.accepts(asked, faults=[("replies held", "", 4 * MS, 20 * MS)], **left)
        asked.program = "rust"
        self.finds("granted nothing", asked, faults=[("replies held", "", 4 * MS, 20 * MS)], **left)

    def test_the_store_for_symfony_reports_the_release_of_a_lost_lock_as_a_success(self) -> None:
        left = {"left": [{"lock": "0/k", "holds": [{"owner": "host:7:1:ff", "token": 1}]}]}
        killed = {"faults": [("agent killed", "", 2 * MS, 4 * MS)]}
        self.accepts(attempt("php", 0, 10, 1), **left, **killed)
        self.finds("left in", attempt("php", 0, 10, 1), **left)
        self.finds("left in", attempt("a", 0, 10, 1), **left, **killed)

    def test_a_quorum_has_the_holds_that_a_majority_has(self) -> None:
        def server(**owners: int) -> list[dict[str, Any]]:
            return [{"lock": "0/k", "holds": [{"owner": each, "token": token} for each, token in owners.items()]}]

        self.assertEqual(of_majority([server(a=1), server(b=2), []]), [])
        [lock] = of_majority([server(a=9), server(a=1), server(a=1, b=2)])
        self.assertEqual(lock["holds"], [{"owner": "a", "token": 1}])


if __name__ == "__main__":
    unittest.main()
