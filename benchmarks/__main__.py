"""`python -m benchmarks`: word count on 1 and 2 workers and in bytewax, latency at half load, time to first tuple,
memory of the tracking, from a worker's death to the first replay and to its replacement at work, and from a daemon's
death to its successor having taken over. `python -m benchmarks recovery` and `python -m benchmarks adoption` measure
one of the last two alone.

Everything is measured in one run on one machine, several times in turn; medians and their ratios are compared.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks import acker_memory
from benchmarks.adoption import WORKERS, measure_adoption, measure_idle
from benchmarks.corpus import count_words, library_lines, rewrapped
from benchmarks.recovery import measure_recovery
from benchmarks.word_count import TextSpout, word_count
from squall import Config, Job, LocalCluster, RunReport
from squall.engine.report.metrics import merge, percentile_ms

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
IDLE_SECS = 10.0
_WARM_UP_SECS, _PACED_SECS = 2.0, 6.0
"""Warm-up, while the interpreter's and the groupings' caches are cold, then the time in which latency is read."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def squall_run(
    path: Path, workers: int, repeat: int, lines_per_sec: float | None = None
) -> tuple[float, RunReport, list[int]]:
    """Seconds from activation to drained, the report, and the latency histogram after the warm-up."""
    with LocalCluster(slots_per_node=workers) as cluster:
        topology = word_count(TextSpout(str(path), repeat, lines_per_sec), parallelism=workers)
        job = cluster.submit("bench", topology, Config(workers=workers), active=False)
        job.wait_until_ready(timeout=30)
        began = time.perf_counter()
        job.activate()
        cold: list[int] = []

        def note_cold() -> None:
            if not cold and time.perf_counter() - began > _WARM_UP_SECS:
                cold.extend(latencies(job))

        report = job.wait_until_drained(timeout=300, on_wait=note_cold)
        secs = time.perf_counter() - began
        if report.acked != report.emitted or report.failed:
            raise SystemExit(f"not a valid run: {report.to_json()}")
        every = latencies(job)
        return secs, report, [now - before for now, before in zip(every, cold or [0] * len(every), strict=True)]


def latencies(job: Job) -> list[int]:
    return merge(reading.histogram for reading in job.readings() if reading.kind == "spout")


def bytewax_run(path: Path, repeat: int) -> float:
    command = [sys.executable, "-m", "benchmarks.bytewax_flow", str(path), str(repeat)]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=True)
    return float(done.stdout)


def first_tuple_secs(path: Path, directory: Path) -> float:
    """From starting the `squall run` process to the first call that emits."""
    mark = directory / "mark"
    mark.unlink(missing_ok=True)
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "squall", "run", str(HERE / "word_count.py"), "--workers", "2", "--quiet", "--",
         str(path), str(mark)],
        cwd=HERE.parent, check=True, capture_output=True,
    )
    return float(mark.read_text()) - began


def median(runs: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(runs))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement (default 3)")
    parser.add_argument("--repeat", type=int, default=4, help="times the text is gone through in a run (default 4)")
    parser.add_argument("--no-write", action="store_true", help="print only, leave RESULTS.md as it is")
    parser.add_argument("--kills", type=int, default=100, help="workers killed to measure recovery (default 100)")
    parser.add_argument(
        "--daemon-kills", type=int, default=30,
        help="times that supervisor and Nimbus are killed each, to measure adoption (default 30; more take minutes)",
    )
    parser.add_argument("only", nargs="?", choices=["recovery", "adoption"], help="measure this alone, print only")
    options = parser.parse_args()
    if options.only == "recovery":
        recovery([], options.kills)
        return
    if options.only == "adoption":
        adoption([], options.daemon_kills)
        return
    as_it_is = library_lines()
    wrapped = rewrapped(as_it_is)
    rows: list[str] = []
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as name:
        directory = Path(name)
        texts = {"8 words a line": wrapped, "as it is": as_it_is}
        full_rate = 0.0
        for number, (label, lines) in enumerate(texts.items()):
            path = directory / f"{number}.txt"
            path.write_text("\n".join(lines), encoding="utf-8")
            rate = throughput(rows, label, path, lines, options.runs, options.repeat)
            full_rate = full_rate or rate
        for share, name in ((2, "half"), (10, "a tenth of")):
            latency(rows, f"{name} load", directory / "0.txt", full_rate / share, len(wrapped))
        short = directory / "short.txt"
        short.write_text("a b c\n" * 10)
        secs = median(options.runs, lambda: first_tuple_secs(short, directory))
        rows.append(f"| `squall run` to first tuple | {secs * 1000:.0f} ms | |")
        say(rows[-1])
        recovery(rows, options.kills)
        adoption(rows, options.daemon_kills)
    rows += acker_memory.rows()
    text = render(rows, options.runs)
    print(text)
    if not options.no_write:
        RESULTS.write_text(text)


