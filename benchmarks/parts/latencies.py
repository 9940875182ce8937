"""How long a line takes from the moment it is due to its ack, at shares of the rate that is sustained at most."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.batch_word_count import PENDING, PacedLines, batch_run, batch_word_count
from benchmarks.corpus import Corpus, library_lines, rewrapped
from benchmarks.drained import run_until_drained
from benchmarks.effort import Effort
from benchmarks.paced import WARM_UP_SECS, Latency, read_histogram
from benchmarks.results import Curve, Part, Plot
from benchmarks.rounds import say
from benchmarks.word_count import PacedSpout, squall_run, word_count
from squall import Config, Topology

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
WORKERS = 2
_ROWS_A_BATCH = 32


def measure(effort: Effort) -> Part:
    shares = (0.1, 0.5) if effort.quick else SHARES
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as name:
        corpus = Corpus.write(Path(name) / "text", rewrapped(library_lines()))
        rows_full = corpus.lines / squall_run(corpus.path, WORKERS, 1)[0]
        batches_full = corpus.lines * 4 / batch_run(corpus.path, WORKERS, 4)[0]
        found = {
            "rows": _curve(corpus, rows_full, shares, effort, _by_rows),
            f"batches of at most {_ROWS_A_BATCH}": _curve(corpus, rows_full, shares, effort, _by_small_batches),
            "batches as due": _curve(corpus, batches_full, shares, effort, _by_batches),
        }
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
        f"line, after {WARM_UP_SECS:g} s of\nwarm-up. Small batches are measured at shares of the rows' highest rate.",
        header=["emitted as", "load", "k lines/s", "p50", "p90", "p99", "p99.9"],
        rows=rows,
        plots=[Plot("latency", "From due to acked", "k lines/s", "ms", curves, log=True)],
    )


def _curve(
    corpus: Corpus, full: float, shares: tuple[float, ...], effort: Effort,
    topology: Callable[[str, int, float, str], tuple[Topology, Config]],
) -> list[tuple[float, float, Latency]]:  # fmt: skip
    """Share, lines per second and latency of one paced run for each share."""
    found = []
    for share in shares:
        rate = share * full
        wanted = round(rate * (WARM_UP_SECS + effort.paced_secs))
        with tempfile.TemporaryDirectory(prefix="squall-paced-") as name:
            lines = corpus.path.read_text(encoding="utf-8").split("\n")
            text = Path(name) / "text"
            text.write_text("\n".join(lines[: min(wanted, len(lines))]), encoding="utf-8")
            run_until_drained(*topology(str(text), max(1, round(wanted / len(lines))), rate, name))
            latency = Latency.of(read_histogram(Path(name)))
        say(f"{topology.__name__.strip('_')} at {rate / 1e3:.0f} k lines/s: {latency}")
        found.append((share, rate, latency))
    return found


def _by_rows(path: str, repeat: int, rate: float, directory: str) -> tuple[Topology, Config]:
    return word_count(PacedSpout(path, repeat, rate, directory), WORKERS), Config(workers=WORKERS)


def _by_small_batches(path: str, repeat: int, rate: float, directory: str) -> tuple[Topology, Config]:
    spout = PacedLines(path, repeat, rate, directory, _ROWS_A_BATCH)
    return batch_word_count(spout, WORKERS), Config(workers=WORKERS, max_spout_pending=PENDING)


def _by_batches(path: str, repeat: int, rate: float, directory: str) -> tuple[Topology, Config]:
    spout = PacedLines(path, repeat, rate, directory, PENDING)
    return batch_word_count(spout, WORKERS), Config(workers=WORKERS, max_spout_pending=PENDING)
