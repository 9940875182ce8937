"""examples/website_monitoring, from logs to the report: exact though a worker is killed, safe from bad clients."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from squall.cli.data.verify import verify_command
from squall.pipeline.prepare import prepare
from tests.process.cli import ROOT, squall
from tests.spark.pages import run_block

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = ROOT / "examples" / "website_monitoring"
REQUESTS = 40_000


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"website_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def equal(left: Path, right: Path, *options: str) -> dict[str, int]:
    done = CliRunner().invoke(verify_command, [str(left), str(right), "--json", *options], catch_exceptions=False)
    keys: dict[str, int] = json.loads(done.stdout)["keys"]
    return {kind: number for kind, number in keys.items() if number}


@pytest.mark.nightly
def test_logs_to_report_with_a_worker_killed_in_between(spark: SparkSession, tmp_path: Path) -> None:
    logs, base = tmp_path / "lo gs", tmp_path / "web"
    lines = program("make_logs").write_logs(logs, 1, REQUESTS, 7)
    odd = '10.0.0.1 - - [20/Nov/2026:12:00:00 +0000] "GET /<script>x</script>?<b> HTTP/1.1" 200 1 1000\n'
    (logs / "odd.log").write_text(odd)
    feed = prepare(logs, base / "feed", sql=EXAMPLE / "access.sql").manifest
    rows = feed.rows
    assert rows + feed.quarantined == lines + 1
    assert set(feed.quarantine_reasons) == {
        "empty", "not UTF-8", "not in Common Log Format with %D", "no such time", "no such status",
    }
    assert parquet.read_table(base / "feed/quarantine").num_rows == feed.quarantined

    done = squall(
        "run", EXAMPLE / "monitor.py", "--workers", "2", "--fault", "kill worker measure[0] after 5000 acked", "--json",
        "--", base,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["restarts"], "no worker was killed"
    assert "alarm: 2026-11-20 14:" in done.stderr
    program("expect").expect(spark, base)
    windows = parquet.read_table(base / "expected/windows").num_rows
    assert equal(base / "expected/windows", base / "windows", "--by", "url,window", "--last", "requests") == {
        "equal": windows
    }
    # Those that were taken back are not raised.
    report = program("report")
    report.final(spark.read.parquet(str(base / "alarms")), "url", "window", "kind").where("raised").drop(
        "raised"
    ).write.parquet(str(tmp_path / "raised"))
    alarms = parquet.read_table(base / "expected/alarms").num_rows
    assert alarms > 0
    assert equal(base / "expected/alarms", tmp_path / "raised", "--by", "url,window,kind") == {"equal": alarms}

    text = report.report(spark, base).read_text()
    assert "<script" not in text
    assert "&lt;script&gt;x" in text
    assert "://" not in text
    assert all(reason in text for reason in feed.quarantine_reasons)
    assert "<rect" in text, "no alarm is marked"
    daily = parquet.read_table(base / "report/daily").to_pylist()
    assert sum(row["requests"] for row in daily) == rows
    assert sum(row["alarms"] for row in daily) == alarms
    again = squall("run", EXAMPLE / "monitor.py", "--", base)
    assert (again.returncode, "has results already; remove it to begin anew" in again.stderr) == (2, True)


@pytest.mark.nightly
@pytest.mark.timeout(600)  # it starts Java four times
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```\n(.*?)^```$", (EXAMPLE / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    run_block(block, tmp_path)
