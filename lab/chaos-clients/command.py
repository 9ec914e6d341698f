"""The parts of the command line that two programs share: run.py here, and run.py of ../adopters."""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
from collections.abc import Iterable
from typing import Protocol

from machines import DEPLOYMENTS, Deployment
from programs import Command, Program


class Playable(Protocol):
    """A run over one deployment."""

    async def play(self) -> list[str]:
        """Returns what is wrong."""

    async def close(self) -> None:
        """Ends what still runs."""


def parser(description: str, only: str) -> argparse.ArgumentParser:
    """Returns the parser of the options of every run. `only`: what the words of `--only` are."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--seconds", type=int, default=120)
    options.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options.add_argument("--through", choices=sorted(DEPLOYMENTS), default="one")
    options.add_argument("--only", default="", help=f"{only}, with commas between")
    options.add_argument("--keep", action="store_true", help="add the run to docs/evidence.md")
    return options


def begin(title: str, options: argparse.Namespace) -> Deployment:
    """Prints what repeats the run, and returns its deployment."""
    print(f"{title}: SEED={options.seed} SECONDS={options.seconds} THROUGH={options.through}", flush=True)
    return DEPLOYMENTS[options.through](random.Random(f"{options.seed} servers"))


async def play(run: Playable) -> list[str]:
    """Plays a run to its end, and returns what is wrong."""
    try:
        return await run.play()
    finally:
        await run.close()


async def end(programs: Iterable[Program | Command], deployment: Deployment) -> None:
    """Ends what still runs of these."""
    for program in programs:
        with contextlib.suppress(Exception):
            await program.kill()
    await deployment.close()


def tell(what: str) -> None:
    """Tells whoever watches the run how far it is, apart from its report."""
    print(f"  {what}", file=sys.stderr, flush=True)
