"""Clusters of growing size: the time until all is ready, the memory and the processor time of what then idles.

Relies on: /proc/PID/smaps_rollup for the memory that processes share; /proc/PID/task/*/schedstat for processor time in
ns: what an idle process takes is lost between the clock ticks that psutil reads.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.corpus import eight_a_line
from benchmarks.effort import Effort
from benchmarks.numbers import Drop, Numbers, Pass
from benchmarks.word_count import squall_run
from squall import Config, LocalCluster, Topology, TopologyBuilder

_READY_SECS = 120.0
_LINES = 40_000


@dataclass(frozen=True)
class Grown:
    """One size."""

    size: int
    start_secs: float
    """From submitting the first topology to every task of the last ready."""
    start_cpu_secs: float
    """Processor time of all processes for that."""
    memory_mib: float
    idle_share: float
    lines_per_sec: float | None = None


def grow_workers(size: int, effort: Effort) -> Grown:
    """So many workers of one topology, a task of each component on each; then a word count on them."""
    return _grow([_chain(3, size)], size, size, effort, counts_words=True)


def grow_tasks(size: int, effort: Effort) -> Grown:
    """So many tasks of one bolt and one spout, on two workers."""
    return _grow([_chain(2, size // 2)], 2, size, effort)


def grow_components(size: int, effort: Effort) -> Grown:
    """A chain of so many components, on two workers."""
    return _grow([_chain(size, 1)], 2, size, effort)


def grow_topologies(size: int, effort: Effort) -> Grown:
    """So many topologies, each on one worker."""
    return _grow([_chain(3, 1)] * size, 1, size, effort)


def _chain(components: int, tasks: int) -> Topology:
    """An exhausted spout and bolts behind it. An executor may run many tasks: as many as a worker has."""
    builder = TopologyBuilder()
    executors = min(tasks, 16)
    builder.set_spout("c0", Numbers(0), executors, tasks=tasks)
    for number in range(1, components):
        bolt = Drop() if number == components - 1 else Pass()
        builder.set_bolt(f"c{number}", bolt, executors, tasks=tasks).shuffle_grouping(f"c{number - 1}")
    return builder.build()


def _grow(topologies: list[Topology], workers: int, size: int, effort: Effort, counts_words: bool = False) -> Grown:
    """On a cluster of its own: a used one would start faster, and have more memory."""
    with LocalCluster(slots_per_node=workers * len(topologies)) as cluster:
        family = _family()
        before = cpu_secs(family)
        began = time.perf_counter()
        config = Config(workers=workers)
        jobs = [cluster.submit(f"t{number}", topology, config) for number, topology in enumerate(topologies)]
        for job in jobs:
            job.wait_until_ready(timeout=_READY_SECS)
        secs = time.perf_counter() - began
        family = _family()
        start_cpu_secs = cpu_secs(family) - before
        time.sleep(effort.settle_secs)
        before = cpu_secs(family)
        time.sleep(effort.idle_secs)
        idle = (cpu_secs(family) - before) / effort.idle_secs
        if deaths := [restart for job in jobs for restart in job.stats().restarts]:
            raise RuntimeError(f"workers died while they had nothing to do: {deaths}")
        memory_mib = sum(map(_pss_kib, family)) / 1024
        for job in jobs:
            job.kill(wait_secs=0)
        lines_per_sec = _lines_per_sec(cluster, workers) if counts_words else None
        return Grown(size, secs, start_cpu_secs, memory_mib, idle, lines_per_sec)


def _lines_per_sec(cluster: LocalCluster, workers: int) -> float:
    """Of a word count."""
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as name:
        text = Path(name) / "text"
        text.write_text("\n".join(eight_a_line()[:_LINES]), encoding="utf-8")
        return _LINES / squall_run(text, workers, 1, cluster=cluster)[0]


def _family() -> list[int]:
    return [process.pid for process in psutil.Process().children(recursive=True)]


def cpu_secs(pids: list[int]) -> float:
    """Processor time of all threads of processes that live."""
    total_ns = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total_ns += sum(
                int((thread / "schedstat").read_text().split()[0]) for thread in Path(f"/proc/{pid}/task").iterdir()
            )
    return total_ns / 1e9


def _pss_kib(pid: int) -> int:
    """Memory of a process, a page that n share counted as an n-th; 0 if it has ended, left over by an earlier part."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise OSError(f"no Pss in /proc/{pid}/smaps_rollup, which Linux has had since 4.14: {os.uname().release}")
