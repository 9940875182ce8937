"""Those of Storm's integration tests that processes, sockets or time have a part in; tests/storm_world.py has all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from squall import Config, Job, LocalCluster, TopologyBuilder
from squall.testing import FeederSpout
from tests import storm_acking, storm_groupings, storm_streams
from tests.process.conftest import SharedCluster
from tests.process.waiting import wait_for
from tests.storm_world import World

DEADLINE_SECS = 100.0


class ProcessWorld:
    """One topology on a cluster of real processes."""

    # Long beside what a message takes, also on a machine that has much else to do.
    timeout_secs = 5.0

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.directory = directory
        self._cluster = cluster
        self._feeders: list[FeederSpout] = []
        self._lines: list[str] = []
        self._job: Job

    def feeder(self, *fields: str) -> FeederSpout:
        self._feeders.append(FeederSpout(fields, self.directory))
        return self._feeders[-1]

    def start(self, builder: TopologyBuilder, **settings: Any) -> None:
        self._job = self._cluster.submit("storm", builder.build(), Config(workers=3, **settings))

    def settle(self) -> None:
        fed = sum(feeder.fed for feeder in self._feeders)
        # What a worker has emitted and that it is not idle any more become visible together.
        self.until("what was fed to be processed", lambda: self._emitted() >= fed and self._job.is_idle())

    def _emitted(self) -> int:
        return sum(reading.counters["emitted"] for reading in self._job.readings() if reading.kind == "spout")

    def until(self, what: str, condition: Callable[[], object]) -> None:
        wait_for(what, condition)

    def finish(self) -> None:
        self._job.wait_until_drained(DEADLINE_SECS)
        self._job.kill(0.0)

    @property
    def reported(self) -> str:
        self._lines += [line for _, line in self._cluster.new_log_lines()]
        return "\n".join(self._lines)


@pytest.fixture
def world(shared_cluster: SharedCluster, tmp_path: Path) -> World:
    return ProcessWorld(shared_cluster, tmp_path)


@pytest.mark.parametrize("scenario", [
    storm_acking.acking, storm_acking.timeout, storm_streams.ticks_are_beside_the_data,
    storm_streams.order_per_producer_and_task, storm_streams.report_error_and_failed_tuple,
    storm_groupings.local_tasks_are_preferred,
], ids=lambda scenario: scenario.__name__)
def test_as_in_storm(scenario: Callable[[World], None], world: World) -> None:
    scenario(world)
