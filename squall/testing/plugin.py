"""Squall's pytest plugin: the fixtures `squall_cluster` and `squall_chaos`.

Guarantees: a test run that does not use the fixtures imports no ZeroMQ and starts nothing. A test that uses them gets
its own clusters of real processes, and fails if it leaves any process or file behind.

Registered by the entry point `pytest11`, or by `-p squall.testing.plugin` if Squall is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from squall.testing.fixture_chaos import FixtureChaos
    from squall.testing.fixture_cluster import FixtureCluster

MARKER, CHAOS_MARKER = "squall_cluster", "squall_chaos"
DEFAULTS = {"nodes": 1, "slots_per_node": 2}
CHAOS_NAMES = ("faults", "seeds", "for_secs", "sinks", "nodes")
"""Arguments of both the marker and `squall_chaos.run`: see `squall.testing.fixture_chaos`."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}(nodes=1, slots_per_node=2): size of the cluster in the fixture squall_cluster"
    )
    config.addinivalue_line(
        "markers",
        f'{CHAOS_MARKER}(faults="all", seeds=range(3), for_secs=2.0, sinks=(), nodes=1): defaults of run() of '
        "the fixture squall_chaos",
    )


@pytest.fixture
def squall_cluster(request: pytest.FixtureRequest) -> Iterator[FixtureCluster]:
    """A LocalCluster of real processes, one node with two slots by default; see `@pytest.mark.squall_cluster(...)`.

    Components may be defined in the test's own module. When the test ends, everything is closed; leftovers of the
    cluster, or of processes that components started, fail the test.
    """
    from squall.testing.fixture_cluster import FixtureCluster

    cluster = FixtureCluster(**_size_of(request), module=getattr(request, "module", None))
    yield cluster
    if left := cluster.end():
        pytest.fail("squall_cluster: this test left behind\n" + "\n".join(left), pytrace=False)


@pytest.fixture
def squall_chaos(request: pytest.FixtureRequest, tmp_path: Path) -> FixtureChaos:
    """`squall_chaos.run(topology, seeds=range(5))` runs it under random faults and proves that nothing is lost.

    Components may be defined in the test's own module. See docs/chaos.md.
    """
    from squall.testing.fixture_chaos import FixtureChaos

    directory = tmp_path / "squall-chaos"
    directory.mkdir()
    return FixtureChaos(directory, getattr(request, "module", None), _marked(request, CHAOS_MARKER, CHAOS_NAMES))


def _size_of(request: pytest.FixtureRequest) -> dict[str, int]:
    return {**DEFAULTS, **_marked(request, MARKER, tuple(DEFAULTS))}


def _marked(request: pytest.FixtureRequest, name: str, allowed: Sequence[str]) -> dict[str, Any]:
    """The arguments of a test's markers; the nearest wins."""
    found: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(name))):
        unknown = ", ".join([*map(repr, marker.args), *sorted(marker.kwargs.keys() - set(allowed))])
        if unknown:
            pytest.fail(f"@pytest.mark.{name} takes {', '.join(allowed)} by name, not {unknown}", pytrace=False)
        found.update(marker.kwargs)
    return found
