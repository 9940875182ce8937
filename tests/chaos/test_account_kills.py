"""Accounts that close when who counts is killed: the spout's own worker, alone and with its supervisor; a receiver."""

from __future__ import annotations

import random
from pathlib import Path

import psutil

from squall import Config, TopologyBuilder
from squall.cli.output import exit_code
from tests.process.conftest import SharedCluster
from tests.process.parts import Hangs, OneShot, notes
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for

PENDING = 20
COLUMNS = ("acked", "failed", "dead_letters", "waiting", "pending", "abandoned")


def test_the_account_closes_when_the_spouts_worker_is_killed_with_and_without_its_supervisor(
    cluster: Standing, tmp_path: Path, seed: int
) -> None:
    cluster.up(slots=2)
    cluster.ok("submit", f"{ENDLESS}:marked", "--name", "one", "--workers", "2", "--", tmp_path)
    chance = random.Random(seed)
    for with_supervisor in (False, True):
        progress = len(notes(str(tmp_path), "acked")) + chance.randrange(20, 200)
        wait_for("progress", lambda: len(notes(str(tmp_path), "acked")) >= progress)  # noqa: B023
        if with_supervisor:
            with cluster.keeper_held():
                worker = spouts_worker(cluster)
                cluster.supervisor("node-1").kill()
                psutil.Process(worker).kill()
        else:
            psutil.Process(spouts_worker(cluster)).kill()
    limit = len(done(tmp_path)) + 200
    (tmp_path / "limit.new").write_text(str(limit))
    (tmp_path / "limit.new").rename(tmp_path / "limit")
    wait_for("the end", lambda: cluster.described("one").drained)
    found = cluster.described("one")
    assert found.emitted == sum(getattr(found, name) for name in COLUMNS)
    assert (found.pending, found.waiting, found.dead_letters) == (0, 0, 0)
    # Each answer that the spout heard, in any of its lives, is counted, and no more than were under way at its deaths.
    heard = {name: len(notes(str(tmp_path), name)) for name in ("acked", "failed")}
    assert heard["acked"] >= len(done(tmp_path)) >= limit
    assert done(tmp_path) == set(range(len(done(tmp_path))))
    for name in ("acked", "failed"):
        assert 0 <= getattr(found, name) - heard[name] <= 2 * PENDING
    assert 0 < found.abandoned <= 2 * PENDING
    assert found.emitted <= len(done(tmp_path)) + 2 * PENDING
    assert found.restarts_total == 2


def done(directory: Path) -> set[int]:
    return {int(path.name.removeprefix("done-")) for path in directory.glob("done-*")}


def spouts_worker(cluster: Standing) -> int:
    def pid() -> int:
        found = cluster.described("one")
        place = next((row.worker for row in found.executors if row.component == "marked"), "")
        return next((row.pid for row in found.workers if (row.worker, row.state) == (place, "ready")), 0)

    return wait_for("the spout's worker", pid)


def test_what_a_killed_receiver_alone_knew_is_unknown_and_has_an_exit_code(
    shared_cluster: SharedCluster, tmp_path: Path
) -> None:
    builder = TopologyBuilder()
    builder.set_spout("spout", OneShot(str(tmp_path), 400, tracked=False))
    builder.set_bolt("slow", Hangs(str(tmp_path), victim=100)).shuffle_grouping("spout")
    job = shared_cluster.submit("t", builder.build(), Config(workers=2, ackers=0))
    wait_for("a tuple that is never executed", lambda: notes(str(tmp_path), "hung"))
    wait_for("the count of those before it", lambda: job.stats().untracked.delivered > 0)
    (slow,) = [reading.worker for reading in job.readings() if reading.component == "slow"]
    shared_cluster.inject("kill", slow)
    report = job.wait_until_drained(120)
    assert job.kill(0.0) == 0
    last = job.stats()
    assert report.untracked == last.untracked
    flow = report.components["slow"].untracked
    assert (report.untracked_emitted, flow.sent) == (400, 400)
    assert flow.sent == flow.delivered + flow.dropped + flow.unknown
    assert flow.delivered > 0
    assert flow.unknown > 0
    assert (report.emitted, report.acked, report.latency_ms.p50) == (0, 0, None)
    assert exit_code(report) == 4
