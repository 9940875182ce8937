"""Traces and taps on a running worker: what they see, and that they change nothing."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from squall import (
    BasicBolt,
    BasicCollector,
    BatchBolt,
    Bolt,
    Config,
    FailedTuple,
    ReplayingSpout,
    Topology,
    Tuple,
    UsageError,
)
from squall.engine.core.local import LocalRunner
from squall.engine.core.watch import Tap, Trace, Watch, hits_of, watch
from squall.engine.flow.blocks import Block, BlockBatch, ByMember
from squall.engine.flow.ids import ACKER_BITS
from squall.engine.flow.row_counts import RowCounts
from squall.ipc.board import HEADER_WATCHES, Board
from squall.ipc.rundir import RunDir
from squall.scheduler.records.watches import WatchFiles
from squall.ui.watching import WatchDesk
from squall.ui.way import perfetto, ways_of
from tests.unit.lab import forwards_plain
from tests.unit.rig import Does, DoesBasic, copy_component
from tests.unit.wired import wired

COUNTED: Counter[Any] = Counter()


class Lines(ReplayingSpout):
    outputs = ("text",)

    def __init__(self, count: int) -> None:
        self.count = count

    def read(self) -> Any:
        return ((number, (f"{number} a b a",)) for number in range(self.count))


def splits(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
    for word in tup["text"].split():
        collector.emit((word,))
    collector.emit((len(tup["text"]),), stream="lengths")


def counts(bolt: Does | DoesBasic, tup: Tuple, collector: BasicCollector | None = None) -> None:
    COUNTED[tup[0]] += 1
    forwards_plain(bolt, tup) if collector is None else collector.emit(tup.values)


def fails_once(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
    if tup[0] == "7" and bolt.own.count(("7",)) == 1:
        raise FailedTuple("7 is not liked at first")
    counts(bolt, tup, collector)


class CountsByBatch(BatchBolt):
    outputs = ("word",)

    def execute_batch(self, batch: Any, collector: Any) -> None:
        COUNTED.update(batch.columns[0])
        collector.emit_batch(batch.columns)


COUNT = DoesBasic(counts, ("word",))


def topology_of(count: BasicBolt | Bolt | BatchBolt, lines: int) -> Topology:
    split = DoesBasic(splits, {"default": ("word",), "lengths": ("length",)})
    return wired(
        lines=(Lines(lines), 1), split=(split, 2, "shuffle lines"), count=(count, 2, "fields split word"),
        last=(COUNT, 2, "all count"), lengths=(COUNT, 1, "shuffle split/lengths"),
    ).build()


class Marks:
    def __init__(self) -> None:
        self.roots: set[int] = set()

    def mark(self, root: int) -> None:
        self.roots.add(root)


def run(topology: Topology, *made: Any) -> tuple[Counter[Any], list[Any]]:
    """Run it watched by what `made` makes of core, recorder and clock; what was counted, and the events."""
    COUNTED.clear()
    events: list[Any] = []
    with LocalRunner(topology, Config(seed=1), copy=copy_component) as runner:
        watches: list[Watch] = [make(runner.core, events.append, runner.clock.now_ns) for make in made]
        watch(runner.core, watches)
        report = runner.run(timeout_secs=60)
        assert (report.drained, report.pending) == (True, 0)
    return Counter(COUNTED), events


def traced(**what: Any) -> Any:
    return lambda core, seen, now_ns: Trace(core, seen, now_ns, Marks(), **what)


@pytest.mark.parametrize("count", [COUNT, Does(counts, ("word",)), CountsByBatch()])
@pytest.mark.parametrize("every", [1, 7])
def test_a_followed_message_is_seen_whole_and_nothing_changes(count: Any, every: int) -> None:
    plain, _ = run(topology_of(count, 100))
    counted, events = run(topology_of(count, 100), traced(every=every))
    assert counted == plain
    ways = ways_of(random.Random(1).sample(events, len(events)), str)
    assert len(ways) in ((100,) if every == 1 else (100 // 7, 100 // 7 + 1))
    for way in ways:
        (attempt,) = way["attempts"]
        hops = attempt["hops"]
        assert attempt["outcome"] == "acked"
        assert all(None not in (hop["transport_ms"], hop["queue_ms"]) and not hop["failed"] for hop in hops)
        # Four words go on from `count` to both tasks of `last`; the length to `lengths`.
        assert sum(hop["tuples"] for hop in hops) == 1 + 4 + 8 + 1
        assert [hop["parent"] is None for hop in hops].count(True) == 1
        assert all(hop["parent"] is None or hops[hop["parent"]]["to"] == hop["from"] for hop in hops)


@pytest.mark.parametrize(("what", "followed"), [({"message_id": "7"}, 1), ({"every": 1}, 20)])
def test_only_messages_that_were_asked_for_are_followed_and_their_retries_too(what: Any, followed: int) -> None:
    _, events = run(topology_of(DoesBasic(fails_once, ("word",)), 20), traced(**what))
    ways = {way["message_id"]: way for way in ways_of(events, str)}
    assert len(ways) == followed
    first, second = ways["7"]["attempts"]
    failure = first["failure"]
    assert (failure["component"], failure["reason"]) == ("count", "failed")
    assert [attempt["outcome"] for attempt in (first, second)] == ["failed", "acked"]
    assert [any(hop["failed"] for hop in attempt["hops"]) for attempt in (first, second)] == [True, False]


def test_a_tap_shows_what_is_emitted_once_and_what_a_sink_executes() -> None:
    def tapped(component: str) -> Any:
        return lambda core, seen, now_ns: Tap(core, seen, now_ns, component, 1_000_000_000)

    _, events = run(topology_of(COUNT, 5), tapped("split"), tapped("last"))
    assert {(event[3], event[5]) for event in events} == {
        ("default", "emitted"), ("lengths", "emitted"), ("default", "executed"),
    }
    assert all(event[4].startswith("(") for event in events)


def test_hits_of_a_block_have_the_edges_of_its_members() -> None:
    batch, edges = BlockBatch(1, "default", 2), range(5, 25)
    batch.rows = [(edge,) for edge in edges]
    words = b"".join(edge.to_bytes(8, "little") for edge in edges)
    batch.has_runs(Block(1 << ACKER_BITS, 20), ByMember(0, RowCounts([1] * 20), words))
    assert [hit.edge for hit in hits_of(batch, 1, ())] == [*edges]


def test_a_way_is_told_as_a_document_and_as_a_perfetto_trace() -> None:
    _, events = run(topology_of(COUNT, 1), traced(every=1))
    [way] = ways_of(events, lambda task: f"c{task}")
    [attempt] = way["attempts"]
    hops = attempt["hops"]
    assert attempt["outcome"] == "acked"
    assert way["spout"] in {hop["from"] for hop in hops}
    spans = [event for event in perfetto([way])["traceEvents"] if event["ph"] == "X"]
    assert len(spans) == 1 + 3 * len(hops)
    assert all(span["dur"] >= 0 and span["ts"] >= 0 for span in spans)
    # A way has no holes: a hop begins with its message, or within or at the end of the execution that emitted it.
    for hop in hops:
        parent = {} if hop["parent"] is None else hops[hop["parent"]]
        parts = ("began_ms", "transport_ms", "queue_ms", "execute_ms")
        assert hop["began_ms"] <= sum(parent.get(part, 0.0) for part in parts) + 0.01


def test_a_tuple_that_did_not_arrive_is_shown_as_such() -> None:
    """In whatever order its parts are told."""
    emit, left = ("emit", 10, 1 << 16, 1, "m", "()"), ("left", 20, 1 << 16, 5, 1, "default", 2, 1)
    [way] = ways_of([left, emit], str)
    [hop] = way["attempts"][0]["hops"]
    assert (way["message_id"], hop["transport_ms"], hop["execute_ms"]) == ("m", None, None)
    assert ways_of([left, ("executed", 30, 40, 1 << 16, 5, 2, 1, 1, False)], str) == []


def test_messages_that_have_no_trees_cannot_be_followed() -> None:
    job = Mock(record=Mock(conf={"ackers": 0}))
    with pytest.raises(UsageError, match="has no ackers"):
        WatchDesk(lambda name: job).begin_trace("t", "1", 0.0, 1.0)


def test_a_watch_ends_by_itself_unless_it_is_kept(tmp_path: Path) -> None:
    """Whoever began it may have been killed."""
    run_dir = RunDir.create(tmp_path / "r")
    board = Board.create(str(run_dir.board("t-1-00000000")), n_slots=1, n_tasks=1)
    files = WatchFiles(run_dir, "t-1-00000000")
    request = files.begin(board, 3600.0, component="c", most_per_sec=1)
    word = board.words[HEADER_WATCHES]
    for secs, in_force in ((3600.0, [request.id]), (0.0, [])) * 2:
        files.extend(request, board, secs)
        assert [watch.id for watch in files.in_force()] == in_force
    assert board.words[HEADER_WATCHES] != word
    other = files.begin(board, 60.0, every=10)
    assert {path.stem for path in files.directory.iterdir()} == {other.id}
    with pytest.raises(UsageError, match=r"a watch of 4000 s; allowed: above 0 up to 3600 s"):
        files.begin(board, 4000.0)
    board.close()
