"""A worker that lives and does nothing any more: replaced, and its death explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from squall import Config, TopologyBuilder
from tests.process import parts
from tests.process.conftest import SharedCluster

COUNT = 400
VICTIM = 100


@pytest.mark.parametrize(("kind", "limit", "reason", "first_line", "why"), [
    (parts.HangsLoop, "worker_timeout_secs", r"no progress for [\d.]+ s in bolt\[\d\]: killed by SIGKILL",
     "hung at File ", "worker died"),
    (parts.Hangs, "execute_timeout_secs", "exited with code 1",
     r".*bolt\[\d\] hung in execute for [\d.]+ s, execute_timeout_secs is 1$", "hung"),
], ids=["in the loop", "on a thread"])  # fmt: skip
def test_what_hangs_every_time_is_a_dead_letter_though_its_tree_times_out_first(
    shared_cluster: SharedCluster, tmp_path: Path, kind: type[parts.Hangs], limit: str, reason: str, first_line: str,
    why: str,
) -> None:
    """In the loop nobody sees which tuple it is. Its tree is not under way any more when the worker is replaced; the
    replay is. The report says where each worker hung."""
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), COUNT))
    # In another worker than the source: what it held is replayed, the rest flows.
    builder.set_bolt("bolt", kind(str(tmp_path), victim=VICTIM, times=1000)).shuffle_grouping("source")
    config = Config(workers=2, max_crashes=2, message_timeout_secs=0.7, **{limit: 1})
    report = shared_cluster.run(builder.build(), config)
    assert set(parts.notes(tmp_path, "acked")) == set(range(COUNT)) - {VICTIM}
    assert report.dead_letters == 1
    (dead,) = parts.notes(tmp_path, "dead")
    assert dead[:2] == [VICTIM, why]
    assert len(report.restarts) >= 2
    # On a slow machine another worker may stand still for as long, too.
    death = next(death for death in report.restarts if re.fullmatch(reason, death.reason) and death.error)
    assert death.rss_bytes > 10 << 20
    first, *stack = death.error.splitlines()
    assert re.match(first_line, first)
    assert any("in execute" in line and "parts.py" in line for line in stack)


def test_who_is_slow_but_below_its_limits_is_left_alone(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    """The limits are one tuple's: a batch takes several times as long, in the loop as on a thread of its own."""
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), 60))
    builder.set_bolt("works", parts.HangsLoop(str(tmp_path), secs=0.05)).shuffle_grouping("source")
    builder.set_bolt("waits", parts.Hangs(str(tmp_path), secs=0.05)).shuffle_grouping("source")
    config = Config(workers=2, worker_timeout_secs=2, execute_timeout_secs=2, message_timeout_secs=600)
    report = shared_cluster.run(builder.build(), config)
    assert (report.acked, report.failed, report.restarts) == (60, 0, [])
