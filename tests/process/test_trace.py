"""`squall trace` and `squall tap` on a cluster, with workers, Nimbus and the spouts' own worker killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from squall.scheduler.client.standing import connect_to, job_named
from squall.scheduler.records.watches import WatchFiles
from squall.ui.watching import WatchDesk
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for


@pytest.fixture
def cluster(standing: Standing) -> Standing:
    standing.ok("submit", ENDLESS, "--name", "words", "--workers", "2")
    wait_for("acks", lambda: standing.described("words").acked > 0)
    return standing


def watches(cluster: Standing) -> list[Path]:
    return list((cluster.run_dir.durable / "watches").glob("*/*"))


def test_a_sample_shows_whole_trees_on_two_workers(cluster: Standing, tmp_path: Path) -> None:
    found = cluster.json("trace", "words", "--sample", "0.01", "--for", "0.3", "--perfetto", tmp_path / "trace.json")
    acked = [attempt for way in found["messages"] for attempt in way["attempts"] if attempt["outcome"] == "acked"]
    assert acked
    workers = {row.worker for row in cluster.described("words").executors}
    assert len(workers) == 2
    # On a busy machine, one worker may be late to write what another has answered.
    assert any(all(hop["execute_ms"] is not None for hop in attempt["hops"]) for attempt in acked)
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert watches(cluster) == []
    told = cluster.ok("trace", "words", "--sample", "0.01", "--for", "0.3")
    assert "acked after" in told
    assert "transport ms" in told


def test_one_message_is_followed_until_it_is_acked(cluster: Standing) -> None:
    """The ids of this spout count up, and begin anew with its worker."""
    [spout] = [row for row in cluster.described("words").executors if row.component == "numbers"]

    def killed() -> None:
        [pid] = [row.pid for row in cluster.described("words").workers if row.worker == spout.worker]
        os.kill(pid, signal.SIGKILL)

    with connect_to(str(cluster.path)) as client:
        desk = WatchDesk(lambda name: job_named(client, name))
        trace_id = desk.begin_trace("words", "5", 0.0, 60.0)
        killed()
        found = wait_for("the message", lambda: [
            attempt for way in desk.trace(trace_id)["messages"] for attempt in way["attempts"]
            if attempt["outcome"] == "acked"
        ])
        assert {hop["from"] for hop in found[0]["hops"]} >= {"numbers"}
        assert [way["message_id"] for way in desk.trace(trace_id)["messages"]] == ["5"]
        desk.close()
    assert watches(cluster) == []


def test_it_works_while_nimbus_is_away(cluster: Standing) -> None:
    with connect_to(str(cluster.path)) as client:
        job = job_named(client, "words")
        view = job.view()
        assert view is not None
        with cluster.keeper_held():
            cluster.nimbus().kill()
            files = WatchFiles(job.run_dir, job.id)
            request = files.begin(view.board, 60.0, component="numbers", most_per_sec=1000)
            wait_for("tuples", lambda: any(event[0] == "tuple" for event in files.events(request.id)))
            files.end(request.id)
        job.close()
    cluster.nimbus()


def test_a_tap_shows_tuples(cluster: Standing) -> None:
    rows = cluster.ok("tap", "words", "numbers", "--for", "0.3", "--json").splitlines()
    assert {json.loads(row)["component"] for row in rows} == {"numbers"}
    shown = cluster.ok("tap", "words", "numbers", "--for", "0.3", "--per-sec", "1")
    assert shown.startswith("numbers[")
    assert 0 < len(shown.splitlines()) <= 3


def test_mistakes_are_one_line(cluster: Standing) -> None:
    for line, code, said in (
        ("trace words", 2, "either --message-id ID or --sample SHARE"),
        ("trace nobody --sample 1", 2, "nobody"),
        ("trace words --message-id -1 --for 0.2", 1, "words emitted no message '-1' within 0.2 s"),
        ("tap words nobody", 2, "has no component 'nobody'; components: "),
    ):
        assert said in cluster.refused(code, *line.split())
