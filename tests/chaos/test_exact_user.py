"""State, windows, joins and operators as a user of the docs has them: exactly right, whatever is killed or moved.

Sources stop in the middle until the test has broken something, so state and windows are open then.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from squall import (
    BasicCollector,
    Config,
    FileSink,
    Job,
    JoinBolt,
    LocalCluster,
    Spout,
    StatefulBolt,
    StreamBuilder,
    Topology,
    TopologyBuilder,
    Tuple,
    Window,
    WindowedBolt,
    bolt,
    sliding,
    spout,
)
from squall.scheduler.client.nimbus_client import NimbusGone
from tests.process.waiting import wait_for

WORKERS = "node-1:6700", "node-1:6701"
RECORDS, USERS, PER_SEC, PARTNERS = 600, 7, 40, 5
KEYS = ["a", "", "\u00e9\0x", "1", 0, 1, -5, 2**40, b"", b"\xff", None, (), (1,), ("a",), (None, b"x", (1, ("y",)))]


def halves(start: int, gate: Path, count: int = RECORDS) -> Iterator[int | None]:
    """Numbers; the second half when the gate is open."""
    for number in range(start, count):
        while number >= count // 2 and not gate.exists():
            yield None
        yield number


def event(number: int) -> tuple[str, float, int]:
    return f"u{number % USERS}", number / PER_SEC, number


def events(start: int, gate: Path) -> Iterator[tuple[str, float, int] | None]:
    return (None if number is None else event(number) for number in halves(start, gate))


def event_spout(gate: Path) -> Spout:
    return spout("user", "at", "number")(functools.partial(events, gate=gate))


def rows_of(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in directory.glob("part-*.jsonl") for line in file.read_text().splitlines()]


@contextlib.contextmanager
def run_with_kills(topology: Topology, gate: Path, *targets: str) -> Iterator[Job]:
    """Run a topology to its end; kill these when the first half of its input has come, the last one later."""
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("exact", topology, Config(workers=2))
        wait_for("the first half", lambda: job.stats().acked >= RECORDS // 2)
        *others, last = targets
        for target in others:
            with contextlib.suppress(NimbusGone):  # it may end before it answers
                cluster.inject("kill", target)
        gate.touch()
        wait_for("more", lambda: job.stats().acked > RECORDS // 2)
        with contextlib.suppress(NimbusGone):
            cluster.inject("kill", last)
        assert job.wait_until_drained(timeout=60).dead_letters == 0
        yield job


# ---- keys of each kind ----


class Kept(StatefulBolt):
    """Values that are changed in place, with fewer keys in memory than each batch has."""

    state_kept_keys = 2

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        key, number = tup.values
        value = self.state.setdefault(key, {"numbers": [], "deep": {"last digits": Counter()}})
        value["numbers"].append(number)
        value["deep"]["last digits"][number % 10] += 1


def keyed(tup: Tuple) -> Iterator[tuple[Any, int]]:
    number = tup["number"]
    yield "a", number
    yield KEYS[number % len(KEYS)], number


def test_keys_of_each_kind_hold_what_was_changed_in_place(tmp_path: Path) -> None:
    gate, expected = tmp_path / "gate", dict[Any, list[int]]()
    for number in range(RECORDS):
        for key in ("a", KEYS[number % len(KEYS)]):
            expected.setdefault(key, []).append(number)
    builder = TopologyBuilder()
    builder.set_spout("numbers", spout("number")(functools.partial(halves, gate=gate)))
    builder.set_bolt("keyed", bolt("key", "number")(keyed)).shuffle_grouping("numbers")
    builder.set_bolt("kept", Kept(), parallelism=2).fields_grouping("keyed", "key")

    with run_with_kills(builder.build(), gate, *WORKERS) as job:
        found = job.state("kept")
        assert {key: sorted(value["numbers"]) for key, value in found.items()} == expected
        digits = {key: value["deep"]["last digits"] for key, value in found.items()}
        assert digits == {key: Counter(number % 10 for number in numbers) for key, numbers in expected.items()}


# ---- operators, joins ----


def test_operators_on_streams_write_each_result_once(tmp_path: Path) -> None:
    gate, all_events = tmp_path / "gate", [event(number) for number in range(RECORDS)]
    builder = StreamBuilder()
    mapped = builder.source("events", event_spout(gate)).map(lambda tup: tuple(tup.values), "user", "at", "number")
    even, odd = mapped.filter(lambda tup: tup["number"] % 10 != 3, parallelism=2).branch(
        lambda tup: tup["number"] % 2 == 0, lambda tup: True
    )
    even.key_by("user").count(parallelism=2).to(FileSink(tmp_path / "counts"))
    odd.key_by("user").reduce(max, "number").to(FileSink(tmp_path / "largest"))
    windows = mapped.key_by("user").window(sliding(secs=2, slide_secs=1, by="at"))
    windows.aggregate(0, lambda so_far, tup: so_far + tup["number"], lambda one, other: one + other).to(
        FileSink(tmp_path / "sums")
    )

    with run_with_kills(builder.build(), gate, *WORKERS):
        counts = Counter((row["user"], row["count"]) for row in rows_of(tmp_path / "counts"))
        evens = Counter(user for user, _, number in all_events if number % 2 == 0)
        assert counts == Counter((user, n) for user, count in evens.items() for n in range(1, count + 1))
        odds = [(user, number) for user, _, number in all_events if number % 2 and number % 10 != 3]
        largest = rows_of(tmp_path / "largest")
        assert len(largest) == len(odds)
        assert {(row["user"], row["number"]) for row in largest} >= dict(odds).items()
        sums = Counter[tuple[str, float]]()
        for user, at, number in all_events:
            sums.update({(user, at // 1): number, (user, at // 1 - 1): number})
        found = rows_of(tmp_path / "sums")
        assert {(row["user"], row["start"]): row["value"] for row in found} == sums
        assert len(found) == len(sums)


def partners(start: int) -> list[tuple[str, float, int]]:
    return [(f"u{number % PARTNERS}", number / 2, number) for number in range(2 * RECORDS // PER_SEC)][start:]


def test_a_join_has_each_pair_once_and_each_tuple_without_partner(tmp_path: Path) -> None:
    gate, expected = tmp_path / "gate", Counter[tuple[int, int | None]]()
    for user, at, number in map(event, range(RECORDS)):
        found: list[int | None] = [n for who, when, n in partners(0) if who == user and when // 1 == at // 1]
        expected.update((number, partner) for partner in found or [None])
    join = JoinBolt("events", "user").left_join("partners", "who", prior="events").select("events:number", "partner")
    builder = TopologyBuilder()
    builder.set_spout("events", event_spout(gate))
    builder.set_spout("partners", spout("who", "at", "partner")(partners))
    joined = builder.set_bolt("join", join.with_tumbling_window(secs=1).with_timestamp_field("at"), parallelism=2)
    joined.fields_grouping("events", "user").fields_grouping("partners", "who")
    builder.set_bolt("sink", FileSink(tmp_path / "out")).global_grouping("join")

    with run_with_kills(builder.build(), gate, *WORKERS):
        assert Counter((row["number"], row["partner"]) for row in rows_of(tmp_path / "out")) == expected


# ---- daemons, moves ----


class Numbers(WindowedBolt):
    outputs = ("user", "start", "numbers")

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        collector.emit((window.key, window.start, [tup["number"] for tup in window.get()]))


class Total(StatefulBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.state[tup["user"]] = self.state.get(tup["user"], 0) + 1


def windowed(gate: Path, out: Path, tasks: int = 2) -> Topology:
    numbers = Numbers().with_tumbling_window(secs=5).with_key("user").with_timestamp_field("at")
    builder = TopologyBuilder()
    builder.set_spout("events", event_spout(gate))
    builder.set_bolt("numbers", numbers, parallelism=tasks).fields_grouping("events", "user")
    builder.set_bolt("total", Total(), parallelism=tasks).fields_grouping("events", "user")
    builder.set_bolt("sink", FileSink(out)).global_grouping("numbers")
    return builder.build()


def check_windows(job: Job, out: Path) -> None:
    assert job.state("total") == Counter(event(number)[0] for number in range(RECORDS))
    rows = rows_of(out)
    assert len({(row["user"], row["start"]) for row in rows}) == len(rows)
    found = [(row["user"], row["start"], number) for row in rows for number in row["numbers"]]
    assert Counter(found) == Counter((user, at // 5 * 5, number) for user, at, number in map(event, range(RECORDS)))


def test_open_windows_outlive_the_daemons_and_then_the_workers(tmp_path: Path) -> None:
    gate, out = tmp_path / "gate", tmp_path / "out"
    with run_with_kills(windowed(gate, out), gate, "nimbus", "supervisor node-1", *WORKERS) as job:
        check_windows(job, out)


def test_counts_and_open_windows_go_on_after_a_rebalance_and_in_a_new_version(tmp_path: Path) -> None:
    gate, out = tmp_path / "gate", tmp_path / "out"
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("moved", windowed(gate, out), Config(workers=2))
        wait_for("the first half", lambda: job.stats().acked >= RECORDS // 2)
        job.rebalance(workers=1, parallelism={"total": 1, "numbers": 1})
        job = cluster.submit("moved", windowed(gate, out, tasks=3), Config(workers=2), replace=True)
        job.wait_until_ready()
        cluster.inject("kill", "node-1:6700")
        gate.touch()
        job.wait_until_drained(timeout=60)
        check_windows(job, out)
