"""When `squall chaos` takes a cluster for healed."""

from __future__ import annotations

import subprocess
import sys
from typing import cast

import pytest

from squall.chaos.injector import Injector
from squall.engine.errors import ClusterError
from squall.scheduler.cluster.private_cluster import PrivateCluster
from squall.scheduler.common.process import start_time_ticks
from squall.scheduler.faults.fault import Fault
from squall.scheduler.faults.in_force import FaultInForce, Victim


class _RunDir:
    def lock_holder(self) -> int:
        return 1


class _Cluster:
    """A cluster whose Nimbus is the child: it answers, and ends later."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.run_dir = _RunDir()
        self.child = child
        self.alive_at_heal: list[bool] = []

    def inject(self, fault: Fault) -> list[FaultInForce]:
        victim = Victim("nimbus", self.child.pid, start_time_ticks(self.child.pid))
        return [FaultInForce(1, "kill", ["nimbus"], 0.0, 0.0, "nimbus", [victim])]

    def heal(self) -> list[FaultInForce]:
        self.alive_at_heal.append(self.child.poll() is None)
        return []


def test_a_cluster_is_not_healed_while_a_killed_process_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:

        def end_meanwhile(secs: float) -> None:
            child.kill()
            child.wait()

        cluster = _Cluster(child)
        monkeypatch.setattr("squall.chaos.injector.time.sleep", end_meanwhile)
        faults = Injector(cast("PrivateCluster", cluster), "words", [Fault("kill", ("nimbus",))], 0.0)
        faults.turn()
        faults.heal()
        child.kill()
    assert cluster.alive_at_heal == [False]


class _Operator:
    """Nimbus with a full disk: it does what it is told and does not answer in time."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.answers = False
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def deactivate(self, name: str) -> None:
        self._take("deactivate")

    def activate(self, name: str) -> None:
        self._take("activate")

    def _take(self, what: str) -> None:
        self.told.append(what)
        if not self.answers:
            raise ClusterError("no answer")


class _Full:
    """A cluster whose Nimbus has no disk from 1 s to 2 s."""

    run_dir = _RunDir()

    def inject(self, fault: Fault) -> list[FaultInForce]:
        return [FaultInForce(1, "disk-full", ["nimbus"], 1.0, 2.0)]

    def heal(self) -> list[FaultInForce]:
        return []


def test_a_topology_is_active_again_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, now = _Operator(), [1.0]
    monkeypatch.setattr("squall.chaos.injector.NimbusClient", lambda run_dir, timeout_secs: operator)
    monkeypatch.setattr("squall.chaos.injector.time.monotonic", lambda: now[0])
    faults = [Fault("disk-full", ("nimbus",))]
    injector = Injector(cast("PrivateCluster", _Full()), "words", faults, 0.0)
    injector.turn()
    assert operator.told == ["deactivate"]
    now[0] = 3.0
    injector.turn()
    assert operator.told == ["deactivate", "activate"]
    now[0], operator.answers = 4.0, True
    injector.turn()
    now[0] = 5.0
    injector.turn()
    assert operator.told == ["deactivate", "activate", "activate"], "until it is answered"


def test_once_it_is_healed_no_connection_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would close it: the process then hung at its end."""
    operator, now, made = _Operator(), [1.0], []
    monkeypatch.setattr(
        "squall.chaos.injector.NimbusClient", lambda run_dir, timeout_secs: made.append(operator) or operator
    )
    monkeypatch.setattr("squall.chaos.injector.time.monotonic", lambda: now[0])
    faults = [Fault("disk-full", ("nimbus",))]
    injector = Injector(cast("PrivateCluster", _Full()), "words", faults, 0.0)
    injector.turn()
    assert operator.told == ["deactivate"]
    operator.answers = True
    injector.heal()
    assert operator.told == ["deactivate", "activate"]
    assert operator.closed
    now[0] = 9.0
    injector.turn()
    assert made == [operator]
