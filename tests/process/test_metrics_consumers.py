"""Storm's metrics consumers: classes of users that are handed what every task did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from squall import Config, ConfigError, DataPoint, MetricsConsumer, TaskInfo
from tests.process.conftest import SharedCluster
from tests.process.parts import note, notes
from tests.process.ui_parts import words
from tests.process.waiting import wait_for


class Noting(MetricsConsumer):
    def prepare(self, conf: Mapping[str, Any], argument: Any, context: Mapping[str, Any]) -> None:
        self.directory = argument
        note(self.directory, "prepared", [conf["topology.workers"], context["name"]])

    def handle_data_points(self, task_info: TaskInfo, data_points: Sequence[DataPoint]) -> None:
        values = {point.name: point.value for point in data_points}
        note(self.directory, task_info.src_component_id, [task_info.src_worker_host, values])

    def cleanup(self) -> None:
        note(self.directory, "cleaned", True)


class Broken(MetricsConsumer):
    def handle_data_points(self, task_info: TaskInfo, data_points: Sequence[DataPoint]) -> None:
        raise ValueError(f"cannot send {len(data_points)} points")


def test_consumers_get_what_every_task_did_and_end_no_worker(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    here = "tests.process.test_metrics_consumers"
    consumers = [
        {"class": f"{here}.Noting", "argument": str(tmp_path)}, f"{here}.Broken", f"{here}.Missing",
        "squall.LoggingMetricsConsumer",
    ]
    topology = words(metrics_consumers=consumers, metrics_interval_secs=0.2, log_level="info")
    job = shared_cluster.submit("words", topology)
    wait_for("several intervals", lambda: len(notes(tmp_path, "split")) > 20)
    report = job.stats()
    job.kill(0)
    text = shared_cluster.run_dir.worker_log(job.id, "node-1", 6700).read_text()
    assert notes(tmp_path, "prepared") == [[2, "words"]]
    assert notes(tmp_path, "cleaned") == [True]
    split = notes(tmp_path, "split")
    assert {host for host, _ in split} == {"node-1"}
    executed = sum(values["__execute-count"] for _, values in split)
    assert executed > 0
    assert sum(values.get("lines.seen", 0) for _, values in split) > 0
    assert split[-1][1]["size"].keys() == {"count", "mean"}
    assert any(values["__complete-latency"] > 0 for _, values in notes(tmp_path, "lines"))
    assert report.restarts == []
    assert "ValueError: cannot send" in text
    assert 1 <= text.count("ValueError: cannot send") <= 3  # at the first, tenth, hundredth time
    assert "Missing" in text
    assert "__execute-count" in text


@pytest.mark.parametrize("value", ["a.b", ["nodot"], [{"argument": 1}], [7]])
def test_what_names_no_class_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"package\.module\.Class"):
        Config(metrics_consumers=value)


def test_storms_key_and_its_maps_are_taken() -> None:
    given = [{"class": "a.B", "parallelism.hint": 1, "argument": {"x": 1}}, "c.D"]
    config = Config(**{"topology.metrics.consumer.register": given})
    assert [row["class"] for row in config.metrics_consumers] == ["a.B", "c.D"]
    assert [row["argument"] for row in config.metrics_consumers] == [{"x": 1}, None]
    assert Config(**config.to_dict()) == config
