"""Room for a cluster, by numbers: nothing is started here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.engine.errors import UsageError
from squall.scheduler.cluster import size
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.cluster.size import available_mb, check_cluster, check_workers
from squall.scheduler.cluster.starting import start_cluster


def test_memory_bounds_nodes_and_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "available_mb", lambda: 1024)
    check_cluster(10, 1)
    check_cluster(1, 30)
    check_workers(10, 10)
    for nodes, slots in ((11, 1), (1, 31), (100_000, 4)):
        with pytest.raises(UsageError, match=rf"^nodes is {nodes}, .* takes \d+ MB of memory, and 1024 MB are av"):
            check_cluster(nodes, slots)
    with pytest.raises(UsageError, match="with 3 slots each"):
        check_workers(30, 10)


def test_the_default_cluster_is_never_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "available_mb", lambda: 0)
    check_cluster(1, 4)
    monkeypatch.undo()
    assert available_mb() > 0


@pytest.mark.parametrize(("nodes", "slots"), [(0, 4), (1, 0), (-1, -1), ("x", 1), (1, None), (1, 1.5)])
def test_less_than_one_is_none(nodes: Any, slots: Any) -> None:
    wrong = f"slots is {slots}" if nodes == 1 else f"nodes is {nodes!r}"
    with pytest.raises(UsageError, match=f"^{wrong}; allowed: an integer from 1 up$"):
        check_cluster(nodes, slots)


def test_whatever_starts_a_cluster_asks_first(tmp_path: Path) -> None:
    for nodes, slots in ((10**8, 1), (1, 10**8), (0, 1)):
        with pytest.raises(UsageError, match=r"nodes|slots"):
            LocalCluster(nodes, slots, tmp_path / "run")
        with pytest.raises(UsageError, match=r"nodes|slots"):
            start_cluster(tmp_path / "run", nodes, slots)
    assert list(tmp_path.iterdir()) == []
