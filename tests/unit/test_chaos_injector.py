"""When `squall chaos` takes a cluster for healed."""

from __future__ import annotations

from typing import cast

import pytest

from squall.chaos.injector import Injector
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.faults.fault import Fault
from squall.scheduler.faults.in_force import FaultInForce, Victim


class _RunDir:
    def lock_holder(self) -> int:
        return 1


class _Cluster:
    """A cluster whose Nimbus answers the order to end, and ends later."""

    run_dir = _RunDir()
    healed = 0

    @property
    def client(self) -> _Cluster:
        return self

    def inject(self, fault: Fault) -> list[FaultInForce]:
        return [FaultInForce(1, "kill", ["nimbus"], 0.0, 0.0, "nimbus", [Victim("nimbus", 7, 1)])]

    def heal(self) -> list[FaultInForce]:
        self.healed += 1
        return []


def test_a_cluster_is_not_healed_while_a_killed_process_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _Cluster()
    looks: list[int] = []
    monkeypatch.setattr("squall.chaos.injector.lives", lambda pid, started: len(looks) < 3)
    monkeypatch.setattr("squall.chaos.injector.time.sleep", lambda secs: looks.append(cluster.healed))
    faults = Injector(cast("LocalCluster", cluster), [Fault("kill", ("nimbus",))], 0.0)
    faults.turn()
    faults.heal()
    assert (looks, cluster.healed) == ([0, 0, 0], 1)
