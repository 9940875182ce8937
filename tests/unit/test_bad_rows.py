"""A key, a value or a timestamp that is none fails its own tuple, and no worker."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from squall import (
    BasicCollector,
    BatchCollector,
    ColumnBatch,
    Config,
    StatefulBatchBolt,
    StatefulBolt,
    Topology,
    Tuple,
    spout,
)
from squall.cli.running.run import run_command
from squall.engine.state.reading import read_component
from squall.testing import SimulatedCluster
from tests.unit.test_windows import Shows
from tests.unit.wired import wired

NAN = float("nan")


class Counts(StatefulBolt):
    outputs = ("key", "count")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.state["all"] = self.state.get("all", 0) + 1
        self.state[tup["k"]] = self.state.get(tup["k"], 0) + tup["n"]
        collector.emit((tup["k"], self.state[tup["k"]]))


class CountsBatches(StatefulBatchBolt):
    outputs = ("key", "count")

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        for row, (key, _, number) in enumerate(batch.to_rows()):
            if number == 1:
                collector.fail(row, "ones are refused")
                continue
            self.state["all"] = self.state.get("all", 0) + 1
            self.state[key] = self.state.get(key, 0) + number
        collector.emit_batch((batch["k"], batch["n"]))


def run(bolt: Any, events: list[Any], root: Path) -> tuple[dict[str, list[Any]], dict[int, str], Any]:
    """What is emitted, the numbers and reasons of the tuples that have failed for good, and the state."""
    source = spout("k", "at", "n")(lambda: [(*event, n) for n, event in enumerate(events)])
    topology = wired(events=(source, 1), bolt=(bolt, 1, "global events")).build()
    with SimulatedCluster(topology, Config(max_attempts=2), state_root=root) as cluster:
        report = cluster.run()
        letters = {values[2]: failure for _, _, _, values, failure in cluster.dead_letters}
        assert report.dead_letters == len(letters)
        emitted = cluster.emitted
    return emitted, {n: str(failure.error) for n, failure in letters.items()}, read_component(root, "bolt")


@pytest.mark.parametrize("bad", [[7], [0], [0, 1, 2, 19], [*range(20)], []], ids=str)
@pytest.mark.parametrize("key", [NAN, ("a", NAN), object], ids=repr)
def test_a_key_that_is_none_fails_its_own_tuple(key: Any, bad: list[int], tmp_path: Path) -> None:
    events = [(key if n in bad else f"k{n % 3}", 0) for n in range(20)]
    emitted, failed, state = run(Counts(), events, tmp_path)
    good = [n for n in range(20) if n not in bad]
    expected = Counter[str]()
    for n in good:
        expected.update({f"k{n % 3}": n, "all": 1})
    assert state == expected
    assert len(emitted["bolt"]) == len(good)
    assert sorted(failed) == bad
    assert all(re.match(r"bolt\[2\] set state\[.* \(.*test_bad_rows.py, line \d+, in execute\)$", why)
               for why in failed.values()), failed


@pytest.mark.parametrize("bolt", [Counts, CountsBatches])
def test_a_key_without_a_hash_fails_its_own_tuple_with_the_line_that_used_it(bolt: Any, tmp_path: Path) -> None:
    _, failed, state = run(bolt(), [([1], 0), ("k", 0), ("k", 0)], tmp_path)
    assert state["k"] == 2 + (bolt is Counts)
    assert re.search(r"unhashable type: 'list' \(.*test_bad_rows.py, line \d+, in execute", failed[0])


def test_a_value_that_cannot_be_stored_fails_its_own_tuple(tmp_path: Path) -> None:
    class Keeps(StatefulBolt):
        outputs = ("n",)

        def execute(self, tup: Tuple, collector: BasicCollector) -> None:
            self.state[tup["n"]] = (lambda: None) if tup["k"] == "bad" else tup["k"]
            collector.emit((tup["n"],))

    emitted, failed, state = run(Keeps(), [("good", 0), ("bad", 0), ("good", 0)], tmp_path)
    assert (state, len(emitted["bolt"]), list(failed)) == ({0: "good", 2: "good"}, 2, [1])
    assert re.match(r"state\[1\] is <function .*, which cannot be stored: .* \(.*, line \d+, in execute\)$", failed[1])


def test_a_batch_bolt_is_given_the_others_again(tmp_path: Path) -> None:
    _, failed, state = run(CountsBatches(), [(NAN if n == 5 else "k", 0) for n in range(9)], tmp_path)
    assert state == {"k": sum(range(9)) - 5 - 1, "all": 7}
    assert sorted(failed) == [1, 5]
    assert "ones are refused" in failed[1]
    assert "set state[nan]: nan is no key" in failed[5]


@pytest.mark.parametrize(("event", "why"), [
    ((NAN, 1.0), "bolt[2]: key field 'k' is nan: nan is no key"),
    (((1, NAN), 1.0), "key field 'k' is (1, nan): nan is no key"),
    (([1], 1.0), "key field 'k' is [1]: [1] is of type list; expected text"),
    (("a", NAN), "bolt[2]: timestamp field 'at' is nan"),
    ((NAN, "noon"), "field"),
], ids=str)
def test_a_key_or_a_time_that_is_none_fails_its_own_tuple_and_is_in_no_window(
    event: Any, why: str, tmp_path: Path
) -> None:
    bolt = Shows().with_tumbling_window(secs=60).with_key("k").with_timestamp_field("at")
    emitted, failed, _ = run(bolt, [("a", 1.0), event, ("a", 2.0), event], tmp_path)
    assert [row[:4] for row in emitted["bolt"]] == [("a", 0, 60, [0, 2])]
    assert sorted(failed) == [1, 3]
    assert all(why in each for each in failed.values()), failed


def test_windows_have_keys_of_any_kind(tmp_path: Path) -> None:
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    there = noon.astimezone(datetime.timezone(datetime.timedelta(hours=1)))
    keys = [noon, None, there, (1, 2.5), frozenset("ab"), frozenset("ba")]
    bolt = Shows().with_session_window(gap_secs=5).with_key("k").with_timestamp_field("at")
    emitted, failed, _ = run(bolt, [(key, 1) for key in keys], tmp_path)
    assert failed == {}
    windows = {noon: [0, 2], None: [1], (1, 2.5): [3], frozenset("ab"): [4, 5]}
    assert {row[0]: row[3] for row in emitted["bolt"]} == windows


def nameless() -> Topology:
    """For the command line."""
    return wired(events=(spout("k", "n")(lambda: [(NAN, 0)]), 1), bolt=(Counts(), 1, "global events")).build()


def test_a_dead_letter_shows_the_values_that_were_emitted() -> None:
    run = CliRunner().invoke(run_command, [f"{__file__}:nameless", "--local", "--set", "max_attempts=1"])
    assert "message 0 of events, (nan, 0): failed in bolt" in run.stderr
