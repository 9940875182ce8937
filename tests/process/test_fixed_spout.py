"""FixedSpout on real workers: crashes and pauses at places of its list, and what is emitted again after them."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall import ComponentError, Config, LocalCluster, TopologyBuilder, UsageError
from squall.testing import CRASH, PAUSE, FixedSpout, SimulatedCluster, wait_for
from tests.process.parts import Refuse, Seen, notes


def topology_of(spout: FixedSpout, directory: Path, parallelism: int = 1) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("spout", spout, parallelism=parallelism)
    builder.set_bolt("end", Seen(str(directory)), parallelism=2).shuffle_grouping("spout")
    return builder


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_crash_loses_nothing_and_happens_once(
    squall_cluster: LocalCluster, tmp_path: Path, parallelism: int
) -> None:
    spout = FixedSpout(("n",), [(0,), (1,), CRASH, (3,), CRASH, (5,)], tmp_path)
    topology = topology_of(spout, tmp_path, parallelism).build()
    job = squall_cluster.submit("crash", topology, Config(workers=2, message_timeout_secs=3600))
    report = job.wait_until_drained(120)
    assert [restart.reason for restart in report.restarts] == ["killed by SIGKILL"] * 2
    assert {n for _, n in notes(tmp_path, "seen")} == {0, 1, 3, 5}


def test_after_a_crash_it_goes_on_where_everything_before_was_acked(
    squall_cluster: LocalCluster, tmp_path: Path
) -> None:
    spout = FixedSpout(("n",), [(0,), (1,), PAUSE, CRASH, (4,)], tmp_path)
    job = squall_cluster.submit("goes-on", topology_of(spout, tmp_path).build(), Config(workers=2))
    assert spout.wait_until_paused() == 2
    wait_for("what came before to be acked", lambda: sum(r.counters["acked"] for r in job.readings()) >= 2)
    wait_for("idle workers", job.is_idle)
    assert {n for _, n in notes(tmp_path, "seen")} == {0, 1}
    spout.release()
    job.wait_until_drained(120)
    # Nothing twice: the position was kept.
    assert sorted(n for _, n in notes(tmp_path, "seen")) == [0, 1, 4]


def test_what_fails_is_emitted_again_also_while_it_is_paused(squall_cluster: LocalCluster, tmp_path: Path) -> None:
    directory = str(tmp_path)
    spout = FixedSpout(("n",), [(0,), (1,), PAUSE, (3,), PAUSE, (5,)], tmp_path)
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    builder.set_bolt("refuse", Refuse(directory, victim=1, how="fail")).shuffle_grouping("spout")
    builder.set_bolt("end", Seen(directory)).shuffle_grouping("refuse")
    job = squall_cluster.submit("again", builder.build(), Config(workers=2))
    for place, so_far in ((2, {0, 1}), (4, {0, 1, 3})):
        assert spout.wait_until_paused() == place
        wait_for("the tuples before", lambda: {n for _, n in notes(tmp_path, "seen")} == so_far)  # noqa: B023
        spout.release()
        assert spout.paused_at is None
    assert job.wait_until_drained(120).replayed == 1
    assert [n for _, n in notes(tmp_path, "seen")] == [0, 1, 3, 5]


def test_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not paused"):
        FixedSpout(("n",), [(0,), PAUSE], tmp_path).release()
    with pytest.raises(AssertionError, match="waited 0 s for the spout to pause"):
        FixedSpout(("n",), [(0,), PAUSE], tmp_path).wait_until_paused(0)


def test_a_crash_where_there_is_no_worker_process_is_refused(tmp_path: Path) -> None:
    spout = FixedSpout(("n",), [(0,), CRASH], tmp_path)
    with SimulatedCluster(topology_of(spout, tmp_path).build()) as cluster:
        with pytest.raises(Exception, match="CRASH would kill the process of the test itself") as caught:
            cluster.settle()
        assert isinstance(caught.value.__cause__, ComponentError)


def test_it_pauses_in_a_simulation_too(tmp_path: Path) -> None:
    spout = FixedSpout({"default": ("n",), "other": ("n",)}, {"default": [(0,), PAUSE, (2,)], "other": [[3]]}, tmp_path)
    builder = topology_of(spout, tmp_path)
    with SimulatedCluster(builder.build()) as cluster:
        cluster.settle()
        assert (spout.paused_at, cluster.emitted["spout"]) == (1, [(0,)])
        spout.release()
        assert cluster.run().acked == 3
        assert (cluster.emitted["spout"], cluster.emitted["spout/other"]) == ([(0,), (2,)], [(3,)])
