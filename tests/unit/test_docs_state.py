"""The files that docs/state.md and docs/windows.md show, imported and run as a reader would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from squall import TopologyBuilder
from squall.testing import complete_topology
from tests.unit.docs_modules import modules_of


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    with modules_of(tmp_path, monkeypatch, "docs/state.md", "docs/windows.md") as modules:
        yield modules


def test_words_are_counted(shown: dict[str, ModuleType]) -> None:
    counted = complete_topology(shown["counted"].topology())["count"]
    assert sorted(counted) == [("and", 1), ("cat", 1), ("end", 1), ("hat", 1), ("the", 1), ("the", 2), ("the", 3)]


def test_each_second_has_its_counts(shown: dict[str, ModuleType]) -> None:
    counted = complete_topology(shown["per_second"].topology())["count"]
    assert sum(count for _, count, _ in counted) == 40
    assert {until for _, _, until in counted} == {1.0, 2.0, 3.0, 4.0}


def test_orders_meet_their_payments(shown: dict[str, ModuleType]) -> None:
    joined = complete_topology(shown["joined"].topology())["join"]
    assert sorted(joined) == [(1, "ann", 20), (2, "bob", None), (3, "ann", 5)]


def test_the_short_way_writes_the_same(shown: dict[str, ModuleType], tmp_path: Path) -> None:
    complete_topology(shown["short"].topology([str(tmp_path / "out")]))
    lines = [json.loads(line) for path in (tmp_path / "out").iterdir() for line in path.read_text().splitlines()]
    assert max(line["count"] for line in lines if line["word"] == "the") == 3
    assert len(lines) == 7


def test_what_is_late_for_windows_is_a_stream(shown: dict[str, ModuleType]) -> None:
    found = complete_topology(shown["late"].topology())
    assert (found["count"], found["count/late"]) == ([("home", 2, 1, 2), ("news", 1, 2, 3)], [])


def test_a_sink_of_ones_own_writes_each_tuple(shown: dict[str, ModuleType], tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", shown["counted"].lines)
    builder.set_bolt("sink", shown["own_sink"].OneFileEach(tmp_path / "own")).global_grouping("lines")
    complete_topology(builder.build())
    written = [row for path in (tmp_path / "own").iterdir() for row in json.loads(path.read_text())]
    assert sorted(written) == [["and the hat"], ["the cat"], ["the end"]]
