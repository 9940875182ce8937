"""When `squall chaos` takes a cluster for healed."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from squall.chaos.injector import Injector
from squall.scheduler.faults.in_force import FaultInForce, Victim
from squall.scheduler.faults.sentence import Fault


def test_a_cluster_is_not_healed_while_a_killed_process_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Nimbus answers the order to end, and ends later."""
    cluster = Mock()
    victims = [Victim("nimbus", 7, 1)]
    cluster.client.inject.return_value = [FaultInForce(1, "kill", ["nimbus"], 0.0, 0.0, "nimbus", victims)]
    cluster.client.heal.return_value = []
    looks: list[int] = []
    monkeypatch.setattr("squall.chaos.injector.lives", lambda pid, started: len(looks) < 3)
    monkeypatch.setattr("squall.chaos.injector.time.sleep", lambda secs: looks.append(cluster.client.heal.call_count))
    faults = Injector(cluster, [Fault("kill", ("nimbus",))], 0.0)
    faults.turn()
    faults.heal()
    assert (looks, cluster.client.heal.call_count) == ([0, 0, 0], 1)
