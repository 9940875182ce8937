"""Whole clusters in simulated time, under deaths, stops and lost answers: daemons and store alone, and joined with real
workers; `make sim` runs more of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.cluster_life import THE_PRODUCT, ClusterLife, LifeParts, broken_by, first_broken, shortest
from tests.sim.joined_life import JOINED, JoinedLife
from tests.sim.life_mutants import LIFE_MUTANTS
from tests.sim.lives import main

MUTANT_LIVES = 150


@pytest.mark.parametrize(("parts", "lives"), [(THE_PRODUCT, 30), (JOINED, 12)], ids=["alone", "joined"])
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
    said = {"nimbus ends", "nimbus dies", "nimbus dies after", "killed inside", "has left", "no answer"}
    wanted = {*JoinedLife.faults, *said, "worker died", "frame lost"}
    for seed in range(60):
        life = JoinedLife(seed)
        life.run()
        wanted -= {line.split(" fault: ")[1].split(",")[0] for line in life.machine.lines if " fault: " in line}
        wanted -= {text for text in said if any(text in line for line in life.machine.lines)}
        for book in life.machine.books.values():
            wanted -= book.reasons.keys()
        if not wanted:
            break
    assert not wanted


def test_topologies_are_really_replaced() -> None:
    """Also while Nimbus dies."""
    begun = died = 0
    for seed in range(30):
        life = ClusterLife(seed)
        life.run()
        asked = [n for n, line in enumerate(life.machine.lines) if " instead " in line and line.endswith("answered")]
        begun += len(asked)
        died += sum("nimbus dies" in line for n in asked for line in life.machine.lines[n : n + 10])
    assert begun > 20
    assert died > 2


@pytest.mark.parametrize("off", LIFE_MUTANTS)
def test_what_is_switched_off_is_noticed(off: str) -> None:
    mutant = LIFE_MUTANTS[off]
    broken = first_broken(range(MUTANT_LIVES), mutant.parts)
    assert broken is not None, f"without {off!r} every invariant holds all the same"
    assert broken[1].invariant in mutant.breaks
    # The same life breaks nothing of the product: it is what is off that does.
    product = JOINED if mutant.parts.life is JoinedLife else THE_PRODUCT
    assert broken_by(broken[0], replace(product, faults=mutant.parts.faults)) is None


def test_the_shortest_history_that_shows_it() -> None:
    parts = LIFE_MUTANTS["contiguous position"].parts
    found = first_broken(range(MUTANT_LIVES), parts)
    assert found is not None
    whole, least = broken_by(found[0], parts), shortest(found[0], parts)
    assert whole is not None
    assert least is not None
    assert least.error.invariant == whole.error.invariant
    assert 0 < sum("(" in line for line in least.lines) < sum("(" in line for line in whole.lines)


def test_the_command(capsys: pytest.CaptureFixture[str], seed: int) -> None:
    assert main(["--seeds", "10", "--first", str(seed), "--processes", "1"]) == 0
    assert f"10 lives from seed {seed} on" in capsys.readouterr().out
    assert main(["--joined", "--seed", str(seed)]) == 0
    assert "every invariant holds; trace" in capsys.readouterr().out
