"""Clusters that tests share, one after the other: to start one costs more than most tests do with it.

Guarantees: a test finds a cluster that is whole, where nothing runs and nothing is left of those before it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from squall import Config, Job, LocalCluster, RunReport, SquallError, Topology
from squall.testing.run_leftovers import left_behind
from tests.process.standing_tools import Standing, directory

SECRET = "tOkEn-4711"
"""What workers of the shared cluster find in their variable TOKEN_OF_TEST."""


class SharedCluster(LocalCluster):
    """One node, for components that workers can import, or that are in the test's own module, if there is one."""

    module: ModuleType | None = None

    def __init__(self, slots: int = 4) -> None:
        super().__init__(slots_per_node=slots)
        self._submitted: list[Job] = []
        self.names()  # the connection is there now: no test leaves it behind

    def submit(
        self, name: str, topology: Topology, *settings: Any, fresh: bool | None = True, **options: Any
    ) -> Job:
        """By default without the state of a topology of this name that another test ran."""
        if self.module is not None and len(settings) < 2:
            options.setdefault("by_value", self.module)
        job = super().submit(name, topology, *settings, fresh=fresh, **options)
        self._submitted.append(job)
        return job

    def run(self, topology: Topology, config: Config | None = None, timeout_secs: float = 120.0) -> RunReport:
        """As `squall.run`, without a cluster of its own."""
        job = self.submit("run", topology, config)
        report = job.wait_until_drained(timeout_secs)
        job.kill(0.0)
        return report

    def clear(self) -> None:
        """Heal it, and remove what runs."""
        self.heal()
        for job in self._submitted:
            with contextlib.suppress(SquallError):
                if not job.removed:
                    job.kill(0.0)
            job.close()
        self._submitted.clear()
        self.new_log_lines()


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[SharedCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKEN_OF_TEST", SECRET)
        cluster = SharedCluster()
    yield cluster
    cluster.close()
    if left := left_behind(cluster.run_dir):
        pytest.fail("the shared cluster left behind\n" + "\n".join(left), pytrace=False)


@pytest.fixture
def shared_cluster(session_cluster: SharedCluster, request: pytest.FixtureRequest) -> Iterator[SharedCluster]:
    session_cluster.module = request.module
    yield session_cluster
    session_cluster.clear()


@pytest.fixture(scope="session")
def session_standing() -> Iterator[Standing]:
    with directory() as cluster:
        cluster.up(slots=4)
        yield cluster


@pytest.fixture
def standing(session_standing: Standing) -> Iterator[Standing]:
    """A standing cluster of one node with four slots."""
    yield session_standing
    session_standing.clear()


@pytest.fixture
def cluster() -> Iterator[Standing]:
    """The directory of a cluster of the test's own, which was not begun."""
    with directory() as made:
        yield made
