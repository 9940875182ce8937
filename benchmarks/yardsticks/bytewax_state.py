"""Exact counts in bytewax, with recovery on: `count_final` and `fold_window`, in one process or several.

Snapshots are taken each second; a kill in between replays up to a second, and what was written may be written twice.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.corpus import Corpus
    from benchmarks.measured import Measured

BATCH = 256
"""Lines from the source at a time."""
LINES_PER_SEC = 10_000
"""Of event time, in each process."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def run(kind: str, corpus: Corpus, workers: int, repeat: int) -> Measured:
    from benchmarks.yardsticks.apart import need, run_apart

    return run_apart("bytewax_state", corpus, f"{kind}:{workers}", repeat, need("bytewax"))


run_count = partial(run, "count")
run_window = partial(run, "window")


def flow_of(kind: str, shares: list[list[str]], totals: list[int]) -> Any:
    """Its sink adds the counts that it gets to `totals`."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import DynamicSource, StatelessSourcePartition
    from bytewax.operators import windowing
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    class Share(StatelessSourcePartition[Any]):
        def __init__(self, lines: list[str]) -> None:
            self.lines = lines
            self.next = 0

        def next_batch(self) -> list[Any]:
            begin, self.next = self.next, self.next + BATCH
            if begin >= len(self.lines):
                raise StopIteration
            lines = self.lines[begin : self.next]
            if kind == "count":
                return lines
            return [
                (line, BEGIN + timedelta(seconds=number / LINES_PER_SEC)) for number, line in enumerate(lines, begin)
            ]

    class Lines(DynamicSource[Any]):
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Share:
            return Share(shares[worker_index])

    class Add(StatelessSinkPartition[Any]):
        def write_batch(self, items: Iterable[Any]) -> None:
            totals[0] += sum(count if kind == "count" else count[1] for _, count in items)

    class AddSink(DynamicSink[Any]):
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Add:
            return Add()

    flow = Dataflow("exact_counts")
    lines = op.input("lines", flow, Lines())
    if kind == "count":
        words = op.flat_map("split", lines, str.split)
        op.output("out", op.count_final("count", words, lambda word: word), AddSink())
        return flow
    timed = op.flat_map("split", lines, lambda pair: [(word, pair[1]) for word in pair[0].split()])
    keyed = op.key_on("key", timed, lambda pair: pair[0])
    found = windowing.fold_window(
        # Its clock would go on beside the time of the events, and make them late.
        "count", keyed, windowing.EventClock(lambda pair: pair[1], timedelta(seconds=1), now_getter=lambda: BEGIN),
        windowing.TumblingWindower(timedelta(seconds=1), BEGIN), int, lambda count, _: count + 1,
        lambda one, other: one + other,
    )
    op.output("out", found.down, AddSink())
    return flow


def _process(index: int, addresses: list[str], directory: str, make: Callable[[list[int]], Any], outcome: Any) -> None:
    from bytewax.recovery import RecoveryConfig
    from bytewax.testing import cluster_main

    totals = [0]
    flow = make(totals)
    began = time.monotonic()
    cluster_main(
        flow, addresses, index, epoch_interval=timedelta(seconds=1), recovery_config=RecoveryConfig(Path(directory))
    )
    outcome.put((began, time.monotonic(), totals[0]))


def main(path: str, kind: str, workers: int, repeat: int) -> None:
    from bytewax.recovery import init_db_dir

    lines = Path(path).read_text(encoding="utf-8").split("\n") * repeat
    shares = [lines[index::workers] for index in range(workers)]
    context = multiprocessing.get_context("fork")
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets] if workers > 1 else []
    for each in sockets:
        each.close()
    outcome: Any = context.Queue()
    with tempfile.TemporaryDirectory() as directory:
        init_db_dir(Path(directory), workers)
        make = partial(flow_of, kind, shares)
        processes = [
            context.Process(target=_process, args=(index, addresses, directory, make, outcome))
            for index in range(workers)
        ]
        for process in processes:
            process.start()
        found = [outcome.get() for _ in processes]
        for process in processes:
            process.join()
    secs = max(end for _, end, _ in found) - min(began for began, _, _ in found)
    print(json.dumps((secs, len(lines), sum(total for _, _, total in found))))


if __name__ == "__main__":
    what, processes = sys.argv[2].split(":")
    main(sys.argv[1], what, int(processes), int(sys.argv[3]))
