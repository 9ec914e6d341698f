"""Tests of `programs.Command`, through which chaos uses `dlock run`: python test_programs.py"""

from __future__ import annotations

import asyncio
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import programs

# Stands in for `dlock run`: runs the command behind `--`, and goes on for a minute after the command has ended, as
# `dlock run` does while its release waits for a reply. The token is 7.
STAYS = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
exec 3<&0
DLOCK_TOKEN=7 "$@" <&3 3<&- &
wait
exec sleep 60 3<&-
"""


class Commands(unittest.IsolatedAsyncioTestCase):
    """`dlock run`."""

    async def test_a_command_counts_as_the_holder_until_it_has_ended_and_no_longer(self) -> None:
        run = programs.Command()
        request: dict[str, Any] = {
            "ports": [1], "by": None, "db": 0, "name": "k", "mode": "exclusive", "lease": 3000, "wait": 0, "slots": None,
            "replicas": 0,
        }
        with tempfile.TemporaryDirectory() as folder:
            stays = Path(folder, "dlock")
            stays.write_text(STAYS)
            stays.chmod(0o700)
            with mock.patch.object(programs, "COMMAND", str(stays)):
                granted = await run.ask(do="acquire", worker="a", **request)
        self.assertEqual((granted["result"], granted["token"], granted["lost"]), ("granted", 7, False))
        self.assertFalse((await run.ask(do="held", worker="a"))["lost"])
        # The command, `cat`, ends with its input.
        process = run._runs["a"]
        assert process.stdin is not None
        process.stdin.close()
        ends = time.monotonic() + 20
        while not (await run.ask(do="held", worker="a"))["lost"]:
            self.assertLess(time.monotonic(), ends, "the command has ended, but still counts as a holder")
            await asyncio.sleep(0.02)
        self.assertIsNone(process.returncode)
        await run.kill()
        await process.wait()


if __name__ == "__main__":
    unittest.main()
