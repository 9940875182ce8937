"""The same word count in bytewax, in one process and without tracking. Run as a program: prints its seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import TestingSource, run_main


class _Discard(StatelessSinkPartition[Any]):
    def write_batch(self, items: Iterable[Any]) -> None:
        for _ in items:
            pass


class _DiscardSink(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Discard:
        return _Discard()


def _count(state: int | None, word: str) -> tuple[int, int]:
    count = (state or 0) + 1
    return count, count


def main() -> None:
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").split("\n") * int(sys.argv[2])
    flow = Dataflow("word_count")
    source = op.input("lines", flow, TestingSource(lines, batch_size=256))
    words = op.flat_map("split", source, str.split)
    keyed = op.key_on("key", words, lambda word: word)
    counts = op.stateful_map("count", keyed, _count)
    op.output("out", counts, _DiscardSink())
    began = time.perf_counter()
    run_main(flow)
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main()
