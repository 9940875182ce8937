"""Figures of the Spark side: `python -m benchmarks.on_spark engines|sizes|feed`. Prints rows of a Markdown table.

    engines   word count of one text on Squall's own engine and on Spark, as a user runs it: lines/s, and the start
    sizes     `squall prepare` of once, four and sixteen times the default text: seconds, memory
    feed      FeedSpout: alone, without an engine, in one process; and on a cluster with nothing behind it: lines/s

Memory is the largest sum of the resident sizes of a command's processes, seen ten times a second: pages that forked
processes share are counted in each. Medians of the runs. Run it where nothing else runs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.corpus import eight_a_line
from squall import FeedSpout, TopologyBuilder, run
from squall.pipeline.feed.manifest import load_manifest
from squall.pipeline.read.input_files import default_input, find_files

ROOT = Path(__file__).resolve().parent.parent
WORD_COUNT = ROOT / "examples" / "word_count.py"
LOOK_SECS = 0.1
#: Emits between two rounds of acks, as an engine does it.
TURN_EMITS = 256


def squall(*arguments: str | Path) -> tuple[float, int, str]:
    """Run a command: its seconds, the most memory of its processes in bytes, and its stdout."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "squall", *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
        with peak_bytes(process.pid) as peak:
            out, _ = process.communicate()
        secs = time.perf_counter() - began
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"{' '.join(command)}\n{errors.read()}")
    return secs, peak[0], out


@contextmanager
def peak_bytes(pid: int) -> Iterator[list[int]]:
    """The most memory that a process and its descendants have until the block ends."""
    peak, done = [0], threading.Event()

    def look() -> None:
        while not done.wait(LOOK_SECS):
            peak[0] = max(peak[0], sum(map(_resident_bytes, _family(pid))))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _family(pid: int) -> Iterator[int]:
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = path.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def engines(folder: Path, runs: int, lines: int) -> None:
    """Word count, eight words a line, on both engines in turn."""
    text = eight_a_line()
    path = folder / "text.txt"
    path.write_text("".join(f"{text[number % len(text)]}\n" for number in range(lines)))
    found: dict[str, list[tuple[float, float]]] = {"native": [], "spark": []}
    for _ in range(runs):
        for engine, options in (("native", ["--workers", "2"]), ("spark", ["--on", "spark", "--accept-approx"])):
            secs, _, out = squall("run", WORD_COUNT, *options, "--json", "--quiet", "--", path)
            report = json.loads(out)
            if (report["acked"], report["pending"], report["failed"]) != (lines, 0, 0):
                raise SystemExit(f"not a valid run: {out}")
            found[engine].append((lines / report["duration_secs"], secs - report["duration_secs"]))
    native = statistics.median(rate for rate, _ in found["native"])
    for engine, what in (("native", "squall, 2 workers"), ("spark", "`--on spark`, local[*]")):
        rate, start = (statistics.median(column) for column in zip(*found[engine], strict=True))
        print(
            f"| word count, 8 words a line, {lines:,} lines: {what} | {rate / 1000:.0f} k lines/s, and {start:.1f} s "
            f"to start and end | {rate / native:.2f}x squall |", flush=True,
        )


def sizes(folder: Path, runs: int, times: list[int]) -> None:
    """Prepare of the default text, several times over."""
    root, pattern = default_input()
    files = find_files(root, pattern).files
    for count in times:
        source, feed = folder / f"{count}x", folder / f"{count}x.feed"
        for copy in range(count):
            for file in files:
                target = source / str(copy) / file.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.location, target)
        prepared = [squall("prepare", source, "--out", feed, "--overwrite") for _ in range(runs)]
        show(f"`squall prepare`, {load_manifest(feed).rows:,} lines ({count}x)", prepared)
        for path in (source, feed):
            shutil.rmtree(path)


def show(what: str, measured: list[tuple[float, int, str]]) -> None:
    secs, most = statistics.median(one[0] for one in measured), statistics.median(one[1] for one in measured)
    print(f"| {what} | {secs:.1f} s | {most / 2**20:,.0f} MiB |", flush=True)


def feed(folder: Path, runs: int) -> None:
    """FeedSpout: what it does itself, and emitting rows tracked with nothing behind."""
    root, pattern = default_input()
    squall("prepare", root, "--glob", pattern or "*", "--out", folder / "feed")
    rows = load_manifest(folder / "feed").rows
    found = [alone(folder / "feed", rows) for _ in range(runs)]
    rate, busy_rate = (statistics.median(column) for column in zip(*found, strict=True))
    print(
        f"| FeedSpout alone, in one process, {rows:,} lines read, emitted and acked | {rate / 1e6:.2f} M lines/s, and "
        f"{busy_rate / 1e6:.2f} M lines for each second of processor time | |", flush=True,
    )
    rates: list[float] = []
    for _ in range(runs):
        builder = TopologyBuilder()
        builder.set_spout("lines", FeedSpout(folder / "feed"))
        report = run(builder.build(), name="feed")
        if report.acked != rows:
            raise SystemExit(f"not a valid run: {report.to_json()}")
        rates.append(rows / report.duration_secs)
    rate = statistics.median(rates)
    print(f"| FeedSpout on a cluster, {rows:,} lines emitted and acked | {rate / 1e6:.2f} M lines/s | |")


class Taken:
    """A collector that notes the ids and does nothing else."""

    def __init__(self) -> None:
        self.ids: list[Any] = []

    def emit(self, values: Any, *, message_id: Any = None, stream: str = "default") -> list[int]:
        self.ids.append(message_id)
        return []


def alone(feed: Path, rows: int) -> tuple[float, float]:
    """A FeedSpout without an engine, from `open` to `close`: lines/s of wall time, and of processor time."""
    collector = Taken()
    with tempfile.TemporaryDirectory() as made:
        context = SimpleNamespace(
            component_id="lines", component_tasks=lambda component: [1], task_index=0, shared_state_dir=made,
            now_ns=time.monotonic_ns, random=random.Random(1),
        )
        spout: Any = FeedSpout(feed)
        began, began_busy = time.perf_counter(), time.process_time()
        spout.open({}, context, collector)
        next_tuple, ack, acked = spout.next_tuple, spout.ack, 0
        while not spout.exhausted:
            for _ in range(TURN_EMITS):
                next_tuple()
            for message_id in collector.ids:
                ack(message_id)
            acked += len(collector.ids)
            collector.ids.clear()
        spout.close()
        secs, busy_secs = time.perf_counter() - began, time.process_time() - began_busy
    if acked != rows:
        raise SystemExit(f"not a valid run: {acked} of {rows} rows")
    return rows / secs, rows / busy_secs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.on_spark", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("engines", "sizes", "feed"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--lines", type=int, default=300_000, help="for engines")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 4, 16], help="for sizes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="squall-on-spark-") as made:
        folder = Path(made)
        todo: dict[str, Callable[[], None]] = {
            "engines": lambda: engines(folder, options.runs, options.lines),
            "sizes": lambda: sizes(folder, options.runs, options.times),
            "feed": lambda: feed(folder, options.runs),
        }
        todo[options.what]()


if __name__ == "__main__":
    main()
