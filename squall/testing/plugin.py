"""Squall's pytest plugin: the fixtures `squall_cluster` and `squall_chaos`.

Guarantees: a test run that does not use the fixtures imports no ZeroMQ and starts nothing. A test that uses them gets
its own clusters of real processes, and fails if it leaves any process or file behind.

Registered by the entry point `pytest11`, or by `-p squall.testing.plugin` if Squall is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from squall.testing.fixtures import FixtureChaos, FixtureCluster

MARKER, CHAOS_MARKER = "squall_cluster", "squall_chaos"
Made = TypeVar("Made")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}(nodes=1, slots_per_node=2): size of the cluster in the fixture squall_cluster"
    )
    config.addinivalue_line(
        "markers",
        f'{CHAOS_MARKER}(faults="all", seeds=range(3), for_secs=2.0, sinks=(), nodes=1, key=None, result=None): '
        "defaults of run() of the fixture squall_chaos",
    )


@pytest.fixture
def squall_cluster(request: pytest.FixtureRequest) -> Iterator[FixtureCluster]:
    """A LocalCluster of real processes, one node with two slots by default; see `@pytest.mark.squall_cluster(...)`.

    Components may be defined in the test's own module. When the test ends, everything is closed; leftovers of the
    cluster, or of processes that components started, fail the test.
    """
    from squall.testing.fixtures import FixtureCluster

    cluster = _marked(request, FixtureCluster, MARKER, getattr(request, "module", None))
    yield cluster
    if left := cluster.end():
        pytest.fail("squall_cluster: this test left behind\n" + "\n".join(left), pytrace=False)


@pytest.fixture
def squall_chaos(request: pytest.FixtureRequest, tmp_path: Path) -> FixtureChaos:
    """`squall_chaos.run(topology, seeds=range(5))` runs it under random faults and proves that nothing is lost.

    Components may be defined in the test's own module. See docs/chaos.md.
    """
    from squall.testing.fixtures import FixtureChaos

    directory = tmp_path / "squall-chaos"
    directory.mkdir()
    return _marked(request, FixtureChaos, CHAOS_MARKER, directory, getattr(request, "module", None))


def _marked(request: pytest.FixtureRequest, make: Callable[..., Made], name: str, *given: Any) -> Made:
    """Make the object of a fixture with the arguments of the test's markers; the nearest wins."""
    arguments: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(name))):
        given += marker.args
        arguments.update(marker.kwargs)
    try:
        return make(*given, **arguments)
    except TypeError as error:
        pytest.fail(f"@pytest.mark.{name}: {error}", pytrace=False)
