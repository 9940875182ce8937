"""Which deaths `squall chaos` sees, and which fault explains each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from squall.chaos import deaths
from squall.chaos.deaths import Claims, DaemonWatch
from squall.ipc.rundir import RunDir
from squall.scheduler.breaking.fault_record import note_begin, note_hit
from squall.scheduler.common import daemon as daemon_module
from squall.scheduler.common.daemon import DaemonRecord
from squall.scheduler.faults.in_force import FaultInForce, Victim

Child = subprocess.Popen[bytes]


def test_a_fault_explains_the_processes_that_it_names(run_dir: RunDir) -> None:
    note_begin(run_dir, FaultInForce(1, "kill", ["node-1"], 5.0, 5.0, victims=[Victim("node-1:6700", 11, 1)]))
    poison = FaultInForce(2, "poison", ["count"], 6.0, 8.0, topology_id="words-1", tasks=[2])
    note_begin(run_dir, poison)
    note_hit(run_dir, poison, "node-1:6701", 12, 1, 7.0)
    claims = Claims.read(run_dir)
    assert claims.of("node-1:6700", 11, 5.1) == "kill"
    assert claims.of("node-1:6700", 99, 5.1) == ""
    assert claims.of("node-1:6701", 12, 7.1) == "poison"


def test_forks_are_refused_while_who_refuses_them_is_stopped(run_dir: RunDir) -> None:
    note_begin(run_dir, FaultInForce(1, "fork-refused", [], 5.0, 7.0, "node-1"))
    note_begin(run_dir, FaultInForce(2, "stop", [], 6.0, 20.0, "nimbus", [Victim("supervisor node-1", 21, 1)]))
    # Once more, before the first stop is over.
    note_begin(run_dir, FaultInForce(3, "stop", [], 19.0, 30.0, "nimbus", [Victim("supervisor node-1", 21, 1)]))
    note_begin(run_dir, FaultInForce(4, "stop", [], 6.0, 60.0, "nimbus", [Victim("supervisor node-2", 31, 1)]))
    claims = Claims.read(run_dir)
    found = [claims.of("node-1:6700", 0, at_secs) for at_secs in (4.9, 15.0, 30.5, 50.0)]
    assert found == ["", "fork-refused", "fork-refused", ""]


def test_refused_forks_explain_workers_of_their_node_that_never_were(run_dir: RunDir) -> None:
    note_begin(run_dir, FaultInForce(1, "fork-refused", ["node-1"], 5.0, 7.0, "node-1"))
    claims = Claims.read(run_dir)
    assert claims.of("node-1:6700", 0, 6.0) == "fork-refused"
    assert claims.of("node-1:6700", 11, 6.0) == ""
    assert claims.of("node-2:6700", 0, 6.0) == ""


def test_a_killed_supervisor_explains_the_worker_that_it_had_only_asked_for(run_dir: RunDir) -> None:
    note_begin(run_dir, FaultInForce(1, "kill", ["node-1"], 5.0, 5.0, victims=[Victim("supervisor node-1", 11, 1)]))
    claims = Claims.read(run_dir)
    assert claims.of("node-1:6700", 0, 5.1) == "kill"
    assert claims.of("node-1:6700", 0, 4.9) == ""
    assert claims.of("node-1:6700", 0, 60.0) == ""
    assert claims.of("node-1:6700", 12, 5.1) == ""
    assert claims.of("node-2:6700", 0, 5.1) == ""


@pytest.fixture
def nimbus(run_dir: RunDir) -> Iterator[Child]:
    yield from daemon(run_dir)


@pytest.fixture
def successor(run_dir: RunDir) -> Iterator[Child]:
    yield from daemon(run_dir)


def daemon(run_dir: RunDir) -> Iterator[Child]:
    """A process that writes Nimbus's record when it is told to, and stays."""
    path = run_dir.daemon_record("nimbus")
    program = (
        "import pathlib; from squall.scheduler.common.daemon import write_record; input(); "
        f"write_record(pathlib.Path({str(path)!r})); print(flush=True); input()"
    )
    made = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    yield made
    made.kill()
    made.communicate()


def begin(child: Child) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"\n")
    child.stdin.flush()
    assert child.stdout.readline()


def test_a_daemon_that_dies_and_comes_back_is_seen(run_dir: RunDir, nimbus: Child, successor: Child) -> None:
    watch = DaemonWatch(run_dir, 1)
    begin(nimbus)
    watch.look(1.0)
    assert (watch.deaths, watch.away()) == ([], [])
    nimbus.kill()
    nimbus.wait()
    watch.look(2.0)
    watch.look(3.0)
    assert watch.away() == ["nimbus"]
    begin(successor)
    watch.look(4.0)
    (death,) = watch.deaths
    assert (death.name, death.pid, death.at_secs, death.back_secs) == ("nimbus", nimbus.pid, 2.0, 4.0)
    assert watch.away() == []


def test_one_that_was_replaced_between_two_looks_is_seen(run_dir: RunDir, nimbus: Child, successor: Child) -> None:
    watch = DaemonWatch(run_dir, 1)
    begin(nimbus)
    watch.look(1.0)
    begin(successor)
    watch.look(2.0)
    (death,) = watch.deaths
    assert (death.pid, death.at_secs, death.back_secs) == (nimbus.pid, 2.0, 2.0)


def test_a_forking_parent_that_is_seen_dead_just_before_its_supervisor_is_back_with_the_next(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, living = [1], {1, 11}
    children = {1: (11, 0), 2: (22, 0)}
    path = run_dir.daemon_record("supervisor-node-1")
    monkeypatch.setattr(
        daemon_module, "read_record", lambda asked: DaemonRecord(supervisor[0], 0) if asked == path else None
    )
    monkeypatch.setattr(deaths, "lives", lambda pid, started: pid in living)
    monkeypatch.setattr(
        deaths, "forking_parent_of", lambda pid, node: children[pid] if children[pid][0] in living else None
    )
    watch = DaemonWatch(run_dir, 1)
    watch.look(1.0)
    living.discard(11)  # with its supervisor, which is still alive when it is looked at
    watch.look(2.0)
    living.discard(1)
    watch.look(3.0)
    supervisor[0] = 2
    living.update({2, 22})
    watch.look(4.0)
    assert {death.name: (death.pid, death.back_secs) for death in watch.deaths} == {
        "supervisor node-1": (1, 4.0), "forking parent node-1": (11, 4.0),
    }
    assert watch.away() == []
