"""Storm's REST API: read by the real streamparse, and with the keys that Storm's own pages ask for."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.needs import require
from tests.process.ui_parts import Served, served
from tests.process.waiting import wait_for
from tests.unit.source import ROOT

PYTHON = ROOT / "build" / "streamparse" / "bin" / "python"
STATS = {"emitted", "transferred", "acked", "failed"}


@pytest.fixture(scope="module")
def busy() -> Iterator[Served]:
    with served() as one:
        one.start("words")
        wait_for("tuples in every component", lambda: all(
            component["executed"] + component["acked"]
            for component in one.get("/api/squall/v1/topologies/words")["components"].values()
        ))
        yield one


def streamparse(one: Served, tmp_path: Path, code: str) -> dict[str, list[list[str]]]:
    """Run a command of streamparse's; returns the tables that it prints, by title."""
    require("streamparse")
    (tmp_path / "config.json").write_text(json.dumps({"envs": {"prod": {
        "user": "", "nimbus": "127.0.0.1", "use_ssh_for_nimbus": False, "ui.port": one.port, "workers": [],
    }}}))
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", f"from streamparse.cli import stats, worker_uptime, slot_usage\n{code}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={**os.environ, "no_proxy": "127.0.0.1", "NETRC": str(tmp_path / "netrc")},
    )
    assert done.returncode == 0, done.stderr
    tables: dict[str, list[list[str]]] = {}
    rows: list[list[str]] = []
    for line in done.stdout.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells:
            rows.append(cells)
        elif line.strip() and not line.startswith("+"):
            rows = tables.setdefault(line.strip("# "), [])
    return tables


def test_streamparse_shows_the_cluster(busy: Served, tmp_path: Path) -> None:
    tables = streamparse(busy, tmp_path, "stats.display_stats('prod')")
    [summary] = [rows for title, rows in tables.items() if title.startswith("Cluster")]
    assert "4" in summary[1]
    assert any("words" in row for rows in tables.values() for row in rows)
    assert any("node-2" in row for rows in tables.values() for row in rows)


def test_streamparse_shows_a_topology_and_its_components(busy: Served, tmp_path: Path) -> None:
    tables = streamparse(busy, tmp_path, "stats.display_stats('prod', topology_name='words')")
    cells = {row[0] for rows in tables.values() for row in rows}
    assert {"lines", "split", "count", "All time", "10m 0s", "3h 0m 0s", "1d 0h 0m 0s"} <= cells
    for component in ("lines", "split"):
        code = f"stats.display_stats('prod', topology_name='words', component_name={component!r})"
        assert streamparse(busy, tmp_path, code)


def test_streamparse_finds_its_token_in_netrc(tmp_path: Path) -> None:
    with served("--token", "a-token") as one:
        with pytest.raises(AssertionError, match="no token"):
            streamparse(one, tmp_path, "stats.display_stats('prod')")
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login squall password a-token\n")
        assert any("node-2" in row for rows in streamparse(one, tmp_path, "stats.display_stats('prod')").values()
                   for row in rows)


def test_streamparse_shows_workers_and_slots(busy: Served, tmp_path: Path) -> None:
    [uptimes] = streamparse(busy, tmp_path, "worker_uptime.display_worker_uptime('prod')").values()
    assert {row[0] for row in uptimes[1:]} == {"node-1", "node-2"}
    *_, usage = streamparse(busy, tmp_path, "slot_usage.display_slot_usage('prod')").values()
    assert usage[0] == ["Host", "words"]
    assert [row[0] for row in usage[1:]] == ["node-1", "node-2"]
    assert all(row[1].startswith("1 (") for row in usage[1:])


def test_pages_have_storms_keys(busy: Served) -> None:
    [row] = busy.get("/api/v1/topology/summary")["topologies"]
    page = busy.get(f"/api/v1/topology/{row['id']}?window=600&sys=true")
    assert row.keys() <= page.keys()
    assert [stats["window"] for stats in page["topologyStats"]] == ["600", "10800", "86400", ":all-time"]
    [spout] = page["spouts"]
    assert {*STATS, "spoutId", "completeLatency", "lastError", "errorTime"} <= spout.keys()
    assert {*STATS, "boltId", "executed", "executeLatency", "processLatency", "capacity"} <= page["bolts"][0].keys()
    assert float(spout["completeLatency"]) > 0
    component = busy.get(f"/api/v1/topology/{row['id']}/component/split")
    assert [executor["host"] for executor in component["executorStats"]] == ["node-1", "node-2"]
    assert component["inputStats"][0]["executed"] > 0
    metrics = busy.get(f"/api/v1/topology/{row['id']}/metrics")
    assert {bolt["id"] for bolt in metrics["bolts"]} == {"split", "count"}
    graph = busy.get(f"/api/v1/topology/{row['id']}/visualization")
    assert graph["count"][":inputs"][0][":component"] == "split"
    assert busy.get(f"/api/v1/topology/{row['id']}/visualization-init")["visualizationTable"]
    assert len(busy.get(f"/api/v1/topology-workers/{row['id']}")["hostPortList"]) == 2
    assert busy.get("/api/v1/supervisor?id=node-1")["workers"][0]["topologyName"] == "words"
    for path in ("cluster/configuration", "nimbus/summary", "history/summary", "owner-resources"):
        assert busy.get(f"/api/v1/{path}")


def test_a_mistake_is_what_it_is_in_storm(busy: Served) -> None:
    for path in ("topology/nobody-1", "log?file=../nimbus.db", "supervisor?id=nobody", "search?file=x"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            busy.get(f"/api/v1/{path}")
        with caught.value as answer:
            assert answer.code == 500
            assert json.load(answer).keys() == {"error", "errorMessage"}


def test_logs_are_listed_shown_and_searched(busy: Served) -> None:
    file, *_ = busy.get("/api/v1/listLogs")
    log = busy.cluster.run_dir.logs / file
    with log.open("a") as text:
        text.write("one needle and another needle\n")
    assert busy.text(f"/api/v1/log?file={quote(file, '')}").endswith("another needle\n")
    found = busy.get(f"/api/v1/search?file={quote(file, '')}&search-string=needle")
    assert [match["afterString"] for match in found["matches"]] == [" and another needle\n", "\n"]
    first = busy.get(f"/api/v1/search?file={quote(file, '')}&search-string=needle&num-matches=1")
    rest = busy.get(
        f"/api/v1/search?file={quote(file, '')}&search-string=needle&start-byte-offset={first['nextByteOffset']}"
    )
    assert first["matches"] + rest["matches"] == found["matches"] or len(rest["matches"]) == 1
    groups = busy.get(f"/api/v1/deepSearch/{file.partition('/')[0]}?search-string=needle")
    [deep] = [group for group in groups if group["matches"]]
    assert deep["matches"] == found["matches"]


def test_orders_are_taken_by_id(busy: Served) -> None:
    [row] = busy.get("/api/v1/topology/summary")["topologies"]
    for operation, path, status in (
        ("deactivate", "deactivate", "INACTIVE"), ("activate", "activate", "ACTIVE"),
        ("rebalance", "rebalance/5", "ACTIVE"), ("kill", "kill/0", "KILLED"),
    ):
        request = urllib.request.Request(f"{busy.address}/api/v1/topology/{row['id']}/{path}", method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            expected = {"topologyOperation": operation, "topologyId": row["id"], "status": "success"}
            assert json.load(answer) == expected
        wait_for(f"{operation}", lambda status=status: (
            not (looks := busy.get("/api/v1/topology/summary")["topologies"]) or looks[0]["status"] == status
        ))
