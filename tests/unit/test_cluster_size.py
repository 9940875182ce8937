"""Room for a cluster, by numbers: nothing is started here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.engine.errors import UsageError
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.cluster.size import check_cluster
from squall.scheduler.cluster.starting import start_cluster


@pytest.mark.parametrize(("nodes", "slots"), [(0, 4), (1, 0), (-1, -1), ("x", 1), (1, None), (1, 1.5)])
def test_less_than_one_is_none(nodes: Any, slots: Any) -> None:
    wrong = f"slots is {slots}" if nodes == 1 else f"nodes is {nodes!r}"
    check_cluster(1, 4)
    with pytest.raises(UsageError, match=f"^{wrong}; allowed: an integer from 1 up$"):
        check_cluster(nodes, slots)


def test_whatever_starts_a_cluster_asks_first(tmp_path: Path) -> None:
    for nodes, slots in ((10**8, 1), (1, 10**8), (0, 1)):
        with pytest.raises(UsageError, match=r"nodes|slots"):
            LocalCluster(nodes, slots, tmp_path / "run")
        with pytest.raises(UsageError, match=r"nodes|slots"):
            start_cluster(tmp_path / "run", nodes, slots)
    assert list(tmp_path.iterdir()) == []
