"""Whole clusters in simulated time: the decisions of Nimbus and supervisors under deaths, stops and lost answers."""

from __future__ import annotations

import pytest

from tests.sim.cluster_life import ClusterLife, broken_by, first_broken, shortest
from tests.sim.life_mutants import LIFE_MUTANTS
from tests.sim.lives import main

LIVES = 60
MUTANT_LIVES = 400


def test_what_must_hold_holds(seed: int) -> None:
    broken = first_broken(range(seed, seed + LIVES))
    assert broken is None, f"python -m tests.sim.lives --seed {broken[0]}: {broken[1]}"


def test_a_seed_is_one_life(seed: int) -> None:
    first, second = ClusterLife(seed), ClusterLife(seed)
    assert first.run() == second.run()
    assert first.machine.lines == second.machine.lines
    assert ClusterLife(seed + 1).run() != first.machine.digest


def test_the_faults_really_happen() -> None:
    happened: set[str] = set()
    for seed in range(20):
        life = ClusterLife(seed)
        life.run()
        happened |= {line.split(" fault: ")[1].split(",")[0] for line in life.machine.lines if " fault: " in line}
        happened |= {line.split(" ", 1)[1] for line in life.machine.lines if line.endswith("nimbus dies")}
        happened |= {"has left" for line in life.machine.lines if line.endswith("has left")}
        happened |= {line.split()[-1] for line in life.machine.lines if line.endswith("answer")}
    faults = {"worker", "nimbus", "supervisor", "node", "parent", "leave", "stop", "hang", "refuse"}
    assert happened >= faults | {"nimbus dies", "has left", "answer"}


def test_topologies_are_really_replaced() -> None:
    """Also while Nimbus dies."""
    begun = died = 0
    for seed in range(20):
        life = ClusterLife(seed)
        life.run()
        asked = [n for n, line in enumerate(life.machine.lines) if " instead " in line and line.endswith("answered")]
        begun += len(asked)
        died += sum("nimbus dies" in line for n in asked for line in life.machine.lines[n : n + 10])
    assert begun > 20
    assert died > 2


@pytest.mark.parametrize("off", LIFE_MUTANTS)
def test_what_is_switched_off_is_noticed(off: str) -> None:
    broken = first_broken(range(MUTANT_LIVES), LIFE_MUTANTS[off])
    assert broken is not None, f"without {off!r} every invariant holds all the same"
    # The same life breaks nothing of the product: it is what is off that does.
    assert broken_by(broken[0]) is None


def test_the_shortest_history_that_shows_it() -> None:
    parts = LIFE_MUTANTS["stored before answered"]
    found = first_broken(range(MUTANT_LIVES), parts)
    assert found is not None
    whole, least = broken_by(found[0], parts), shortest(found[0], parts)
    assert whole is not None
    assert least is not None
    assert least.error.invariant == whole.error.invariant
    assert 0 < sum("(" in line for line in least.lines) < sum("(" in line for line in whole.lines)


def test_the_command(capsys: pytest.CaptureFixture[str], seed: int) -> None:
    assert main(["--seeds", "20", "--first", str(seed), "--processes", "1"]) == 0
    assert f"20 lives from seed {seed} on" in capsys.readouterr().out
    assert main(["--seed", str(seed)]) == 0
    assert "every invariant holds; trace" in capsys.readouterr().out
