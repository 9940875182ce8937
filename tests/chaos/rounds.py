"""Rounds of rows, several at a time: a process, a runtime directory and a cluster each.

Guarantees: what a row that fails leaves behind is kept under build/chaos; no round begins after it, and those under way
go no further than their present row. A round leaves no process and no directory.

Relies on: being forked from a process of one thread without sockets.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

from tests.chaos.who_dies import lose_launcher, lose_node, run_row, start_cluster
from tests.process.standing_tools import Standing, directory

LAUNCHER, LOST_NODE = "launcher", "lost node"


class Round(NamedTuple):
    """Rows that share a cluster."""

    number: int
    seed: int
    rows: list[tuple[str, int]]
    """Each with its seed."""


def play_rounds(rounds: Iterable[Round], jobs: int) -> int:
    """How many went well: all, or some of those before the first failure."""
    context = multiprocessing.get_context("fork")
    failed = context.Event()
    waiting = iter(rounds)
    playing: list[ForkProcess] = []
    done = 0
    try:
        while True:
            while len(playing) < jobs and not failed.is_set() and (following := next(waiting, None)) is not None:
                playing.append(context.Process(target=play, args=(following, failed)))
                playing[-1].start()
            if not playing:
                return done
            wait([process.sentinel for process in playing])
            for process in [one for one in playing if one.exitcode is not None]:
                playing.remove(process)
                done += process.exitcode == 0
                if process.exitcode:
                    failed.set()
    finally:
        failed.set()
        for process in playing:
            process.join()


def play(played: Round, failed: Event) -> None:
    """One round, as a process; exit code 1 if it does not go well, or not to its end."""
    # Short, because socket paths end at 107 bytes.
    with tempfile.TemporaryDirectory(prefix="sq-") as runtime:
        os.environ["XDG_RUNTIME_DIR"] = runtime
        with directory() as cluster:
            for row, seed in played.rows:
                if failed.is_set():
                    sys.exit(1)
                print(f"round {played.number}, seed {played.seed}: {row}, seed {seed}", flush=True)
                keep = Path("build") / "chaos" / f"{row.replace(' ', '-')}-{seed}-{time.time_ns()}"
                if not goes_well(row, seed, cluster, keep):
                    failed.set()
                    print(f"FAILED: {row}, seed {seed}; kept in {keep}")
                    print(f'the row again: python -m tests.chaos --rounds 1 --row "{row}" --seed {seed}')
                    print(f"the round again: python -m tests.chaos --rounds 1 --seed {played.seed}", flush=True)
                    sys.exit(1)


def goes_well(row: str, seed: int, cluster: Standing, keep: Path) -> bool:
    """Whether it does; otherwise what is left of it is in `keep`."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        out = Path(name)
        try:
            play_row(row, seed, cluster, out)
        except (Exception, KeyboardInterrupt):
            keep.mkdir(parents=True)
            (keep / "traceback.txt").write_text(traceback.format_exc())
            shutil.copytree(out, keep / "out")
            if cluster.path.exists():
                # Sockets cannot be copied.
                shutil.copytree(cluster.path, keep / "run", ignore=shutil.ignore_patterns("*.sock", "s"))
            traceback.print_exc()
            return False
    return True


def play_row(row: str, seed: int, cluster: Standing, out: Path) -> None:
    """The first row that needs the cluster starts it."""
    if row == LAUNCHER:
        lose_launcher(out, random.Random(seed))
        return
    if not cluster.path.exists():
        start_cluster(cluster)
    if row == LOST_NODE:
        lose_node(cluster, out, seed)
    else:
        run_row(cluster, out, row.split("+"), seed)
