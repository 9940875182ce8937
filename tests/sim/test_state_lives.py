"""State, windows and sinks under deaths and failed commits; `make prove` runs more of it."""

from __future__ import annotations

from tests.sim.state_lives import KINDS, run_life


def test_each_record_counts_once_in_every_life(seed: int) -> None:
    for number in range(2 * len(KINDS)):
        run_life(seed + number)
