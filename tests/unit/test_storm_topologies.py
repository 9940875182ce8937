"""Storm's integration tests on simulated clusters of one to three workers; the table is in tests/storm_world.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from squall import Config, TopologyBuilder
from squall.testing import FeederSpout, SimulatedCluster
from tests import storm_acking, storm_groupings, storm_streams
from tests.storm_world import World

_STEP_SECS = 0.05
_MAX_STEPS = 2_000


class SimulatedWorld:
    """One topology, simulated."""

    timeout_secs = 10.0

    def __init__(self, directory: Path, workers: int) -> None:
        self.directory = directory
        self._workers = workers
        self._cluster: SimulatedCluster

    def feeder(self, *fields: str) -> FeederSpout:
        return FeederSpout(fields)

    def start(self, builder: TopologyBuilder, **settings: Any) -> None:
        self._cluster = SimulatedCluster(builder.build(), Config(workers=self._workers, **settings))

    def settle(self) -> None:
        self._cluster.settle()

    def until(self, what: str, condition: Callable[[], object]) -> None:
        for _ in range(_MAX_STEPS):
            self._cluster.settle()
            if condition():
                return
            self._cluster.advance(_STEP_SECS)
        raise AssertionError(f"not within {_MAX_STEPS * _STEP_SECS:g} simulated seconds: {what}")

    def finish(self) -> None:
        self._cluster.run()
        self.close()

    def close(self) -> None:
        self._cluster.close()

    @property
    def reported(self) -> str:
        return "\n".join(f"{component}[{task}] {text}" for component, task, text in self._cluster.errors)


@pytest.fixture(params=[1, 2, 3])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = SimulatedWorld(tmp_path, request.param)
    yield made
    made.close()


@pytest.mark.parametrize(
    "scenario", [*storm_acking.SCENARIOS, *storm_streams.SCENARIOS, *storm_groupings.SCENARIOS],
    ids=lambda scenario: scenario.__name__,
)
def test_as_in_storm(scenario: Callable[[World], None], world: World) -> None:
    scenario(world)
