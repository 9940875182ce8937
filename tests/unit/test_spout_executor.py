"""When a spout is asked, and that it hears every answer whatever the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from squall import Failure, Spout, TopologyBuilder
from squall.engine.clock import ManualClock
from squall.engine.core.executor import TaskCrashed
from tests.unit.batch_rig import BatchFeeder
from tests.unit.rig import Does, Feeder, Rig, acks, aggregates, chain, keeps


def fed(count: int) -> Feeder:
    spout = Feeder()
    for number in range(count):
        spout.feed(number, id=number)
    return spout


def test_a_spout_that_is_not_active_is_not_asked_but_answered() -> None:
    spout, bolt = fed(1), Does(keeps)
    rig = Rig(chain(spout, bolt), message_timeout_secs=10)
    rig.settle()
    assert spout.calls[:3] == ["open", "activate", "next_tuple"]
    spout.feed("late", id="late")
    for _ in range(2):
        rig.core.set_active(False)
    assert spout.calls.count("deactivate") == 1
    spout.calls.clear()
    rig.user("bolt-1").collector.ack(bolt.kept[0])
    rig.settle()
    assert (spout.acked, spout.calls) == ([0], [])
    rig.core.set_active(True)
    rig.settle()
    rig.core.set_active(False)
    rig.advance(10)
    assert spout.reasons == [("late", "timeout")]
    assert spout.calls[0] == "activate"
    rig.close()
    assert spout.calls[-1] == "close"


def emits(spout: Feeder, count: int) -> None:
    spout.collector.emit((count,), message_id=count)


def emits_batch(spout: BatchFeeder, count: int) -> None:
    spout.collector.emit_batch(([count],), message_ids=[count])


@pytest.mark.parametrize(("base", "emit"), [(Feeder, emits), (BatchFeeder, emits_batch)])
def test_pending_count_counts_what_the_same_call_emitted(base: type[Spout], emit: Callable[..., None]) -> None:
    def fills(spout: Any, rows: int = 1) -> None:
        while (count := spout.collector.pending_count) < 3 and spout.collector.emitted < 9:
            emit(spout, count)

    rig = Rig(chain(type("Fills", (base,), {"next_tuple": fills, "next_batch": fills})(), Does(keeps)))
    rig.settle()
    assert rig.pending == 3


def test_no_more_trees_of_a_task_are_open_than_its_component_allows() -> None:
    spout, bolt = fed(100), Does(keeps)
    builder = TopologyBuilder()
    builder.set_spout("spout", spout, parallelism=1, tasks=2).set_config(max_spout_pending=3)
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout")
    rig = Rig(builder, max_spout_pending=7)
    for done in range(100):
        rig.settle()
        pending = [rig.user("spout", index).collector.pending_count for index in (0, 1)]
        assert pending == [3, 3] if done < 94 else sum(pending) == 100 - done
        rig.user("bolt").collector.ack(bolt.kept[done])
    rig.settle()
    assert sorted(spout.acked) == list(range(100))


def test_a_bolt_that_holds_more_than_the_first_limit_gets_more() -> None:
    """No limit is set. The bolt acks nothing before it has 5,000 tuples, and nothing else moves meanwhile."""
    spout = fed(10_000)
    rig = Rig(chain(spout, Does(aggregates(5000), ("count",))))
    for _ in range(20):
        rig.settle()  # up to an idle turn; the next one sees that it is the second
    assert sorted(spout.acked) == list(range(10_000))


def test_a_spout_is_finished_when_it_is_exhausted_and_nothing_is_pending() -> None:
    spout, bolt = fed(1), Does(keeps)
    rig = Rig(chain(spout, bolt))
    task = rig.spout_task
    rig.settle()
    rig.user("spout").exhausted = True
    rig.settle()
    assert not task.finished
    rig.user("bolt-1").collector.ack(bolt.kept[0])
    rig.settle()
    rig.settle()
    assert task.finished


# ---- spouts that emit elsewhere than in next_tuple ----


class Emits(Feeder):
    """Emits in one of its other methods, and never in next_tuple."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def emit_if(self, where: str) -> None:
        if where == self.where:
            self.where = ""
            self.collector.emit((where,), message_id=where)

    def open(self, *args: Any) -> None:
        super().open(*args)
        self.emit_if("open")

    def activate(self) -> None:
        self.emit_if("activate")

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        self.emit_if("ack")

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        super().on_failure(message_id, failure)
        self.emit_if("on_failure")


@pytest.mark.parametrize("where", ["open", "activate", "ack", "on_failure"])
def test_what_is_emitted_elsewhere_is_delivered_at_once(where: str) -> None:
    def execute(bolt: Does, tup: Any) -> None:
        (bolt.collector.fail if tup[0] == "fail me" else bolt.collector.ack)(tup)

    spout, bolt = Emits(where), Does(execute)
    rig = Rig(chain(spout, bolt))
    spout.feed("fail me" if where == "on_failure" else "ack me", id=1)
    rig.settle()
    assert (where,) in bolt.seen
    assert where in spout.acked
    assert rig.core.quiet
    assert rig.pending == 0


# ---- user code that raises ----


def test_an_ack_that_raises_is_not_counted_as_one() -> None:
    """A spout that dies of it again and again would seem to get on, and be started again without end."""
    spout = Feeder()
    spout.ack = lambda message_id: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    spout.feed("x", id=1)
    rig = Rig(chain(spout, Does(acks)))
    with pytest.raises(TaskCrashed, match="in ack"):
        rig.settle()
    task = rig.spout_task
    assert task.stats.acked == 0


def test_what_close_raises_is_collected_and_the_others_are_closed() -> None:
    spout, bolt, cleaned = Feeder(), Does(acks), list[str]()
    spout.close = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    bolt.cleanup = lambda: cleaned.append("bolt")  # type: ignore[method-assign]
    (crash,) = Rig(chain(spout, bolt)).close()
    assert str(crash).startswith("spout[3] raised ZeroDivisionError: division by zero in close (")
    assert cleaned == ["bolt"]


# ---- no tracking ----


class Sleeper(Feeder):
    """Takes a while for each tuple, as a spout that reads slowly or paces itself."""

    def __init__(self, secs: float) -> None:
        super().__init__()
        self.secs = secs
        self.clock: ManualClock | None = None

    def next_tuple(self) -> None:
        if self.clock is not None:
            self.clock.advance(self.secs)
        super().next_tuple()


@pytest.mark.parametrize(("secs", "most"), [(0.2, 1), (0.002, 1), (0.001, 3), (0.0001, 31)])
def test_a_spout_that_takes_its_time_does_not_keep_the_others_waiting(secs: float, most: int) -> None:
    spout = Sleeper(secs)
    rig = Rig(chain(spout, Does(acks)), threads=True, max_spout_pending=1000)
    for _ in range(10):
        rig.step()  # A worker's first turns are short, however quick its components.
    for number in range(1000):
        spout.feed(number, id=number)
    rig.user("spout").clock = rig.clock
    spout.calls.clear()
    rig.step()
    assert spout.calls.count("next_tuple") == most
    assert spout.acked == list(range(most)), "what a turn emits is executed and answered in it"
