"""Which deaths `squall chaos` sees, which fault explains each, and when it takes a cluster for healed."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from squall.chaos import injected
from squall.chaos.injected import DaemonWatch, DeathClaims, Injector
from squall.ipc.rundir import RunDir
from squall.scheduler.common import daemon as daemon_module
from squall.scheduler.common.daemon import DaemonRecord
from squall.scheduler.faults.in_force import BEGIN, HIT, FaultInForce, Victim, note
from squall.scheduler.faults.sentence import Fault


def claims_of(run_dir: RunDir, fault: FaultInForce, asked: str) -> list[str]:
    """What explains deaths, each given as worker, pid, and when."""
    note(run_dir, BEGIN, fault, 5.0)
    claims = DeathClaims.read(run_dir)
    return [claims.of(f"{worker}:6700", int(pid), float(at)) for worker, pid, at in map(str.split, asked.split(", "))]


def test_a_fault_explains_the_processes_that_it_names(run_dir: RunDir) -> None:
    poison = FaultInForce(2, "poison", ["count"], 6.0, 8.0, topology_id="words-1", tasks=[2])
    note(run_dir, BEGIN, poison, 6.0)
    note(run_dir, HIT, poison, 7.0, name="node-2:6700", pid=12)
    kill = FaultInForce(1, "kill", ["node-1"], 5.0, 5.0, victims=[Victim("node-1:6700", 11, 1)])
    assert claims_of(run_dir, kill, "node-1 11 5.1, node-1 99 5.1, node-2 12 7.1") == ["kill", "", "poison"]


@pytest.mark.parametrize("victim", ["", "supervisor node-1", "forking parent node-1"])
def test_refused_forks_and_killed_daemons_explain_workers_of_their_node_that_never_were(
    victim: str, run_dir: RunDir
) -> None:
    kind = "kill" if victim else "fork-refused"
    fault = FaultInForce(
        1, kind, ["node-1"], 5.0, 5.0 if victim else 7.0, "node-1", victims=[Victim(victim, 11, 1)] * bool(victim)
    )
    found = claims_of(run_dir, fault, "node-1 0 4.9, node-1 0 5.1, node-1 0 60, node-1 12 5.1, node-2 0 5.1")
    assert found == ["", kind, "", "", ""]
    assert victim or DeathClaims.read(run_dir).of("node-1:6700", 0, 8.5) == kind


class Machine:
    """Records of daemons, and the processes that live."""

    def __init__(self, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run_dir, self.watch = run_dir, DaemonWatch(run_dir, 1)
        self.records: dict[Path, DaemonRecord] = {}
        self.living: set[int] = set()
        self.children: dict[int, int] = {}
        monkeypatch.setattr(daemon_module, "read_record", self.records.get)
        monkeypatch.setattr(injected, "lives", lambda pid, started: pid in self.living)
        monkeypatch.setattr(
            injected, "forking_parent_of", lambda pid, node: self.forking_parent(self.children.get(pid))
        )

    def forking_parent(self, child: int | None) -> tuple[int, int] | None:
        return (child, 0) if child in self.living else None  # type: ignore[return-value]

    def start(self, name: str, pid: int, child: int = 0) -> None:
        self.records[self.run_dir.daemon_record(name)] = DaemonRecord(pid, 0)
        self.children[pid] = child
        self.living |= {pid, child}


@pytest.fixture
def machine(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(run_dir, monkeypatch)


@pytest.mark.parametrize("is_seen_dead", [True, False])
def test_a_daemon_that_dies_and_comes_back_is_seen(machine: Machine, is_seen_dead: bool) -> None:
    watch = machine.watch
    machine.start("nimbus", 5)
    watch.look(1.0)
    assert (watch.deaths, watch.away()) == ([], [])
    machine.living.discard(5)
    if is_seen_dead:
        watch.look(2.0)
        assert watch.away() == ["nimbus"]
    machine.start("nimbus", 6)
    watch.look(4.0)
    seen = [(death.name, death.pid, death.at_secs, death.back_secs) for death in watch.deaths]
    assert (seen, watch.away()) == ([("nimbus", 5, 2.0 if is_seen_dead else 4.0, 4.0)], [])


def test_a_forking_parent_that_is_seen_dead_just_before_its_supervisor_is_back_with_the_next(machine: Machine) -> None:
    watch = machine.watch
    machine.start("supervisor-node-1", 1, 11)
    # The parent dies with its supervisor, which is still alive when it is looked at.
    for at_secs, dead in ((1.0, 0), (2.0, 11), (3.0, 1)):
        machine.living.discard(dead)
        watch.look(at_secs)
    machine.start("supervisor-node-1", 2, 22)
    watch.look(4.0)
    assert {death.name: (death.pid, death.back_secs) for death in watch.deaths} == {
        "supervisor node-1": (1, 4.0), "forking parent node-1": (11, 4.0),
    }
    assert watch.away() == []


def test_a_cluster_is_not_healed_while_a_killed_process_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Nimbus answers the order to end, and ends later."""
    cluster = Mock()
    victims = [Victim("nimbus", 7, 1)]
    cluster.client.inject.return_value = [FaultInForce(1, "kill", ["nimbus"], 0.0, 0.0, "nimbus", victims)]
    cluster.client.heal.return_value = []
    looks: list[int] = []
    monkeypatch.setattr("squall.chaos.injected.lives", lambda pid, started: len(looks) < 3)
    monkeypatch.setattr("squall.chaos.injected.time.sleep", lambda secs: looks.append(cluster.client.heal.call_count))
    faults = Injector(cluster, [Fault("kill", ("nimbus",))], 0.0)
    faults.turn()
    faults.heal()
    assert (looks, cluster.client.heal.call_count) == ([0, 0, 0], 1)
