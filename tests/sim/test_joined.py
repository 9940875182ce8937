"""Real workers, simulated daemons and the real store in one life; `make sim` runs more of it."""

from __future__ import annotations

import os
import signal

import pytest

from squall.engine.api.config import Config
from squall.ipc.board import STARTING, Board
from squall.scheduler.common.messages import (
    Assignment,
    ComponentSummary,
    SlotRef,
    TopologyRecord,
    WorkerBoot,
)
from squall.scheduler.nimbus.placement import task_layout
from tests.sim.book import topology_of
from tests.sim.cluster_life import broken_by, first_broken, shortest
from tests.sim.joined_life import JOINED, JoinedLife
from tests.sim.joined_machine import JoinedMachine, MachineParts
from tests.sim.joined_mutants import JOINED_MUTANTS
from tests.sim.lives import main

LIVES = 12
MUTANT_LIVES = 100


def test_what_must_hold_holds(seed: int) -> None:
    broken = first_broken(range(seed, seed + LIVES), JOINED)
    assert broken is None, f"python -m tests.sim.lives --joined --seed {broken[0]}: {broken[1]}"


def test_a_seed_is_one_life(seed: int) -> None:
    """Down to each byte on the wires."""
    first, second = JoinedLife(seed), JoinedLife(seed)
    assert first.run() == second.run()
    assert first.machine.lines == second.machine.lines
    assert JoinedLife(seed + 1).run() != first.machine.digest


def test_the_faults_really_happen() -> None:
    daemons, tuples = {"nimbus ends", "nimbus dies after", "killed inside"}, {"worker died", "frame lost"}
    wanted = {*JoinedLife.faults, *daemons, *tuples}
    for seed in range(60):
        if not wanted:
            break
        life = JoinedLife(seed)
        life.run()
        wanted -= {line.split(" fault: ")[1].split(",")[0] for line in life.machine.lines if " fault: " in line}
        wanted -= {said for said in daemons if life.has_said(said)}
        for book in life.machine.books.values():
            wanted -= book.reasons.keys()
    assert not wanted


@pytest.mark.parametrize("off", JOINED_MUTANTS)
def test_what_is_switched_off_is_noticed(off: str) -> None:
    mutant = JOINED_MUTANTS[off]
    broken = first_broken(range(mutant.first, mutant.first + MUTANT_LIVES), mutant.parts)
    assert broken is not None, f"without {off!r} every invariant holds all the same"
    assert broken[1].invariant in mutant.breaks
    # The same life breaks nothing of the product: it is what is off that does.
    assert broken_by(broken[0], JOINED) is None


def test_the_shortest_history_that_shows_it() -> None:
    mutant = JOINED_MUTANTS["contiguous position"]
    found = first_broken(range(mutant.first, mutant.first + MUTANT_LIVES), mutant.parts)
    assert found is not None
    whole, least = broken_by(found[0], mutant.parts), shortest(found[0], mutant.parts)
    assert whole is not None
    assert least is not None
    assert least.error.invariant == whole.error.invariant
    assert sum(" fault: " in line for line in least.lines) < sum(" fault: " in line for line in whole.lines)


def test_a_worker_begins_when_its_supervisor_knows_it_and_never_beside_its_successor() -> None:
    machine = JoinedMachine(1, MachineParts())
    conf = {"workers": 1, "message_timeout_secs": 60.0}
    layout = topology_of(machine.new_book(60.0)).layout(Config(**conf).acker_count)
    components = [ComponentSummary(*row) for row in layout]
    executors = task_layout(components)
    record = TopologyRecord("one-1", "one", "ACTIVE", conf, components, "", [], 0.0)
    assignment = Assignment("one-1", 1, [SlotRef("node-1", 6700)], [executors])
    board = Board.create(str(machine.run_dir.board("one-1", 1)), 1, max(each.last_task for each in executors))
    boots = [WorkerBoot("", "node-1", 6700, incarnation, 0, record, assignment, "") for incarnation in (1, 2)]

    board.set_slot(0, 1, STARTING, 0)
    unheard = machine.fork(boots[0])
    machine.run_until(machine.now + 3.0, lambda: None)
    assert unheard.lives
    assert not unheard.is_ready
    # Its supervisor has died before it heard of it; the next one starts another.
    board.set_slot(0, 2, STARTING, 0)
    successor = machine.fork(boots[1])
    board.set_slot(0, 2, STARTING, successor.pid)
    machine.run_until(machine.now + 0.2, lambda: None)
    assert successor.is_ready
    assert not unheard.lives
    successor.end(0)
    board.close()
    machine.close()


def test_what_a_killed_simulation_leaves_is_removed_by_the_next() -> None:
    killed = os.fork()
    if killed == 0:
        JoinedMachine(0, MachineParts())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(killed, 0)
    mine = JoinedMachine(1, MachineParts())
    there = mine.run_dir.path.parent
    assert not list(there.glob(f"squall-sim-{killed}-*"))
    other = JoinedMachine(2, MachineParts())
    assert mine.run_dir.path.exists(), "its process lives"
    for machine in (mine, other):
        machine.close()
    assert not list(there.glob(f"squall-sim-{os.getpid()}-*"))


def test_the_command(capsys: pytest.CaptureFixture[str], seed: int) -> None:
    assert main(["--joined", "--seed", str(seed)]) == 0
    assert "every invariant holds; trace" in capsys.readouterr().out
