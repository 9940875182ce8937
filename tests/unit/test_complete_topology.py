"""complete_topology: what each component emitted when everything is processed, or an error that says what was not."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from squall import (
    ClusterError,
    Config,
    Emit,
    FailedTuple,
    Spout,
    Stream,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    UsageError,
    bolt,
    run,
    spout,
)
from squall.engine.core.executor import TaskCrashed
from squall.testing import SimulatedCluster, TopologyFailed, complete_topology
from tests.unit.rig import Does, DoesBasic, Feeder
from tests.unit.wired import wired


@spout("line", streams={"late": ("line", "secs"), "to": Stream("line", direct=True)})
def endless() -> Iterator[str]:
    """What a source of the real world would be."""
    return itertools.repeat("again")


@bolt("word", streams={"empty": ("line",), "to": Stream("word", direct=True)})
def split(tup: Tuple, context: TopologyContext) -> Iterator[Any]:
    """Words of a line; "fail" and "raise" do so."""
    for word in tup["line"].split():
        if word == "fail":
            raise FailedTuple("not this word")
        if word == "raise":
            raise ValueError("not this word either")
        yield word
        if sinks := context.component_tasks("sink"):
            yield Emit((word,), "to", sinks[-1])


def count() -> DoesBasic:
    """Each word with its number in its task."""
    return DoesBasic(lambda bolt, tup, out: out.emit((tup[0], bolt.own.count(tup.values))), ("word", "count"))


def forward(forgets: str = "") -> Does:
    """Forwards what it gets, anchored, and acks it, unless it forgets to."""

    def execute(bolt: Does, tup: Tuple) -> None:
        bolt.collector.emit((tup["word"],), anchors=[tup, tup])
        if tup["word"] != forgets:
            bolt.collector.ack(tup)

    return Does(execute, ("word",))


def word_count(source: Spout = endless) -> Topology:
    return wired(
        lines=(source, 2), split=(split, 2, "shuffle lines"), count=(count(), 2, "fields split word"),
        plain=(forward(), 1, "direct split/to"),
    ).build()


def count_of(*lines: str, **settings: Any) -> dict[str, list[Any]]:
    return complete_topology(word_count(), {"lines": [(line,) for line in lines]}, Config(**settings))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_tuple_of_every_component_is_returned(workers: int) -> None:
    emitted = count_of("the cat", "the dog", workers=workers)
    assert emitted["lines"] == [("the cat",), ("the dog",)]
    assert Counter(emitted["split"]) == {("the",): 2, ("cat",): 1, ("dog",): 1}
    assert Counter(emitted["count"]) == Counter([("the", 1), ("the", 2), ("cat", 1), ("dog", 1)])
    # Every declared stream has an entry, also one that nobody emitted to or subscribes to.
    assert emitted["lines/late"] == emitted["split/empty"] == emitted["plain"] == []


def test_the_same_again_is_the_same_in_the_same_order() -> None:
    lines = [" ".join("abcdefgh"[: n % 8]) for n in range(50)]
    assert count_of(*lines) == count_of(*lines)


def test_tuples_on_other_and_on_direct_streams() -> None:
    topology = wired(
        lines=(endless, 1), split=(split, 1, "shuffle lines/late", "shuffle lines"),
        sink=(bolt("word")(lambda tup: tup[0]), 2, "direct split/to"), plain=(forward(), 1, "shuffle split"),
    ).build()
    emitted = complete_topology(topology, {"lines": [("a b",)], "lines/late": [["c", 5]]})
    assert emitted["lines/late"] == [("c", 5)]
    assert emitted["split/to"] == emitted["sink"] == emitted["plain"] == [("a",), ("b",), ("c",)]


def test_a_message_that_fails_is_named_with_component_and_reason() -> None:
    named = r"message 1 of 'lines': failed in split\[\d\] .*: not this word.*; and 4 more$"
    with pytest.raises(TopologyFailed, match=named) as caught:
        count_of("good", *["fail"] * 9)
    spout, message_id, failure = caught.value.failures[0]
    assert (spout, message_id, failure.reason, failure.component) == ("lines", 1, "failed", "split")


@pytest.mark.parametrize("settings", [{}, {"max_attempts": 1}])
def test_a_message_that_its_spout_does_not_replay_has_failed(settings: dict[str, Any]) -> None:
    gives_up = Feeder(("line",))
    gives_up.feed("fail", id="only")
    gives_up.exhausted = True
    with pytest.raises(TopologyFailed, match="message 'only' of 'lines': failed"):
        complete_topology(word_count(gives_up), config=Config(**settings))


def fails_at_first(bolt: Does, tup: Tuple) -> None:
    """Fails the first tuple, and acks the others at the next tick."""
    if not tup.is_tick:
        bolt.kept.append(tup)
        if len(bolt.kept) == 1:
            bolt.collector.fail(tup)
    else:
        while len(bolt.kept) > 1:
            bolt.collector.ack(bolt.kept.pop())


def test_an_ack_of_another_task_under_the_same_message_id_hides_no_failure() -> None:
    builder = TopologyBuilder(Config(max_attempts=1))
    builder.set_spout("numbers", spout("n")(lambda: [7]), parallelism=2)
    fails = builder.set_bolt("fails", Does(fails_at_first)).shuffle_grouping("numbers")
    fails.set_config(tick_tuple_freq_secs=1)
    with pytest.raises(TopologyFailed, match=r"message 0 of 'numbers': failed in fails\["):
        complete_topology(builder.build())


def refuses_once(bolt: DoesBasic, tup: Tuple, collector: object) -> None:
    bolt.kept.append(tup)
    if len(bolt.kept) == 1:
        raise FailedTuple("not yet")


def test_a_failure_that_a_replay_makes_good_is_none() -> None:
    topology = wired(
        words=(spout("word")(lambda: ["a"]), 1), sink=(DoesBasic(refuses_once), 1, "shuffle words")
    ).build()
    assert complete_topology(topology)["words"] == [("a",)] * 2


def test_an_exception_is_raised_as_it_is() -> None:
    with pytest.raises(TaskCrashed, match=r"split\[\d\] raised ValueError: not this word either in execute") as caught:
        count_of("raise")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(TopologyFailed, match=r"exception in split.*ValueError: not this word either"):
        count_of("raise", on_error="fail")


def test_who_keeps_a_tuple_is_named_when_it_times_out() -> None:
    keeps = (forward(forgets="b"), 1, "shuffle split")
    topology = wired(lines=(endless, 1), split=(split, 1, "shuffle lines"), plain=keeps).build()
    with pytest.raises(TopologyFailed, match=r"'lines': timeout .*neither acked nor failed: 'plain' has \d+ tuples"):
        complete_topology(topology, {"lines": [("a b c",)]})


def test_a_spout_that_never_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall.testing.simulated.MAX_BUSY_TURNS", 20)
    with pytest.raises(ClusterError, match=r"still busy after .*; spouts not exhausted: 'lines'"):
        complete_topology(word_count())


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        ({"line": []}, "'line' is no spout of this topology; its spouts are 'lines'"),
        ({"split": []}, "'split' is no spout of this topology; its spouts are 'lines'"),
        ({"lines/early": [("x",)]}, "emitted to undeclared stream 'early'"),
        ({"lines/to": [("x",)]}, "stream 'to' is a direct stream"),
        ({"lines": [("a",), ("b", 2)]}, r"lines.* raised .*2 values"),
        ({"lines": ["a"]}, r"lines.* raised .*'a'"),
    ],
)
def test_a_source_that_does_not_fit_is_refused(sources: dict[str, Any], text: str) -> None:
    with pytest.raises((UsageError, TaskCrashed), match=text):
        complete_topology(word_count(), sources)


def test_what_cannot_be_sent_is_refused_as_on_a_real_cluster() -> None:
    locks = bolt("lock")(lambda tup: threading.Lock())
    topology = wired(lines=(endless, 1), bolt=(locks, 1, "shuffle lines"), all=(locks, 2, "all bolt")).build()
    with pytest.raises(TaskCrashed, match=r"bolt.* field 'lock': a value of type _thread.lock cannot be pickled"):
        complete_topology(topology, {"lines": [("x",)]}, Config(workers=2))


@pytest.mark.parametrize("entry", [complete_topology, SimulatedCluster, run])
def test_what_is_no_topology_is_refused(entry: Callable[..., object]) -> None:
    with pytest.raises(UsageError, match=r"needs the Topology that TopologyBuilder.build\(\) returns, not 'topology'$"):
        entry("topology")
