"""examples/website_monitoring/monitor.py: what it has in memory is bounded, and its figures do not depend on that."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from squall import Spout, TopologyBuilder
from squall.testing import complete_topology

MONITOR = Path(__file__).parents[2] / "examples" / "website_monitoring" / "monitor.py"
URLS, WINDOWS = ("/", "/cart", "/search"), 20


class Requests(Spout):
    outputs = ("origin", "at", "url", "status", "bytes", "ms")


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("website_monitor", MONITOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HOLD_TUPLES", 50)
    return module


def measured(monitor: ModuleType, requests: list[tuple[Any, ...]]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The last row of each window, and of each alarm."""
    builder = TopologyBuilder()
    builder.set_spout("requests", Requests())
    builder.set_bolt("measure", monitor.Measure()).fields_grouping("requests", "url").set_config(
        tick_tuple_freq_secs=monitor.TICK_SECS
    )
    made = complete_topology(builder.build(), {"requests": requests})
    windows = {(row[0], row[1]): row[2:] for row in made["measure"]}
    alarms = {row[:3]: row[3:6] for row in made["measure/alarms"]}
    return windows, alarms


def test_figures_are_the_same_however_few_windows_are_in_memory(
    monitor: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(7)
    requests = [
        (
            (1, number, 0), chance.randrange(WINDOWS) * monitor.WINDOW_SECS + number % 7, chance.choice(URLS),
            chance.choice((200, 200, 500)), 10, chance.choice((10, 3000)),
        )
        for number in range(3_000)
    ]
    windows, alarms = measured(monitor, requests)
    assert len(windows) == len(URLS) * WINDOWS
    assert sum(values[0] for values in windows.values()) == len(requests)
    assert alarms
    monkeypatch.setattr(monitor, "KEPT_WINDOWS", 2)
    sizes: list[int] = []
    commit = monitor.Measure.commit

    def watched(bolt: Any) -> None:
        commit(bolt)
        sizes.append(len(bolt.windows))

    monkeypatch.setattr(monitor.Measure, "commit", watched)
    assert measured(monitor, requests) == (windows, alarms)
    assert max(sizes) == 2
