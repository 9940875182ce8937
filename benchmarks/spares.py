"""Kills the one worker of a topology again and again, with and without a warm spare, and prints how long it took until
the replacement worked (the median, the longest) and how many replacements had been the spare.

python -m benchmarks.spares [--kills 40] [--imports plain aiohttp pandas,pyarrow] [--load idle busy]

Clusters with and without a spare take turns, four times each. `busy`: two other processes loop on the processor. The
memory is that of spares alone (PSS), in MiB.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.recovery import Endless, has_acked, pid_of, until, worked_at_secs
from squall import Config, Job, LocalCluster, Topology, TopologyBuilder
from squall.scheduler.common.role import RoleKind, processes_of

_TURNS = 4
_PAUSE_SECS = 3.0
"""Before a kill: a spare is made one to two seconds after the workers are ready."""
_MODULE = """
{imports}
from benchmarks.recovery import Drop
class Bolt(Drop):
    pass
"""


def _topology(directory: Path, imports: str) -> Topology:
    name = "uses_" + imports.replace(",", "_")
    lines = "" if imports == "plain" else f"import {imports}"
    (directory / f"{name}.py").write_text(_MODULE.format(imports=lines))
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
    builder = TopologyBuilder()
    builder.set_spout("numbers", Endless(str(directory)))
    builder.set_bolt("drop", importlib.import_module(name).Bolt()).shuffle_grouping("numbers")
    return builder.build()


@contextmanager
def _busy(count: int) -> Iterator[None]:
    loops = [multiprocessing.get_context("spawn").Process(target=_loop, daemon=True) for _ in range(count)]
    for loop in loops:
        loop.start()
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.join()


def _loop() -> None:
    while True:
        pass


def _kill_often(imports: str, spare: bool, kills: int, rng: random.Random) -> tuple[list[float], int, list[float]]:
    """Milliseconds from each kill until the replacement worked, how many were the spare, memory of spares."""
    took, taken, memory = [], 0, []
    with tempfile.TemporaryDirectory(prefix="sq-bench-") as name:
        directory = Path(name)
        with LocalCluster(slots_per_node=1, run_dir=directory / "run", logs=False) as cluster:
            job = cluster.submit("spares", _topology(directory, imports), Config(
                message_timeout_secs=3600, max_spout_pending=1000, warm_spare=spare,
            ))
            job.wait_until_ready(60)
            for number in range(kills):
                until(partial(has_acked, job, job.stats().acked + 1000), job, "acks")
                time.sleep(_PAUSE_SECS + rng.random())
                spares = processes_of(cluster.run_dir, RoleKind.SPARE)
                memory += [each.memory_full_info().pss / (1 << 20) for each in spares]
                took.append(1000 * _replace(job, 2 + number))
                taken += pid_of(job, 0) in [each.pid for each in spares]
            job.kill(0)
    return took, taken, memory


def _replace(job: Job, incarnation: int) -> float:
    """Kill the worker; seconds until its replacement worked."""
    killed_secs = time.monotonic()
    os.kill(pid_of(job, 0), signal.SIGKILL)
    until(partial(worked_at_secs, job, 0, incarnation), job, "the replacement at work")
    return (worked_at_secs(job, 0, incarnation) or 0.0) - killed_secs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40, help="of each kind")
    parser.add_argument("--imports", nargs="+", default=["plain", "aiohttp", "pandas,pyarrow"])
    parser.add_argument("--load", nargs="+", choices=("idle", "busy"), default=["idle", "busy"])
    given = parser.parse_args()
    rng = random.Random(given.kills)
    for load in given.load:
        for imports in given.imports:
            took: dict[bool, list[float]] = {True: [], False: []}
            taken, memory = 0, []
            with _busy(2 if load == "busy" else 0):
                for _ in range(_TURNS):
                    for spare in took:
                        found, spares, sizes = _kill_often(imports, spare, given.kills // _TURNS, rng)
                        took[spare] += found
                        taken += spares
                        memory += sizes
            with_spare, without = (f"median {statistics.median(each):.0f} ms, longest {max(each):.0f}"
                                   for each in took.values())
            size = f"{statistics.median(memory):.0f} MiB" if memory else "no spare"
            print(f"{load}, {imports}: spare {with_spare} ({taken} of {len(took[True])} taken, {size}); "
                  f"none {without}", flush=True)


if __name__ == "__main__":
    main()
