"""How long a line takes from the moment it is due to its ack, at shares of the rate that is sustained at most."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.batch_word_count import PENDING, PacedLines, batch_run, batch_word_count
from benchmarks.corpus import Corpus, eight_a_line
from benchmarks.drained import run_until_drained
from benchmarks.effort import Effort
from benchmarks.paced import Latency, Pace, read_histogram
from benchmarks.results import Curve, Part, Plot
from benchmarks.rounds import say
from benchmarks.state_word_count import Count, state_topology
from benchmarks.word_count import PacedSpout, squall_run, word_count
from squall import Config, LocalCluster, Topology

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
QUICK_SHARES = (0.5,)
WORKERS = 2
_ROWS_A_BATCH = 32
_Topology = Callable[[str, int, Pace], tuple[Topology, Config]]


def measure(effort: Effort) -> Part:
    with (
        tempfile.TemporaryDirectory(prefix="squall-bench-") as name,
        LocalCluster(slots_per_node=WORKERS) as cluster,
    ):
        corpus = Corpus.write(Path(name) / "text", eight_a_line()[: effort.lines])
        times = 2 * effort.repeat
        rows_full = corpus.lines * times / squall_run(corpus.path, WORKERS, times, cluster=cluster)[0]
        batches_full = corpus.lines * 2 * times / batch_run(corpus.path, WORKERS, 2 * times, cluster=cluster)[0]
        exact = run_until_drained(state_topology(str(corpus.path), times), Config(workers=WORKERS), cluster=cluster)[0]
        ways: dict[str, tuple[float, _Topology]] = {
            "rows": (rows_full, _by_rows),
            "rows, exact": (corpus.lines * times / exact, _by_exact_rows),
            f"batches of at most {_ROWS_A_BATCH}": (rows_full, _by_small_batches),
            "batches as due": (batches_full, _by_batches),
        }
        found = {way: _curve(cluster, full, effort, topology) for way, (full, topology) in ways.items()}
    rows = [
        [way, f"{share:.0%}", f"{rate / 1e3:.0f}", *(f"{ms:.2f} ms" for ms in (at.p50, at.p90, at.p99, at.p999))]
        for way, points in found.items()
        for share, rate, at in points
    ]
    curves = [
        Curve(f"{way}, {name}", [rate / 1e3 for _, rate, _ in points], [getattr(at, name) for _, _, at in points])
        for way, points in found.items()
        for name in ("p50", "p99")
    ]
    return Part(
        title="Latency",
        about=f"From the moment a line is due to its ack, however late it is emitted; {WORKERS} workers, 8 words a "
        f"line, for {effort.paced_secs:g} s after\n{effort.warm_up_secs:g} s of warm-up. Small batches are measured at "
        "shares of the rows' highest rate.\nOne run of each load.",
        header=["emitted as", "load", "k lines/s", "p50", "p90", "p99", "p99.9"],
        rows=rows,
        plots=[Plot("latency", "From due to acked", "k lines/s", "ms", curves, log=True)],
    )


def _curve(
    cluster: LocalCluster, full: float, effort: Effort, topology: _Topology
) -> list[tuple[float, float, Latency]]:
    """Share, lines per second and latency of one paced run for each share."""
    found = []
    for share in QUICK_SHARES if effort.quick else SHARES:
        rate = share * full
        lines = eight_a_line()
        wanted = round(rate * (effort.warm_up_secs + effort.paced_secs))
        times = math.ceil(wanted / len(lines))
        with tempfile.TemporaryDirectory(prefix="squall-paced-") as name:
            text = Path(name) / "text"
            text.write_text("\n".join(lines[: wanted // times]), encoding="utf-8")
            pace = Pace(rate, effort.warm_up_secs, name)
            run_until_drained(*topology(str(text), times, pace), cluster=cluster)
            latency = Latency.of(read_histogram(Path(name)))
        say(f"{topology.__name__.strip('_')} at {rate / 1e3:.0f} k lines/s: {latency}")
        found.append((share, rate, latency))
    return found


def _by_rows(path: str, repeat: int, pace: Pace) -> tuple[Topology, Config]:
    return word_count(PacedSpout(path, repeat, pace), WORKERS), Config(workers=WORKERS)


def _by_exact_rows(path: str, repeat: int, pace: Pace) -> tuple[Topology, Config]:
    return word_count(PacedSpout(path, repeat, pace), WORKERS, count=Count), Config(workers=WORKERS)


def _by_small_batches(path: str, repeat: int, pace: Pace) -> tuple[Topology, Config]:
    spout = PacedLines(path, repeat, pace, _ROWS_A_BATCH)
    return batch_word_count(spout, WORKERS), Config(workers=WORKERS, max_spout_pending=PENDING)


def _by_batches(path: str, repeat: int, pace: Pace) -> tuple[Topology, Config]:
    spout = PacedLines(path, repeat, pace, PENDING)
    return batch_word_count(spout, WORKERS), Config(workers=WORKERS, max_spout_pending=PENDING)
