"""The outcome of a part is read from its output and its exit code: python3 lab/soak/test_soak.py"""

from __future__ import annotations

import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

FILE = Path(__file__).parents[2] / "scripts/soak-all"
SPEC = spec_from_loader("soak_all", SourceFileLoader("soak_all", str(FILE)))
SOAK = module_from_spec(SPEC)
SPEC.loader.exec_module(SOAK)
CHAOS, CLIENTS, FUZZ = (next(part for part in SOAK.PARTS if part.name.startswith(name))
                        for name in ("chaos of servers", "chaos of all clients, one", "fuzz of the server"))


class Outcomes(unittest.TestCase):
    """The numbers and findings of a part's output and exit code."""

    def test_a_row_has_the_findings(self) -> None:
        row = "| one | Redis 8.6.2 | 2.0 | 1,200 | 870 | 69 | 150 | {} |\n"
        self.assertEqual(SOAK.outcome(CLIENTS, 0, row.format(0)), ([870], 0))
        self.assertEqual(SOAK.outcome(CLIENTS, 1, row.format(3)), ([870], 3))

    def test_a_part_that_dies_without_a_row_has_found_something(self) -> None:
        for part in (CHAOS, CLIENTS, FUZZ):
            self.assertEqual(SOAK.outcome(part, 2, "Broken: not in time\n"), ([], 1))

    def test_a_part_that_fails_with_a_row_of_none_has_found_something(self) -> None:
        row = "| one | Redis 8.6.2 | 2.0 | 1,200 | 870 | 69 | 150 | 0 |\n"
        self.assertEqual(SOAK.outcome(CLIENTS, 1, row), ([870], 1))

    def test_output_without_numbers_of_a_part_that_succeeds_is_no_finding(self) -> None:
        self.assertEqual(SOAK.outcome(FUZZ, 0, "nothing\n"), ([], 0))

    def test_the_row_of_a_run_that_died_is_read(self) -> None:
        row = "| one | no server, died | 0.0 | 0 | 0 | 0 | 0 | 1 |\n"
        self.assertEqual(SOAK.outcome(CLIENTS, 1, row), ([0], 1))


if __name__ == "__main__":
    unittest.main()
