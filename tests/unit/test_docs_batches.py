"""The files that docs/batches.md shows, imported and run as a reader would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from squall.engine.build.builder import TopologyBuilder
from squall.testing import complete_topology
from tests.unit.batch_rig import DoesBatch
from tests.unit.docs_modules import modules_of

WORDS = "the cat\n\nand the hat\nthe end\n"


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    (tmp_path / "text.txt").write_text(WORDS)
    monkeypatch.chdir(tmp_path)
    with modules_of(tmp_path, monkeypatch, "docs/batches.md") as modules:
        yield modules


def test_both_versions_count_alike(shown: dict[str, ModuleType]) -> None:
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

    builder = TopologyBuilder()
    builder.set_spout("numbers", shown["spout"].Numbers())
    builder.set_bolt("picky", DoesBatch(refuses_once)).shuffle_grouping("numbers")
    found = complete_topology(builder.build())
    assert Counter(found["numbers"]) == Counter({(n,): 2 if n % 7 == 0 else 1 for n in range(1000)})
