"""The word count in bytewax, in one process or several, without tracking."""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.corpus import Corpus
    from benchmarks.measured import Measured

BATCH = 256
"""Lines from the source at a time."""


def run(corpus: Corpus, workers: int, repeat: int) -> Measured:
    from benchmarks.yardsticks.apart import need, run_apart

    return run_apart("bytewax_flow", corpus, workers, repeat, need("bytewax"))


def flow_of(shares: list[list[str]], totals: list[int]) -> Any:
    """Its sink adds to `totals` the words of this process."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import DynamicSource, StatelessSourcePartition
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    class Share(StatelessSourcePartition[str]):
        def __init__(self, lines: list[str]) -> None:
            self.lines = lines
            self.next = 0

        def next_batch(self) -> list[str]:
            begin = self.next
            if begin >= len(self.lines):
                raise StopIteration
            self.next = begin + BATCH
            return self.lines[begin : self.next]

    class Lines(DynamicSource[str]):
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Share:
            return Share(shares[worker_index])

    class Discard(StatelessSinkPartition[Any]):
        def write_batch(self, items: Iterable[Any]) -> None:
            totals[0] += sum(1 for _ in items)

    class DiscardSink(DynamicSink[Any]):
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Discard:
            return Discard()

    def count(state: int | None, word: str) -> tuple[int, int]:
        now = (state or 0) + 1
        return now, now

    flow = Dataflow("word_count")
    words = op.flat_map("split", op.input("lines", flow, Lines()), str.split)
    keyed = op.key_on("key", words, lambda word: word)
    op.output("out", op.stateful_map("count", keyed, count), DiscardSink())
    return flow


def _process(index: int, addresses: list[str], shares: list[list[str]], outcome: Any) -> None:
    from bytewax.testing import cluster_main

    totals = [0]
    flow = flow_of(shares, totals)
    began = time.monotonic()
    cluster_main(flow, addresses, index)
    outcome.put((began, time.monotonic(), totals[0]))


def main(path: str, workers: int, repeat: int) -> None:
    lines = Path(path).read_text(encoding="utf-8").split("\n") * repeat
    shares = [lines[index::workers] for index in range(workers)]
    if workers == 1:
        from bytewax.testing import run_main

        totals = [0]
        flow = flow_of(shares, totals)
        began = time.perf_counter()
        run_main(flow)
        print(json.dumps((time.perf_counter() - began, len(lines), totals[0])))
        return
    context = multiprocessing.get_context("fork")
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    outcome: Any = context.Queue()
    processes = [
        context.Process(target=_process, args=(index, addresses, shares, outcome)) for index in range(workers)
    ]
    for process in processes:
        process.start()
    found = [outcome.get() for _ in processes]
    for process in processes:
        process.join()
    secs = max(end for _, end, _ in found) - min(began for began, _, _ in found)
    print(json.dumps((secs, len(lines), sum(total for _, _, total in found))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
