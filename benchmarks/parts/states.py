"""Words per second with state that counts each word once, beside the same without and beside bytewax, in turn."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.corpus import Corpus, eight_a_line
from benchmarks.effort import Effort
from benchmarks.results import Part, throughput_rows
from benchmarks.rounds import Yardstick, alternate
from benchmarks.state_word_count import WORKERS, ExactOnSquall
from benchmarks.yardsticks import bytewax_state
from benchmarks.yardsticks.squall_word_count import OnSquall
from squall import LocalCluster

ROWS, BATCHES = "Squall, rows, in memory", "Squall, batches of lists, in memory"
COUNT, WINDOW = "bytewax, count_final, 2 processes", "bytewax, fold_window, 2 processes"
WINDOW_LINES, _WINDOW_TIMES = 4_000, 10
"""Of the text for windows, and times that Squall goes through them: bytewax takes tenths of a millisecond a word."""


def measure(effort: Effort) -> Part:
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as name, LocalCluster(slots_per_node=WORKERS) as cluster:
        corpus = Corpus.write(Path(name) / "text", eight_a_line()[: effort.lines])
        short = Corpus.write(Path(name) / "short", eight_a_line()[:WINDOW_LINES])
        plain, exact, times = OnSquall(cluster), ExactOnSquall(cluster), effort.repeat
        outcomes = alternate(
            [
                Yardstick(ROWS, plain.rows, WORKERS, times),
                Yardstick("Squall, rows, exact", exact.rows, WORKERS, times),
                Yardstick(BATCHES, plain.batches, WORKERS, 2 * times),
                Yardstick("Squall, batches of lists, exact", exact.batches, WORKERS, 2 * times),
                Yardstick("bytewax, count_final, 1 process", bytewax_state.run_count, 1, times),
                Yardstick(COUNT, bytewax_state.run_count, 2, times),
            ],
            corpus, effort.rounds,
        )
        outcomes += alternate(
            [
                Yardstick("Squall, windows of a second, exact", exact.windows, WORKERS, _WINDOW_TIMES * times),
                Yardstick("bytewax, fold_window, 1 process", bytewax_state.run_window, 1, 1),
                Yardstick(WINDOW, bytewax_state.run_window, 2, 1),
            ],
            short, effort.rounds,
        )
    return Part(
        title="State that counts once",
        about="Word counts whose counts survive any death, each word counted once, beside counts in memory; 2 workers, "
        f"{effort.rounds} rounds in turn.\nbytewax with recovery on (a snapshot a second): after a death it replays up "
        "to a second, and its output may come twice.\nWindows: each word in each second of event time.",
        header=["what", "M words/s", "least to most", "x rows", "x batches", "x count_final", "x fold_window"],
        rows=throughput_rows(outcomes, (ROWS, BATCHES, COUNT, WINDOW)),
    )
