"""The files that docs/state.md, docs/windows.md and docs/batches.md show, imported and run as a reader would."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from squall.testing import complete_topology
from tests.docs.pages import Page
from tests.unit.batch_rig import DoesBatch
from tests.unit.wired import wired


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """Each block in Python of these pages is a file."""
    monkeypatch.chdir(tmp_path)
    files = []
    for page in map(Page, ("docs/state.md", "docs/windows.md", "docs/batches.md")):
        assert len(page.of("python")) == len(page.programs)
        page.save(tmp_path)
        files += [name.removesuffix(".py") for name in page.programs]
    monkeypatch.syspath_prepend(tmp_path)
    yield {file: importlib.import_module(file) for file in files}
    for file in files:
        del sys.modules[file]


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
    sink = shown["own_sink"].OneFileEach(tmp_path / "own")
    complete_topology(wired(lines=(shown["counted"].lines, 1), sink=(sink, 1, "global lines")).build())
    written = [row for path in (tmp_path / "own").iterdir() for row in json.loads(path.read_text())]
    assert sorted(written) == [["and the hat"], ["the cat"], ["the end"]]


def test_both_versions_count_alike(shown: dict[str, ModuleType]) -> None:
    Path("text.txt").write_text("the cat\n\nand the hat\nthe end\n")
    by_row = complete_topology(shown["rows"].topology())
    by_batch = complete_topology(shown["batches"].topology())
    assert {stream: Counter(rows) for stream, rows in by_row.items()} == {
        stream: Counter(rows) for stream, rows in by_batch.items()
    }
    assert ("the", 3) in by_batch["count"]


def test_the_spout_replays_what_failed(shown: dict[str, ModuleType]) -> None:
    failed: set[int] = set()

    def refuses_once(bolt: DoesBatch, batch: object, collector: object) -> None:
        for row, number in enumerate(batch["number"]):  # type: ignore[index]
            if number % 7 == 0 and number not in failed:
                failed.add(number)
                collector.fail(row)  # type: ignore[attr-defined]

    picky = (DoesBatch(refuses_once), 1, "shuffle numbers")
    found = complete_topology(wired(numbers=(shown["spout"].Numbers(), 1), picky=picky).build())
    assert Counter(found["numbers"]) == Counter({(n,): 2 if n % 7 == 0 else 1 for n in range(1000)})
