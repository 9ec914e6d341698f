"""Histories of the engine, replayed on Lock.tla by TLC (Trace.tla), and changed ones, each of which must be refused."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
OWNERS, LEASE = ("a", "b", "c"), 3
NOBODY = {"until": 0, "token": 0, "session": False}
Step = dict[str, Any]


def recorded(first: int, count: int, steps: int) -> list[list[Step]]:
    """Returns the histories of `count` seeds from `first` on, made by the simulation."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target"))
    words = [str(target / "debug/dlock-simulation"), "--trace", str(steps), "--seed", str(first), "--runs", str(count)]
    lines = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return [[complete(step) for step in json.loads(line)] for line in lines]


def complete(step: Step) -> Step:
    """Returns a step with all owners: some histories have fewer."""
    holds = {owner: step["holds"].get(owner, {"exclusive": NOBODY, "shared": NOBODY}) for owner in OWNERS}
    programs = {owner: step["programs"].get(owner, {"state": "idle", "token": 0}) for owner in OWNERS}
    return {**step, "holds": holds, "programs": programs}


def module(histories: list[list[Step]]) -> str:
    """Returns module Histories."""
    told = ",\n".join("<<" + ",\n  ".join(map(told_step, steps)) + ">>" for steps in histories)
    return ("---- MODULE Histories ----\n"
            "N == [until |-> 0, token |-> 0, session |-> FALSE]\n"
            "H(u, t, s) == [until |-> u, token |-> t, session |-> s]\n"
            "P(s, t) == [state |-> s, token |-> t]\n"
            f"All == <<{told}>>\n====\n")


def told_step(step: Step) -> str:
    """Returns a step in TLA+."""
    fields = {name: value for name, value in step.items() if name not in ("holds", "queue", "programs")}
    words = [f"{name} |-> {plain(value)}" for name, value in fields.items()]
    holds = ", ".join(f"{owner} |-> [exclusive |-> {hold(modes['exclusive'])}, shared |-> {hold(modes['shared'])}]"
                      for owner, modes in step["holds"].items())
    queue = ", ".join(f'<<"{owner}", "{mode}">>' for owner, mode in step["queue"])
    programs = ", ".join(f'{owner} |-> P("{it["state"]}", {it["token"]})' for owner, it in step["programs"].items())
    return f"[{', '.join(words)}, holds |-> [{holds}], queue |-> <<{queue}>>, programs |-> [{programs}]]"


def plain(value: object) -> str:
    """Returns a value in TLA+."""
    return str(value).upper() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def hold(it: dict[str, Any]) -> str:
    """Returns a hold in TLA+."""
    return f"H({it['until']}, {it['token']}, {plain(it['session'])})" if it["token"] else "N"


# Changes. Each returns whether it has changed the step, so that the engine has no such history.


def grant_twice(step: Step, _before: Step) -> bool:
    """Adds a hold of an owner beside the exclusive one of another."""
    held = [owner for owner in OWNERS if step["holds"][owner]["exclusive"]["token"]]
    free = [owner for owner in OWNERS if not step["holds"][owner]["exclusive"]["token"]]
    if step["do"] == "execute" and held and free:
        token = step["last"] + 1
        step["holds"][free[0]]["exclusive"] = {"until": step["now"] + LEASE, "token": token, "session": False}
        step["last"] = token
        return True
    return False


def reuse_a_token(step: Step, before: Step) -> bool:
    """Takes the last token for a new grant."""
    if step["last"] == before["last"]:
        return False
    for modes in step["holds"].values():
        for it in modes.values():
            if it["token"] == step["last"]:
                it["token"] = before["last"]
    step["last"] = before["last"]
    return True


def extend(step: Step, _before: Step) -> bool:
    """Lets a lease end later than any that is granted now."""
    for modes in step["holds"].values():
        for it in modes.values():
            if it["token"]:
                it["until"] = step["now"] + LEASE + 1
                return True
    return False


def overtake(step: Step, _before: Step) -> bool:
    """Turns a queue around."""
    if len(step["queue"]) > 1:
        step["queue"].reverse()
        return step["queue"] != step["queue"][::-1]
    return False


def forget_a_waiter(step: Step, _before: Step) -> bool:
    """Leaves out the head of a queue."""
    return bool(step["queue"]) and bool(step["queue"].pop(0))


def outlive_the_session(step: Step, before: Step) -> bool:
    """Keeps what the program that died had bound to its connection."""
    mine = before["holds"][step["owner"]]
    if step["do"] != "die" or not any(it["session"] for it in mine.values()):
        return False
    step["holds"][step["owner"]] = copy.deepcopy(mine)
    return True


def keep_what_has_lapsed(step: Step, before: Step) -> bool:
    """Keeps a hold whose lease has ended."""
    if step["do"] == "tick":
        for owner, modes in before["holds"].items():
            for mode, it in modes.items():
                if it["token"] and not step["holds"][owner][mode]["token"]:
                    step["holds"][owner][mode] = dict(it)
                    return True
    return False


def answer_another(step: Step, before: Step) -> bool:
    """Tells a program of a token that it did not get."""
    for owner, it in step["programs"].items():
        if it["state"] == "answered" and before["programs"][owner]["state"] != "answered":
            it["token"] += 1
            return True
    return False


CHANGES: list[Callable[[Step, Step], bool]] = [
    grant_twice, reuse_a_token, extend, overtake, forget_a_waiter, outlive_the_session, keep_what_has_lapsed,
    answer_another]


def changed(histories: list[list[Step]]) -> list[list[Step]]:
    """Returns histories up to a step that was changed: each change once in each history in which it is possible."""
    choices = random.Random(1)
    found = []
    for steps in histories:
        for change in CHANGES:
            places = list(range(1, len(steps)))
            choices.shuffle(places)
            for at in places:
                its = copy.deepcopy(steps[:at + 1])
                if change(its[at], its[at - 1]):
                    found.append(its)
                    break
    return found
