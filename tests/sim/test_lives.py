"""Whole clusters in simulated time, under deaths, stops and lost answers: daemons and store alone, and joined with real
workers; `make sim` runs more of it."""

from __future__ import annotations

import pytest

from tests.sim.cluster_life import THE_PRODUCT, LifeParts, first_broken
from tests.sim.joined_life import JOINED, JoinedLife
from tests.sim.state_lives import KINDS, run_life


@pytest.mark.parametrize(("parts", "lives"), [(THE_PRODUCT, 15), (JOINED, 8)], ids=["alone", "joined"])
def test_what_must_hold_holds(parts: LifeParts, lives: int, seed: int) -> None:
    broken = first_broken(range(seed, seed + lives), parts)
    assert broken is None, f"python -m tests.sim.lives --seed {broken[0]}, or --joined --seed ...: {broken[1]}"


@pytest.mark.parametrize("parts", [THE_PRODUCT, JOINED], ids=["alone", "joined"])
def test_a_seed_is_one_life(parts: LifeParts, seed: int) -> None:
    """Down to each byte on the wires."""
    first, second = parts.life(seed, parts), parts.life(seed, parts)
    assert first.run() == second.run()
    assert first.machine.lines == second.machine.lines
    assert parts.life(seed + 1, parts).run() != first.machine.digest


def test_the_faults_really_happen() -> None:
    """And topologies are replaced, also while Nimbus dies."""
    said = {"nimbus ends", "nimbus dies", "nimbus dies after", "killed inside", "has left", "no answer"}
    wanted = {*JoinedLife.faults, *said, "worker died", "frame lost", "replaced", "replaced as nimbus dies"}
    for seed in range(60):
        life = JoinedLife(seed)
        life.run()
        lines = life.machine.lines
        wanted -= {line.split(" fault: ")[1].split(",")[0] for line in lines if " fault: " in line}
        wanted -= {text for text in said if any(text in line for line in lines)}
        for number, line in enumerate(lines):
            if " instead " in line and line.endswith("answered"):
                dies = any("nimbus dies" in after for after in lines[number : number + 10])
                wanted -= {"replaced", "replaced as nimbus dies" if dies else ""}
        for book in life.machine.books.values():
            wanted -= book.reasons.keys()
        if not wanted:
            break
    assert not wanted


def test_each_record_counts_once_in_every_life(seed: int) -> None:
    for number in range(2 * len(KINDS)):
        run_life(seed + number)
