"""Open batches grow with the square of a topology's tasks: one that is empty holds no list of its own."""

from __future__ import annotations

import gc

from squall.engine.api.tuple import Run
from squall.engine.flow.batch import OpenBatch
from squall.engine.flow.outbox import Outbox


def lists_of(batch: OpenBatch) -> list[object]:
    return [each for each in gc.get_referents(batch) if isinstance(each, list)]


def test_an_empty_open_batch_has_no_lists() -> None:
    outbox, batch = Outbox(), OpenBatch(1, "default", 2, {2: 0})
    assert not lists_of(batch)
    for word in ("a", "b"):
        outbox.start_run(batch, word, [Run(7, 9, 1)], (word,))
        batch.rows.append((word,))
    assert lists_of(batch)
    taken = batch.take()
    assert (taken.rows, taken.starts, taken.roots) == ([("a",), ("b",)], [0, 1], [7, 7])
    assert not lists_of(batch)
    outbox.start_run(batch, "c", [Run(8, 9, 1)], ("c",))
    batch.rows.append(("c",))
    assert (batch.take().rows, taken.rows) == ([("c",)], [("a",), ("b",)])
