"""Squall's pytest plugin: the fixture `squall_cluster`.

Guarantees: a test run that does not use the fixture imports no ZeroMQ and starts nothing. A test that uses it gets a
cluster of real processes of its own, and fails when it leaves any of it behind.

Registered by the entry point `pytest11`; `-p squall.testing.plugin` does it where Squall is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from squall.testing.fixture_cluster import FixtureCluster

MARKER = "squall_cluster"
DEFAULTS = {"nodes": 1, "slots_per_node": 2}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}(nodes=1, slots_per_node=2): how large the cluster of the fixture squall_cluster is"
    )


@pytest.fixture
def squall_cluster(request: pytest.FixtureRequest) -> Iterator[FixtureCluster]:
    """A LocalCluster of real processes, one node with two slots unless `@pytest.mark.squall_cluster(...)` says else.

    Components may be defined in the test's own module. When the test ends everything is closed; what is left then, by
    the cluster or by processes that components started, fails the test.
    """
    from squall.testing.fixture_cluster import FixtureCluster

    cluster = FixtureCluster(**_size_of(request), module=getattr(request, "module", None))
    yield cluster
    if left := cluster.end():
        pytest.fail("squall_cluster: this test left behind\n" + "\n".join(left), pytrace=False)


def _size_of(request: pytest.FixtureRequest) -> dict[str, int]:
    size = dict(DEFAULTS)
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        unknown = ", ".join([*map(repr, marker.args), *sorted(marker.kwargs.keys() - DEFAULTS.keys())])
        if unknown:
            pytest.fail(f"@pytest.mark.{MARKER} takes {', '.join(DEFAULTS)} by name, not {unknown}", pytrace=False)
        size.update(marker.kwargs)
    return size
