"""Kills workers from outside, at random, in clusters side by side, and counts dead letters: there must be none.

python -m benchmarks.outside_kills [--clusters 8] [--kills 125]

Every second cluster counts words by rows, the others by batches. A kill comes after fifty more acks.
"""

from __future__ import annotations

import argparse
import importlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from squall import Config, LocalCluster

_LINE = "the quick brown fox jumps over the lazy dog again\n"
_LINES = 6_000_000
_ACKS, _STALLED_SECS, _LONGEST_PAUSE_SECS = 50, 20.0, 1.3


def _workers() -> list[psutil.Process]:
    """The workers of this process's cluster."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "".join(process.cmdline()).startswith("squall: worker"):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def _one(number: int, kills: int) -> int:
    """Run one cluster until so many workers were killed; returns its dead letters."""
    rng = random.Random(number)
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    example = importlib.import_module(("word_count", "word_count_by_batch")[number % 2])
    with tempfile.TemporaryDirectory() as directory:
        text = Path(directory, "text")
        text.write_text(_LINE * _LINES)
        with LocalCluster(slots_per_node=2, run_dir=Path(directory, "run")) as cluster:
            config = Config(workers=2, message_timeout_secs=3600)
            job = cluster.submit("kills", example.topology([str(text)]), config)
            for _ in range(kills):
                enough, until = job.stats().acked + _ACKS, time.monotonic() + _STALLED_SECS
                while job.stats().acked < enough and time.monotonic() < until:
                    time.sleep(0.02)
                time.sleep(rng.uniform(0, _LONGEST_PAUSE_SECS))
                for victim in rng.sample(_workers(), k=1):
                    victim.send_signal(signal.SIGKILL)
            stats = job.stats()
    shape = "batches" if number % 2 else "rows"
    print(f"{shape}: {kills} kills, {stats.acked:,} acked, {stats.dead_letters} dead letters", flush=True)
    return stats.dead_letters


def main() -> int:
    """Run; the exit code is 1 if there were dead letters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=8)
    parser.add_argument("--kills", type=int, default=125, help="in each cluster")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        return int(_one(given.one, given.kills) > 0)
    again = [sys.executable, "-m", "benchmarks.outside_kills", "--kills", str(given.kills), "--one"]
    children = [subprocess.Popen([*again, str(number)]) for number in range(given.clusters)]
    return int(sum(child.wait() for child in children) > 0)


if __name__ == "__main__":
    sys.exit(main())
