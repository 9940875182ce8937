"""Queues are bounded in bytes: spouts stop first, then the bolts that feed a full queue; nothing waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from squall import Tuple
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, chain, emits, placed
from tests.unit.threads import threaded

KIB, MIB = 1024, 1 << 20
LIMIT = 64 * KIB
BOUNDED: dict[str, Any] = {"link_window_bytes": LIMIT, "max_spout_pending": None}


def fountain(count: int, size: int, tracked: bool = True) -> Feeder:
    """Emits `count` tuples of `size` bytes."""
    spout = Feeder()
    for number in range(count):
        spout.feed(bytes([number % 251]) * size, id=number if tracked else None)
    return spout


def close(rig: Rig, component: str) -> Callable[[], None]:
    """Keep a bolt from being run, as if it took its time; what opens it again."""
    task = rig.plan.tasks_of(component)[0]
    [executor] = [bolt for bolt in rig.core.bolts if bolt.tasks[0].task == task]
    executor.held += 1

    def reopen() -> None:
        executor.held -= 1

    return reopen


def queued(rig: Rig, component: str) -> int:
    return rig.core.bolt_tasks[rig.plan.tasks_of(component)[0]].queued_bytes


@pytest.mark.parametrize("ackers", [0, 1])
@pytest.mark.parametrize("size", [100, 10 * KIB, 10 * LIMIT])
def test_an_eager_spout_stops_at_a_full_queue(size: int, ackers: int) -> None:
    count = max(50, 20 * LIMIT // size)
    spout, sink = fountain(count, size, bool(ackers)), DoesBasic(lambda bolt, tup, out: None)
    rig = Rig(chain(spout, sink), **BOUNDED, ackers=ackers)
    reopen = close(rig, "bolt-1")
    rig.settle()
    assert LIMIT <= queued(rig, "bolt-1") <= LIMIT + max(LIMIT // 4, size) + 4 * KIB
    assert rig.core.pressure.held_bytes == queued(rig, "bolt-1")
    emitted = count - len(spout.queue)
    assert emitted < count
    rig.settle()
    assert count - len(spout.queue) == emitted, "it had stopped"
    reopen()
    rig.settle()
    assert len(sink.seen) == count
    assert rig.core.pressure.held_bytes == 0
    assert rig.core.quiet


def test_what_waits_for_another_worker_stops_the_spouts_and_holds_its_bolt() -> None:
    net = placed(chain(Feeder(), Does(emits(1), ("value",)), Does(acks)), "spout __acker bolt-1", "bolt-2")
    core, (target,) = net.core(0), net.plan.tasks_of("bolt-2")
    pressure, limit, (feeder,) = core.pressure, core.pressure.limit_bytes, core.bolts
    for waiting_bytes, full in ((limit - 1, False), (1, True), (-(limit // 2), True), (-1, False)):
        pressure.waits(target, waiting_bytes)
        assert (pressure.congested, pressure.stalled, feeder.held > 0) == (full, full, full)


# Threads


def test_a_thread_is_given_no_more_than_its_queue_may_hold_and_holds_who_feeds_it() -> None:
    go, spout = threading.Event(), fountain(500, KIB)
    sink = DoesBasic(lambda bolt, tup, out: go.wait(30), blocking=True)
    with threaded(chain(spout, Does(emits(10), ("value",)), sink), **BOUNDED) as rig:
        rig.settle()
        held, left = queued(rig, "bolt-2"), len(spout.queue)
        go.set()
        assert LIMIT <= held <= 3 * LIMIT
        assert left > 0
        rig.settle_until(lambda: len(spout.acked) == 500)
        assert len(sink.seen) == 5000
        assert rig.core.pressure.held_bytes == 0


def test_a_thread_whose_output_finds_no_room_waits() -> None:
    spout, sink = fountain(200, KIB), DoesBasic(lambda bolt, tup, out: None)
    middle = Does(emits(100), ("value",), blocking=True)
    with threaded(chain(spout, middle, sink), **BOUNDED) as rig:
        reopen = close(rig, "bolt-2")
        rig.settle_until(lambda: bool(rig.core.pressure.full) and not rig.core.blocking[0].busy)
        assert len(middle.seen) < 200
        reopen()
        rig.settle_until(lambda: len(spout.acked) == 200)
        assert len(sink.seen) == 200 * 100


def test_a_cycle_that_is_filled_to_the_brim_does_not_deadlock() -> None:
    """loop -> fork -> loop, twenty times."""
    done = []

    def send(bolt: DoesBasic, tup: Tuple, out: Any) -> None:
        value = tup["value"]
        if len(value) % 1000 < 20:
            out.emit((value + b"x",))
        else:
            done.append(value)

    spout = fountain(500, 1000)
    builder = chain(spout)
    builder.set_bolt("loop", Does(emits(1), ("value",))).shuffle_grouping("spout").shuffle_grouping("fork")
    builder.set_bolt("fork", DoesBasic(send, ("value",))).shuffle_grouping("loop")
    rig = Rig(builder, **BOUNDED)
    rig.settle()
    assert len(done) == 500
    assert sorted(spout.acked) == list(range(500))
    assert rig.core.pressure.held_bytes == 0
