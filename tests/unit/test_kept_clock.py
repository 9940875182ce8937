"""The clock by which state ages: what it makes of jumps, restarts and reboots; and of state and windows under jumps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall import StatefulBolt, TopologyBuilder, TopologyContext, bolt, spout
from squall.engine.clock import NS_PER_SEC, ManualClock
from squall.engine.state.task_store import TaskStore
from squall.engine.state.times import KeptClock, kept_clock
from squall.testing import SimulatedCluster
from tests.unit.test_windows import Shows as Windows

HOUR, DAY = 3600, 86_400
SECS = st.integers(0, 10**6)


class Machine:
    """A machine with a store that outlives what runs on it."""

    def __init__(self) -> None:
        self.store, self.up_secs, self.wall_secs, self.boots = TaskStore(None, "count[1]"), 5, DAY, 0
        self.restart()

    def restart(self) -> None:
        self.clock = KeptClock(
            self.store, lambda: self.up_secs * NS_PER_SEC, lambda: self.wall_secs * NS_PER_SEC, str(self.boots)
        )

    def passes(self, secs: int) -> None:
        self.up_secs += secs
        self.wall_secs += secs

    def reboot(self, after_secs: int) -> None:
        self.boots, self.up_secs = self.boots + 1, 3
        self.wall_secs += after_secs
        self.restart()

    def commit(self) -> None:
        with self.store.changing():
            self.clock.write()

    @property
    def now_secs(self) -> float:
        return self.clock.now_ns() / NS_PER_SEC


@given(st.lists(st.tuples(st.sampled_from(["passes", "jump", "restart", "reboot", "look"]), SECS, st.booleans())))
def test_it_never_goes_back_and_moves_as_the_uptime(steps: list[tuple[str, int, bool]]) -> None:
    machine = Machine()
    for step, secs, down in steps:
        machine.commit()
        before, passed = machine.now_secs, 0
        match step:
            case "passes":
                machine.passes(passed := secs)
            case "jump":
                machine.wall_secs += -secs if down else secs
            case "restart":
                machine.passes(passed := secs)
                machine.restart()
            case "reboot":
                machine.clock.jump()
                machine.reboot(-secs if down else secs)
                passed = 0 if down else secs
            case "look":
                machine.clock.jump()
        assert machine.now_secs == before + passed


def test_a_jump_is_described_once_whoever_sees_it() -> None:
    machine = Machine()
    machine.commit()
    machine.wall_secs += 1
    assert machine.clock.jump() == ""
    machine.wall_secs += HOUR
    assert "jumped forward by 3601 s" in machine.clock.jump()
    machine.restart()
    assert machine.clock.jump() == ""
    machine.wall_secs -= HOUR
    machine.restart()
    assert "jumped back by 3600 s" in machine.clock.jump()
    machine.reboot(after_secs=50)
    assert machine.clock.jump() == ""
    assert machine.now_secs == DAY + 50
    machine.commit()
    machine.reboot(after_secs=-HOUR)
    assert machine.now_secs == DAY + 50
    assert "jumped back by 3600 s" in machine.clock.jump()


def test_of_the_machine_it_is_the_wall_clock_at_first() -> None:
    context: Any = SimpleNamespace(now_ns=time.monotonic_ns, wall_ns=time.time_ns)
    assert abs(kept_clock(TaskStore(None, "count[1]"), context).now_ns() - time.time_ns()) < 60 * NS_PER_SEC


def schedule(at_secs: Iterable[int]) -> Any:
    """Emits its seconds when they have come, of the simulated clock."""

    @spout("n")
    def seconds(context: TopologyContext) -> Iterator[int | None]:
        for secs in at_secs:
            while context.now_ns() < secs * NS_PER_SEC:
                yield None
            yield secs

    return seconds


class Uses(StatefulBolt):
    """Counts the tuples, in a value that is kept for ten seconds after its last use."""

    outputs = ("at", "uses")
    state_ttl_secs = 10

    def execute(self, tup: Any, collector: Any) -> None:
        uses = self.state["uses"] = self.state.get("uses", 0) + 1
        collector.emit((tup["n"], uses))


@pytest.mark.parametrize(("jump_secs", "restarts"), [(-HOUR, True), (-5, False), (5, True), (HOUR, False)])
def test_a_jump_ages_no_state_early_or_late_and_doubles_no_window_and_cuts_none_short(
    jump_secs: int, restarts: bool
) -> None:
    """After four and a half seconds, perhaps while the worker is dead."""
    at_secs = range(DAY, DAY + 40)
    bursts = [DAY + secs for secs in (1, 2, 3, 9, 30, 31)]
    shows = bolt(lambda tup: None)
    builder = TopologyBuilder()
    builder.set_spout("seconds", schedule(at_secs))
    builder.set_spout("bursts", schedule(bursts))
    builder.set_bolt("uses", Uses()).global_grouping("bursts")
    builder.set_bolt("windows", Windows().with_tumbling_window(secs=8)).global_grouping("seconds")
    builder.set_bolt("shows", shows).global_grouping("uses").global_grouping("windows")
    with SimulatedCluster(builder.build(), clock=ManualClock(NS_PER_SEC * DAY)) as cluster:
        cluster.advance(4.5)
        if restarts:
            cluster.kill(0)
        cluster.clock.jump(jump_secs)
        if restarts:
            cluster.restart(0)
        cluster.run()
        told = [component for component, _, text in cluster.errors if f"by {abs(jump_secs)} s" in text]
        assert sorted(told) == ["uses", "windows"]
        used, rows = dict(cluster.emitted["uses"]), cluster.emitted["windows"]
    assert used == dict(zip(bursts, [1, 2, 3, 4, 1, 2], strict=True))
    assert [(row[1], row[3]) for row in rows] == [
        (start, list(range(start, start + 8))) for start in range(DAY, DAY + 40, 8)
    ]
