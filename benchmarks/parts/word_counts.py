"""Words per second of Squall and its yardsticks, on one text, in turn."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.corpus import Corpus, eight_a_line
from benchmarks.effort import Effort
from benchmarks.measured import Measured, Unavailable
from benchmarks.results import Part, Plot, bars_of, throughput_rows
from benchmarks.rounds import Yardstick, alternate
from benchmarks.yardsticks import (
    bare_queue,
    bytewax_flow,
    flink_job,
    plain_loop,
    ray_actors,
    spark_streaming,
)
from benchmarks.yardsticks.squall_word_count import OnSquall
from squall import LocalCluster

QUEUE = "multiprocessing.Queue, 512 words a put"
LOOP = "plain loop"
BYTEWAX = "bytewax, 1 process"
WORKERS = 2


def yardsticks(effort: Effort, cluster: LocalCluster) -> list[Yardstick]:
    squall, times = OnSquall(cluster), effort.repeat
    found = [
        Yardstick("Squall, rows, 1 worker", squall.rows, 1, times),
        Yardstick("Squall, rows, 2 workers", squall.rows, 2, 2 * times),
        Yardstick("Squall, rows, 2 workers, untracked", squall.rows_untracked, 2, 2 * times),
        Yardstick("Squall, batches of lists, 1 worker", squall.batches, 1, 4 * times),
        Yardstick("Squall, batches of lists, 2 workers", squall.batches, 2, 4 * times),
        Yardstick("Squall, batches of lists, 2 workers, untracked", squall.batches_untracked, 2, 4 * times),
        Yardstick("Squall, batches of Arrow, 2 workers", squall.arrow, 2, 6 * times),
        Yardstick(LOOP, plain_loop.run, 1, 2 * times),
        Yardstick(QUEUE, bare_queue.run, 2, 2 * times),
        Yardstick(BYTEWAX, bytewax_flow.run, 1, 1),
        Yardstick("bytewax, 2 processes", bytewax_flow.run, 2, 1),
    ]
    slow_starters = [
        Yardstick("Ray, 2 splitting and 2 counting actors", ray_actors.run, 2, 3 * times, rounds=2),
        Yardstick("PySpark structured streaming, SQL functions", spark_streaming.run, 2, 2 * times, rounds=1),
        Yardstick("PySpark structured streaming, Python function", spark_streaming.run_python, 2, 3, rounds=1),
        Yardstick("PyFlink, Python functions", flink_job.run, 2, 1, rounds=1),
    ]
    return found + [each if effort.peers else replace(each, run=_left_out) for each in slow_starters]


def _left_out(corpus: Corpus, workers: int, repeat: int) -> Measured:
    raise Unavailable("not by --quick, it takes ten seconds and more to start")


def measure(effort: Effort) -> Part:
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as name:
        corpus = Corpus.write(Path(name) / "text", eight_a_line()[: effort.lines])
        with LocalCluster(slots_per_node=WORKERS) as cluster:
            outcomes = alternate(yardsticks(effort, cluster), corpus, effort.rounds)
    return Part(
        title="Word count",
        about="8 words a line. Squall tracks every line to its ack, except where it says untracked; none of the others "
        "tracks anything.\nStarting is left out, and so are the first batches of PySpark and PyFlink. "
        f"{effort.rounds} rounds in turn; Ray is in at most two\nof them, PySpark and PyFlink in one.",
        header=["what", "M words/s", "least to most", "x loop", "x queue", "x bytewax"],
        rows=throughput_rows(outcomes, (LOOP, QUEUE, BYTEWAX)),
        plots=[Plot("word_counts", "Word count", "M words/s", "", bars=bars_of(outcomes))],
    )
