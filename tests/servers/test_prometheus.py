"""/metrics as a real Prometheus reads it, and as its checker judges it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from squall.ui.measured import FAMILIES
from tests.needs import require
from tests.process.ui_parts import Served, served
from tests.process.waiting import wait_for
from tests.unit.source import ROOT


@pytest.fixture(scope="module")
def busy() -> Iterator[Served]:
    with served() as one:
        one.start("words")
        wait_for("acks", lambda: one.get("/api/squall/v1/topologies/words")["acked"])
        yield one


def program(name: str) -> str:
    require("prometheus")
    return str(shutil.which(name))


def test_every_metric_is_given_and_described_and_the_checker_has_nothing_to_say(busy: Served) -> None:
    given = busy.text("/metrics")
    command = [program("promtool"), "check", "metrics"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    described = re.findall(r"^# TYPE (\S+) (\S+)$", given, re.MULTILINE)
    ours = {name: kind for name, kind in described if not name.startswith("squall_user_")}
    assert ours == {name: kind for name, (kind, _, _) in FAMILIES.items()}
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(squall_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    shown = {name: (kind, text, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, text, labels in rows}
    assert shown == FAMILIES


def test_a_real_server_scrapes_it(busy: Served, tmp_path: Path) -> None:
    config = {"scrape_configs": [{
        "job_name": "squall", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{busy.port}"]}],
    }]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        program("prometheus"), f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]

    def ask(query: str) -> list[dict[str, Any]]:
        address = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return list(json.load(answer)["data"]["result"])
        except OSError:
            return []

    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            wait_for("a rate", lambda: ask("sum by (component) (rate(squall_executed_tuples_total[10s])) > 0"))
            [quantile] = ask(
                "histogram_quantile(0.5, sum by (le) (squall_complete_latency_seconds_bucket{component='lines'}))"
            )
            assert 0 < float(quantile["value"][1]) < 60
            [seen, alike] = sorted(
                float(one["value"][1]) for one in ask("sum by (name) (squall_user_lines_seen_total)")
            )
            assert alike == 2 * seen > 0
            assert ask("squall_user_size_distribution_bucket{component='split', le='16.0'}")
            assert {one["metric"]["daemon"] for one in ask("squall_daemon_resident_memory_bytes")} == {
                "nimbus", "keeper", "supervisor-node-1", "supervisor-node-2"
            }
            workers = ask("squall_worker_cpu_seconds_total{topology='words'}")
            assert len(workers) == len(ask("squall_worker_resident_memory_bytes")) == 2
        finally:
            server.terminate()
