"""The files that docs/batches.md, docs/state.md and docs/windows.md show, imported and run as a reader would."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from squall.testing import complete_topology
from tests.unit.batch_rig import DoesBatch
from tests.unit.rig import chain

DOCS = Path(__file__).parents[2] / "docs"
PAGES = "".join((DOCS / f"{name}.md").read_text() for name in ("batches", "state", "windows"))
BLOCKS = dict(re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```$", PAGES, re.DOTALL | re.MULTILINE))


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The modules of the pages."""
    (tmp_path / "text.txt").write_text("the cat\n\nand the hat\nthe end\n")
    for name, text in BLOCKS.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield {name: importlib.import_module(name) for name in BLOCKS}
    for name in BLOCKS:
        del sys.modules[name]


def test_every_python_block_is_a_file() -> None:
    assert PAGES.count("```python\n") == len(BLOCKS) == 9


def test_a_version_by_rows_and_one_by_batches_count_alike(shown: dict[str, ModuleType]) -> None:
    by_row, by_batch = (complete_topology(shown[name].topology()) for name in ("rows", "batches"))
    assert {stream: Counter(rows) for stream, rows in by_row.items()} == {
        stream: Counter(rows) for stream, rows in by_batch.items()
    }
    assert ("the", 3) in by_batch["count"]


def test_the_spout_of_batches_replays_what_failed(shown: dict[str, ModuleType]) -> None:
    def refuses_once(bolt: DoesBatch, batch: Any, collector: Any) -> None:
        for row, number in enumerate(batch["number"]):
            if number % 7 == 0 and bolt.own.count((number,)) == 1:
                collector.fail(row)

    topology = chain(shown["spout"].Numbers(), DoesBatch(refuses_once)).build()  # type: ignore[arg-type]
    found = complete_topology(topology)["spout"]
    assert Counter(found) == Counter({(n,): 2 if n % 7 == 0 else 1 for n in range(1000)})


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
    complete_topology(chain(shown["counted"].lines, shown["own_sink"].OneFileEach(tmp_path / "own")).build())
    written = [row for path in (tmp_path / "own").iterdir() for row in json.loads(path.read_text())]
    assert sorted(written) == [["and the hat"], ["the cat"], ["the end"]]
