"""Operators, windows and joins as a user of the docs has them: exactly right, whatever is killed or moved.

The source stops in the middle until the test has broken something, so state and windows are open then.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from squall import Config, FileSink, Job, LocalCluster, StreamBuilder, Topology, sliding, spout, tumbling
from squall.scheduler.client.nimbus_client import NimbusGone
from tests.process.conftest import SharedCluster
from tests.process.waiting import wait_for

RECORDS, USERS, PER_SEC, PARTNERS = 600, 7, 40, 5
Event = tuple[str, float, int]


def event(number: int) -> Event:
    return f"u{number % USERS}", number / PER_SEC, number


def events_by_halves(start: int, gate: Path) -> Iterator[Event | None]:
    """The second half when the gate is open."""
    for number in range(start, RECORDS):
        while number >= RECORDS // 2 and not gate.exists():
            yield None
        yield event(number)


def partners(start: int) -> list[Event]:
    return [(f"u{number % PARTNERS}", number / 2, number) for number in range(2 * RECORDS // PER_SEC)][start:]


def topology(gate: Path, out: Path, tasks: int = 2) -> Topology:
    builder = StreamBuilder()
    source = spout("user", "at", "number")(functools.partial(events_by_halves, gate=gate))
    events = builder.source("events", source).key_by("user")
    odd, even = events.branch(lambda tup: tup["number"] % 2, lambda tup: True)
    odd.key_by("user").count(parallelism=tasks, name="counts").to(FileSink(out / "counts"))
    even.key_by("user").window(sliding(secs=2, slide_secs=1, by="at")).aggregate(
        [], lambda so_far, tup: [*so_far, tup["number"]], lambda one, other: one + other, parallelism=tasks,
        name="windows",
    ).to(FileSink(out / "windows"))
    others = builder.source("partners", spout("user", "at", "partner")(partners)).key_by("user")
    events.join(others, tumbling(secs=1, by="at"), left=True, parallelism=2).to(FileSink(out / "pairs"))
    return builder.build()


def rows_of(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in directory.glob("part-*.jsonl") for line in file.read_text().splitlines()]


def check_results(out: Path) -> None:
    """Each count of each user, each window and each pair is there once, and right."""
    odd_events, windows, pairs = Counter[str](), defaultdict[Any, list[int]](list), Counter[tuple[int, int | None]]()
    for user, at, number in map(event, range(RECORDS)):
        found: list[int | None] = [n for who, when, n in partners(0) if who == user and when // 1 == at // 1]
        pairs.update((number, partner) for partner in found or [None])
        if number % 2:
            odd_events[user] += 1
        else:
            windows[user, at // 1].append(number)
            windows[user, at // 1 - 1].append(number)
    counts = Counter((row["user"], row["count"]) for row in rows_of(out / "counts"))
    assert counts == Counter((user, n) for user, count in odd_events.items() for n in range(1, count + 1))
    rows = rows_of(out / "windows")
    assert {(row["user"], row["start"]): sorted(row["value"]) for row in rows} == windows
    assert len(rows) == len(windows)
    assert Counter((row["number"], row["partner"]) for row in rows_of(out / "pairs")) == pairs


def in_the_middle(cluster: LocalCluster, gate: Path, out: Path) -> tuple[Job, list[str]]:
    """The first half of the input has come. With the names of the workers."""
    job = cluster.submit("exact", topology(gate, out), Config(workers=2))
    wait_for("the first half", lambda: job.stats().acked >= RECORDS // 2)
    return job, sorted(job.stats().workers)


def end(job: Job, gate: Path, out: Path) -> None:
    """The second half comes, and each result is right."""
    gate.touch()
    assert job.wait_until_drained(timeout=60).dead_letters == 0
    check_results(out)


def test_open_windows_outlive_the_daemons_and_then_the_workers(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with LocalCluster(slots_per_node=2) as cluster:
        job, workers = in_the_middle(cluster, gate, tmp_path)
        for target in ("nimbus", "supervisor node-1", *workers):
            with contextlib.suppress(NimbusGone):  # it may end before it answers
                cluster.inject("kill", target)
        end(job, gate, tmp_path)


def test_counts_and_open_windows_go_on_after_a_rebalance_and_in_a_new_version(
    shared_cluster: SharedCluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job, _ = in_the_middle(shared_cluster, gate, tmp_path)
    job.rebalance(workers=1, parallelism={"counts": 1, "windows": 1})
    changed = topology(gate, tmp_path, tasks=3)
    job = shared_cluster.submit("exact", changed, Config(workers=2), fresh=False, replace=True)
    job.wait_until_ready()
    shared_cluster.inject("kill", min(job.stats().workers))
    end(job, gate, tmp_path)