def throughput(rows: list[str], label: str, path: Path, lines: list[str], runs: int, repeat: int) -> float:
    """Append the rows of one text; lines per second on two workers."""
    words = count_words(lines) * repeat
    total = len(lines) * repeat
    bytewax = importlib.util.find_spec("bytewax") is not None
    secs: dict[str, list[float]] = {"squall 1 worker": [], "squall 2 workers": []}
    if bytewax:
        secs["bytewax 1 process"] = []
    for _ in range(runs):
        secs["squall 1 worker"].append(squall_run(path, 1, repeat)[0])
        secs["squall 2 workers"].append(squall_run(path, 2, repeat)[0])
        if bytewax:
            secs["bytewax 1 process"].append(bytewax_run(path, repeat))
        say(f"{label}: " + ", ".join(f"{name} {words / times[-1] / 1e6:.2f} M words/s" for name, times in secs.items()))
    base = statistics.median(secs["bytewax 1 process"]) if bytewax else None
    for name, times in secs.items():
        middle = statistics.median(times)
        ratio = f"{base / middle:.2f}x bytewax" if base else ""
        if name == "squall 2 workers":
            ratio += f", {statistics.median(secs['squall 1 worker']) / middle:.2f}x one worker"
        rows.append(
            f"| {label} ({words / total:.1f} words a line): {name} | {words / middle / 1e6:.2f} M words/s, "
            f"{total / middle / 1e3:.0f} k lines/s | {ratio} |"
        )
    return total / statistics.median(secs["squall 2 workers"])


def latency(rows: list[str], label: str, path: Path, lines_per_sec: float, n_lines: int) -> None:
    """Append the row of one paced run on two workers, of at least _PACED_SECS."""
    paced = path.with_name("paced.txt")
    lines = path.read_text(encoding="utf-8").split("\n")
    wanted = round(lines_per_sec * (_WARM_UP_SECS + _PACED_SECS))
    paced.write_text("\n".join(lines[: min(wanted, n_lines)]), encoding="utf-8")
    secs, report, histogram = squall_run(paced, 2, max(1, round(wanted / n_lines)), lines_per_sec)
    p50, p90, p99, top = (percentile_ms(histogram, share) for share in (0.5, 0.9, 0.99, 1.0))
    rows.append(
        f"| emit to ack at {label} ({report.acked / secs / 1e3:.0f} k lines/s, 2 workers, warm) | "
        f"p50 {p50:.2f} ms, p90 {p90:.2f} ms, p99 {p99:.2f} ms, max {top:.1f} ms | |"
    )
    say(rows[-1])


def recovery(rows: list[str], kills: int) -> None:
    """Append the row of one run whose workers are killed at random; nothing may be lost."""
    with tempfile.TemporaryDirectory(prefix="sq-bench-") as name:
        found = measure_recovery(kills, seed=kills, directory=Path(name))
    if found.lost or found.dead_letters or len(found.replay_secs) < kills:
        raise SystemExit(f"not a valid run: {found}")
    setting = f"{kills} kills, 2 workers under load, nothing lost"
    # Storm's limits: section 4.4 of its reference (message timeout, process monitor, heartbeat).
    add_times(rows, setting, (
        ("a worker to the first replayed emit", found.replay_secs, "when the message times out, 30 to 60 s"),
        ("a worker to the replacement at work", found.working_secs, "noticed within 3 s, or by heartbeat within 30 s"),
    ))


def adoption(rows: list[str], kills: int) -> None:
    """Append the rows of one run whose daemons are killed, nothing may be lost, and of one that idles."""
    with tempfile.TemporaryDirectory(prefix="sq-bench-") as name:
        found = measure_adoption(kills, seed=kills, directory=Path(name))
        shares = measure_idle(IDLE_SECS, Path(name))
    if found.lost or found.dead_letters or found.workers_died:
        raise SystemExit(f"not a valid run: {found}")
    setting = f"{kills} kills, {WORKERS} workers under load, nothing lost"
    add_times(rows, setting, (
        ("the supervisor to all workers adopted", found.adopted_secs, "missed for 60 s; others start it again"),
        ("Nimbus to an answer of the next one", found.answer_secs, "a ZooKeeper session, 20 s, with a standby"),
    ))
    rows.append(
        f"| an idle worker's share of a core ({WORKERS} workers, active, over {IDLE_SECS:g} s) | "
        f"median {statistics.median(shares) * 100:.1f} %, max {max(shares) * 100:.1f} % | goal: 1 % |"
    )
    say(rows[-1])


def add_times(rows: list[str], setting: str, measured: Iterable[tuple[str, list[float], str]]) -> None:
    """Append a row for each (name of the time from a SIGKILL, its values, Storm's)."""
    for what, secs, storm in measured:
        rows.append(times_row(f"SIGKILL of {what} ({setting})", secs, f"Storm: {storm}"))
        say(rows[-1])


def times_row(what: str, secs: list[float], beside: str) -> str:
    """Make the row of one measurement repeated many times."""
    p99 = statistics.quantiles(secs, n=100, method="inclusive")[98] if len(secs) > 1 else secs[0]
    middle, worst = statistics.median(secs), max(secs)
    return f"| {what} | median {middle * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, max {worst * 1000:.0f} ms | {beside} |"


def render(rows: list[str], runs: int) -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    head = (
        "# Results\n\nWritten by `make bench`; medians of "
        f"{runs} runs in turn, on {os.cpu_count()} cores ({model}), CPython {platform.python_version()}.\n"
        "Every line is tracked by the ackers in every Squall row; bytewax tracks nothing. Ratios are of this one run.\n"
    )
    table = "| what | figure | beside |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
    notes = HERE / "NOTES.md"
    return f"{head}\n{table}\n{notes.read_text() if notes.exists() else ''}"


if __name__ == "__main__":
    main()
