"""Room for a cluster, by numbers: nothing is started here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.engine.errors import UsageError
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.cluster.size import Machine, check_cluster, check_workers, node_limit, slot_limit, this_machine
from squall.scheduler.cluster.starting import start_cluster

GB = 1 << 30
ROOMY = Machine(16 * GB, 100_000, 100_000)


def test_memory_bounds_nodes_and_slots() -> None:
    assert node_limit(ROOMY).most == 16 * 1024 // 96
    assert slot_limit(ROOMY, 1).most == (16 * 1024 - 64) // 32
    assert slot_limit(ROOMY, 2).most == (16 * 1024 - 128) // 64
    check_cluster(170, 1, ROOMY)
    with pytest.raises(UsageError) as caught:
        check_cluster(100_000, 4, ROOMY)
    assert str(caught.value) == (
        "nodes is 100000; allowed: 1 to 170, because 16384 MB of memory are available for them, and "
        "a node with one worker takes 96 MB"
    )
    with pytest.raises(UsageError) as caught:
        check_cluster(2, 1_000_000, ROOMY)
    assert str(caught.value) == (
        "slots per node is 1000000; allowed: 1 to 254, because 16256 MB of memory are available for "
        "them, and a worker on each of 2 nodes takes 64 MB"
    )


@pytest.mark.parametrize(
    ("machine", "nodes", "slots", "reason"),
    [
        (ROOMY._replace(threads=88), 10, 19, "threads are allowed for them, and a"),
        (ROOMY._replace(descriptors=72), 10, 10, "a process may open 72 files, and "),
        (Machine(1 << 50, 1 << 30, 1 << 30), 11184810, 58836, ""),
    ],
)
def test_other_limits_bound_them_too(machine: Machine, nodes: int, slots: int, reason: str) -> None:
    assert (node_limit(machine).most, slot_limit(machine, 1).most) == (nodes, slots)
    check_cluster(1, slots, machine)
    with pytest.raises(UsageError, match=reason or "ports are numbered from 6700 to 65535"):
        check_cluster(1, slots + 1, machine)
    with pytest.raises(UsageError, match=reason or "of memory"):
        check_cluster(nodes + 1, 1, machine)


def test_workers_are_bounded_over_all_nodes() -> None:
    check_workers(508, 2, ROOMY)
    with pytest.raises(UsageError, match="workers is 509; allowed: 1 to 508, because 16256 MB of memory"):
        check_workers(509, 2, ROOMY)
    with pytest.raises(UsageError, match="nodes is 171; allowed: 1 to 170,"):
        check_workers(1, 171, ROOMY)


@pytest.mark.parametrize("full", [Machine(0, 1, 48), Machine(1 << 20, 0, 1000)])
def test_the_default_cluster_is_not_refused_for_memory_or_threads(full: Machine) -> None:
    check_cluster(1, 4, full)
    for nodes, slots in ((2, 1), (1, 5)):
        with pytest.raises(UsageError, match=r"is \d+; allowed: 1 to \d+, because "):
            check_cluster(nodes, slots, full)


def test_without_descriptors_no_cluster_is_started() -> None:
    needs = "a process may open {} files, and {} needs 32 and 4 for each"
    fewer = needs.format(47, "a supervisor")
    with pytest.raises(UsageError, match=f"^workers is 4; allowed: 1 to 3, because {fewer} worker$"):
        check_workers(4, 1, ROOMY._replace(descriptors=47))
    none = needs.format(20, "Nimbus")
    for check in (check_cluster, check_workers):
        with pytest.raises(UsageError, match=f"^nodes is 1; not even one can be started, because {none} node$"):
            check(1, 1, ROOMY._replace(descriptors=20))


@pytest.mark.parametrize(("nodes", "slots"), [(0, 4), (1, 0), (-1, -1), ("x", 1), (1, None), (1, 1.5)])
def test_less_than_one_is_none(nodes: Any, slots: Any) -> None:
    wrong = f"slots is {slots}" if nodes == 1 else f"nodes is {nodes!r}"
    with pytest.raises(UsageError, match=f"^{wrong}; allowed: an integer from 1 up$"):
        check_cluster(nodes, slots, ROOMY)


def test_this_machine_has_room_for_a_small_one() -> None:
    check_cluster(1, 4, this_machine())
    assert min(this_machine()) > 0


def test_whatever_starts_a_cluster_asks_first(tmp_path: Path) -> None:
    for nodes, slots in ((10**8, 1), (1, 10**8), (0, 1)):
        with pytest.raises(UsageError, match=r"nodes|slots"):
            LocalCluster(nodes, slots, tmp_path / "run")
        with pytest.raises(UsageError, match=r"nodes|slots"):
            start_cluster(tmp_path / "run", nodes, slots)
    assert list(tmp_path.iterdir()) == []
