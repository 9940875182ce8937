"""Queues are bounded in bytes: spouts stop first, then the bolts that feed a full queue; nothing waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from squall.engine.api.builder import TopologyBuilder
from squall.engine.api.tuple import Tuple
from squall.engine.core import backpressure
from squall.engine.core.backpressure import CYCLE_LIMITS, CYCLE_VALUES, CycleOverflow, find_cycles
from squall.engine.flow.batch import Batch
from tests.process.waiting import wait_for
from tests.unit.net import placed
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, chain, emits

KIB, MIB = 1024, 1 << 20
LIMIT = 64 * KIB


class Fountain(Feeder):
    """Emits `count` tuples of `size` bytes, or the same object each time."""

    def __init__(self, count: int, size: int, tracked: bool = True, shared: bool = False) -> None:
        super().__init__()
        self.left = count
        self.size = size
        self.tracked = tracked
        self.shared = bytes(size) if shared else None

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            value = self.shared or bytes([self.left % 251]) * self.size
            self.collector.emit((value,), self.left if self.tracked else None)
        self.exhausted = not self.left


def rig_of(builder: TopologyBuilder, **settings: Any) -> Rig:
    return Rig(builder, link_window_bytes=LIMIT, max_spout_pending=None, **settings)


def close(rig: Rig, component: str) -> Callable[[], None]:
    """Keep a bolt from being run, as if it took its time; what opens it again."""
    task = rig.plan.tasks_of(component)[0]
    [executor] = [bolt for bolt in rig.core.bolts if bolt.tasks[0].task == task]
    executor.hold(1)
    return lambda: executor.hold(-1)


def queued(rig: Rig, component: str) -> int:
    return rig.core.bolt_tasks[rig.plan.tasks_of(component)[0]].queued_bytes


@pytest.mark.parametrize("ackers", [0, 1])
@pytest.mark.parametrize("size", [100, 10 * KIB, 10 * LIMIT])
def test_an_eager_spout_stops_at_a_full_queue(size: int, ackers: int) -> None:
    count = max(50, 20 * LIMIT // size)
    spout, sink = Fountain(count, size, tracked=bool(ackers)), DoesBasic(lambda bolt, tup, out: None)
    rig = rig_of(chain(spout, sink), ackers=ackers)
    reopen = close(rig, "bolt-1")
    rig.settle()
    assert LIMIT <= queued(rig, "bolt-1") <= LIMIT + max(LIMIT // 4, size) + 4 * KIB
    assert rig.core.pressure.held_bytes == queued(rig, "bolt-1")
    emitted = count - rig.user("spout").left
    assert emitted < count
    rig.settle()
    assert count - rig.user("spout").left == emitted, "it had stopped"
    reopen()
    rig.settle()
    assert len(sink.seen) == count
    assert rig.core.pressure.held_bytes == 0
    assert rig.core.quiet


def test_a_bolt_that_feeds_a_full_queue_is_not_run_and_goes_on_later() -> None:
    spout, sink = Fountain(50, 100), DoesBasic(lambda bolt, tup, out: None)
    rig = rig_of(chain(spout, Does(emits(1000), ("value",)), sink))
    reopen = close(rig, "bolt-2")
    rig.settle()
    held = rig.core.pressure.held_bytes
    assert queued(rig, "bolt-2") >= LIMIT
    before = len(sink.seen)
    rig.settle()
    assert (len(sink.seen), rig.core.pressure.held_bytes) == (before, held)
    reopen()
    rig.settle()
    assert len(sink.seen) == 50 * 1000
    assert sorted(rig.user("spout").acked) == list(range(50))
    assert rig.core.pressure.held_bytes == 0


def test_a_batch_of_tuples_that_each_make_many_is_cut_where_time_does_not_cut_it() -> None:
    """As in `--local`: what a bolt emits in one go is bounded by bytes, or else by one call of `execute`."""
    spout, sink = Feeder(), DoesBasic(lambda bolt, tup, out: None)
    rig = rig_of(chain(spout, Does(emits(10), ("value",)), sink))
    reopen = close(rig, "bolt-2")
    for n in range(200):
        spout.feed(bytes(KIB), id=n)
    rig.settle()
    assert LIMIT <= queued(rig, "bolt-2") <= LIMIT + 170 * KIB, "16 calls at first; all at once would be 2 MiB"
    reopen()
    rig.settle()
    assert len(sink.seen) == 2000


def test_spouts_stop_while_anything_is_full_and_bolts_beside_it_do_not() -> None:
    builder = TopologyBuilder()
    builder.set_spout("spout", Fountain(5000, KIB))
    slow, quick = DoesBasic(lambda bolt, tup, out: None), DoesBasic(lambda bolt, tup, out: None)
    builder.set_bolt("slow", slow).shuffle_grouping("spout")
    builder.set_bolt("quick", quick).shuffle_grouping("spout")
    rig = rig_of(builder)
    reopen = close(rig, "slow")
    rig.settle()
    assert not slow.seen
    assert len(quick.seen) == 5000 - rig.user("spout").left, "what was emitted was executed"
    assert queued(rig, "quick") == 0
    reopen()
    rig.settle()
    assert len(slow.seen) == len(quick.seen) == 5000


def test_what_waits_for_another_worker_stops_the_spouts_and_holds_its_bolt() -> None:
    net = placed(chain(Feeder(), Does(emits(1), ("value",)), Does(acks)), "spout __acker bolt-1", "bolt-2")
    core, (target,) = net.core(0), net.plan.tasks_of("bolt-2")
    pressure, limit, (feeder,) = core.pressure, core.pressure.limit_bytes, core.bolts
    for waiting_bytes, full in ((limit - 1, False), (1, True), (-(limit // 2), True), (-1, False)):
        pressure.waits(target, waiting_bytes)
        assert (pressure.congested, pressure.stalled, feeder.held > 0) == (full, full, full)


def test_a_healthy_run_measures_nothing_and_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Batch] = []
    monkeypatch.setattr(Batch, "measure", lambda batch: measured.append(batch) or 0)
    spout = Fountain(3000, 20)
    rig = Rig(chain(spout, Does(emits(5), ("value",)), Does(acks)))
    rig.settle()
    assert len(rig.user("bolt-2").seen) == 15_000
    assert measured == []
    assert rig.core.pressure.held_bytes == 0


def test_one_object_emitted_a_thousand_times_is_overestimated_and_flows() -> None:
    sink = DoesBasic(lambda bolt, tup, out: None)
    rig = rig_of(chain(Fountain(1000, MIB, shared=True), sink))
    rig.settle()
    assert len(sink.seen) == 1000


def test_one_huge_value_among_small_ones_fills_the_queue() -> None:
    spout, sink = Feeder(), DoesBasic(lambda bolt, tup, out: None)
    rig = rig_of(chain(spout, sink))
    reopen = close(rig, "bolt-1")
    for n in range(100):
        spout.feed(bytes(MIB if n == 50 else 10), id=n)
    rig.settle()
    assert queued(rig, "bolt-1") > MIB
    assert rig.core.pressure.congested
    reopen()
    rig.settle()
    assert len(sink.seen) == 100


def test_ticks_are_left_out_where_there_is_no_room() -> None:
    builder = TopologyBuilder()
    builder.set_spout("spout", Fountain(5000, KIB))
    bolt = builder.set_bolt("bolt", DoesBasic(lambda bolt, tup, out: None)).shuffle_grouping("spout")
    bolt.set_config(tick_tuple_freq_secs=0.01)
    rig = rig_of(builder)
    reopen = close(rig, "bolt")
    rig.settle()
    full = queued(rig, "bolt")
    for _ in range(50):
        rig.advance(0.01)
    assert queued(rig, "bolt") == full
    reopen()
    rig.settle()


# Threads


def test_a_thread_is_given_no_more_than_its_queue_may_hold_and_holds_who_feeds_it() -> None:
    go = threading.Event()

    def waits(bolt: DoesBasic, tup: Tuple, out: Any) -> None:
        assert go.wait(30)

    sink = DoesBasic(waits, blocking=True)
    rig = rig_of(chain(Fountain(500, KIB), Does(emits(10), ("value",)), sink), threads=True)
    try:
        rig.settle()
        assert LIMIT <= queued(rig, "bolt-2") <= 3 * LIMIT
        assert rig.user("spout").left > 0
        go.set()
        rig.settle_until(lambda: len(rig.user("spout").acked) == 500)
        assert len(sink.seen) == 5000
        assert rig.core.pressure.held_bytes == 0
    finally:
        go.set()
        for runner in rig.core.blocking:
            runner.stop()


def test_a_thread_whose_output_finds_no_room_waits() -> None:
    sink = DoesBasic(lambda bolt, tup, out: None)
    middle = Does(emits(100), ("value",), blocking=True)
    rig = rig_of(chain(Fountain(200, KIB), middle, sink), threads=True)
    reopen = close(rig, "bolt-2")
    try:
        rig.settle_until(lambda: bool(rig.core.pressure.full) and rig.core.blocking[0].must_wait)
        assert len(middle.seen) < 200
        reopen()
        rig.settle_until(lambda: len(rig.user("spout").acked) == 200)
        assert len(sink.seen) == 200 * 100
    finally:
        for runner in rig.core.blocking:
            runner.stop()


def test_a_thread_whose_output_the_loop_does_not_take_in_waits() -> None:
    middle = Does(emits(100), ("value",), blocking=True)
    rig = rig_of(chain(Fountain(200, KIB), middle, DoesBasic(lambda bolt, tup, out: None)), threads=True)
    (runner,) = rig.core.blocking
    rig.core.run_spouts()
    rig.core.run_feeders()
    try:
        wait_for("the thread to wait", lambda: runner.must_wait)
        assert len(middle.seen) < 5
        rig.settle_until(lambda: len(rig.user("spout").acked) == 200)
    finally:
        runner.stop()


def test_a_thread_that_waits_for_room_ends_when_it_is_told_to() -> None:
    before = set(threading.enumerate())
    middle = Does(emits(100), ("value",), blocking=True)
    rig = rig_of(chain(Fountain(200, KIB), middle, DoesBasic(lambda bolt, tup, out: None)), threads=True)
    close(rig, "bolt-2")
    rig.settle_until(lambda: rig.core.blocking[0].must_wait)
    rig.core.blocking[0].stop()
    assert set(threading.enumerate()) <= before


# Cycles


def cyclic(spout: Feeder, fork: Any) -> TopologyBuilder:
    """spout -> loop -> fork -> loop, and fork -> out."""
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    builder.set_bolt("loop", Does(emits(1), ("value",))).shuffle_grouping("spout").shuffle_grouping("fork", "back")
    builder.set_bolt("fork", fork).shuffle_grouping("loop")
    return builder


class Rounds(DoesBasic):
    """Sends each tuple round `rounds` times."""

    def __init__(self, rounds: int, copies: int = 1) -> None:
        super().__init__(self.send, {"back": ("value",)})
        self.rounds = rounds
        self.copies = copies
        self.done = [0]

    def send(self, bolt: DoesBasic, tup: Tuple, out: Any) -> None:
        value = tup["value"]
        if len(value) % 1000 < self.rounds:
            for _ in range(self.copies):
                out.emit((value + b"x",), stream="back")
        else:
            self.done[0] += 1


def test_a_cycle_that_is_filled_to_the_brim_does_not_deadlock() -> None:
    fork = Rounds(20)
    rig = rig_of(cyclic(Fountain(500, 1000), fork))
    rig.settle()
    assert fork.done == [500]
    assert sorted(rig.user("spout").acked) == list(range(500))
    assert rig.core.pressure.held_bytes == 0


def test_a_cycle_that_emits_more_than_it_takes_ends_by_an_error_that_names_it() -> None:
    rig = rig_of(cyclic(Fountain(100, 1000), Rounds(999, copies=2)))
    with pytest.raises(CycleOverflow, match=r"^cycle loop -> fork -> loop holds [\d.]+ MiB in its queues; "
                                            r"allowed: 1 MiB; it emits more than it takes$") as raised:
        rig.settle()
    assert raised.value.component == "loop"
    assert rig.core.pressure.held_bytes <= 5 * CYCLE_LIMITS * LIMIT


class Burst(Feeder):
    """Emits tuples of these sizes in one call."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.sizes = sizes

    def next_tuple(self) -> None:
        for number, size in enumerate(self.sizes):
            self.collector.emit((bytes(size),), number)
        self.sizes = []
        self.exhausted = True


@pytest.mark.parametrize("smaller", [0, 9])
def test_a_cycle_that_emits_what_it_takes_may_hold_many_tuples_that_each_fill_a_queue(smaller: int) -> None:
    """Alone, or hidden among smaller ones."""
    fork = Rounds(20)
    rig = rig_of(cyclic(Burst(40 * [200_000, *(smaller * [1000])]), fork))
    rig.settle()
    assert fork.done == [40 * (1 + smaller)]
    assert rig.core.pressure.held_bytes == 0


def test_a_cycle_that_multiplies_for_some_rounds_and_then_no_more_drains() -> None:
    fork = Rounds(9, copies=2)
    rig = rig_of(cyclic(Burst([1000]), fork))
    rig.settle()
    assert fork.done == [2 ** 9]
    assert rig.user("spout").acked == [0]


def test_a_cycle_that_multiplies_large_tuples_ends_too() -> None:
    rig = rig_of(cyclic(Fountain(100, MIB), Rounds(999, copies=2)))
    with pytest.raises(CycleOverflow, match=r"^cycle loop -> fork -> loop holds "):
        rig.settle()
    assert rig.core.pressure.held_bytes <= 3 * CYCLE_VALUES * MIB


def test_a_cycle_whose_tuples_grow_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backpressure, "MOST_FOR_VALUES", 8 * MIB)

    def doubles(bolt: DoesBasic, tup: Tuple, out: Any) -> None:
        out.emit((2 * tup["value"],), stream="back")

    rig = rig_of(cyclic(Burst([1000]), DoesBasic(doubles, {"back": ("value",)})))
    with pytest.raises(CycleOverflow, match=r"allowed: 8 MiB; "):
        rig.settle()
    assert rig.core.pressure.held_bytes <= 2 ** 5 * 8 * MIB


@pytest.mark.parametrize(("edges", "cycles"), [
    ("ab bc", []),
    ("aa", [["a"]]),
    ("ab ba", [["a", "b"]]),
    ("sa ab bc ca cd de ed", [["a", "b", "c"], ["d", "e"]]),
    ("ab ba bc cb", [["a", "b", "c"]]),
])
def test_cycles_are_found(edges: str, cycles: list[list[str]]) -> None:
    graph: dict[str, set[str]] = {name: set() for name in sorted(set(edges) - {" "})}
    for source, target in edges.split():
        graph[source].add(target)
    assert find_cycles(graph) == cycles
