"""Processes that stand still, run for a share of the time, or have no disk: when, and that it ends."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.faults.in_force import PERIOD_SECS, DaemonFaults, FaultInForce, Victim, write_faults
from squall.scheduler.faults.resolution import ANYBODY, LinkEnds
from tests.process.waiting import wait_for
from tests.unit.waiting_child import waiting_child

HERE = "node-1"


def carrier(name: str = HERE) -> DaemonFaults:
    return DaemonFaults(RunDir("/nowhere"), name)


@pytest.fixture
def child() -> Iterator[Victim]:
    with waiting_child() as made:
        yield Victim("node-1:6700", made.pid, process.start_time_ticks(made.pid), 1)


def fault(kind: str, *victims: Victim, number: int = 1, ends: float = 20.0, **params: object) -> FaultInForce:
    return FaultInForce(number, kind, ["x"], 10.0, ends, HERE, list(victims), params=params)


def stands_still(victim: Victim) -> bool:
    return process.is_stopped(victim.pid)


def await_still(victim: Victim, still: bool) -> None:
    wait_for("a stop" if still else "it to go on", lambda: stands_still(victim) is still)


def stopping(child: Victim) -> DaemonFaults:
    """The child stands still by a fault."""
    faults = carrier()
    faults.take([fault("stop", child)], 10.0)
    await_still(child, True)
    return faults


def has_disk(victim: Victim) -> bool:
    return resource.prlimit(victim.pid, resource.RLIMIT_FSIZE)[0] != 0


def test_a_stop_has_a_begin_and_an_end(child: Victim) -> None:
    faults = stopping(child)
    assert faults.next_deadline(10.0) == 20.0
    faults.tick(19.9)
    assert stands_still(child)
    faults.tick(20.0)
    await_still(child, False)
    assert faults.next_deadline(20.0) is None


def test_a_fault_that_is_healed_or_forgotten_ends(child: Victim) -> None:
    for after in ([fault("stop", child, ends=11.0)], []):
        stopping(child).take(after, 11.0)
        await_still(child, False)


def test_the_next_one_continues_whom_a_dead_one_has_stopped(child: Victim) -> None:
    stopping(child)
    carrier().take([fault("stop", child)], 30.0)
    await_still(child, False)


def test_a_process_with_another_start_time_is_left_alone(child: Victim) -> None:
    other = Victim(child.name, child.pid, child.started_ticks - 1)
    carrier().take([fault("stop", other)], 10.0)
    assert not stands_still(child)


def test_a_throttled_process_runs_for_its_share() -> None:
    throttled = fault("throttle", share=0.2)
    steps = 1000
    stopped = sum(throttled.holds(10.0 + 5.0 * step / steps) for step in range(steps))
    assert 0.75 < stopped / steps < 0.85
    now, changes = 10.0, 0
    while (at := throttled.changes_at(now)) is not None and changes < 20:
        assert now < at <= now + PERIOD_SECS
        now, changes = at + 1e-6, changes + 1
    assert changes == 20
    assert not throttled.holds(20.0)
    assert throttled.changes_at(20.0) is None


def test_a_disk_is_taken_away_and_given_back(child: Victim) -> None:
    faults = carrier()
    faults.take([fault("disk-full", child), fault("disk-full", child, number=2, ends=30.0)], 10.0)
    assert not has_disk(child)
    faults.tick(20.0)
    assert not has_disk(child), "another fault still holds it"
    faults.tick(30.0)
    assert has_disk(child)
    faults.take([fault("disk-full", child, number=3, ends=40.0)], 31.0)
    assert not has_disk(child)
    # Who takes over from a dead one gives back what that had taken, too.
    carrier().take([fault("disk-full", child, number=3, ends=40.0)], 41.0)
    assert has_disk(child)


def test_a_daemon_that_leaves_mends_what_it_broke(child: Victim) -> None:
    faults = carrier()
    faults.take([fault("stop", child), fault("disk-full", child, number=2)], 10.0)
    await_still(child, True)
    faults.end(11.0)
    await_still(child, False)
    assert has_disk(child)


def test_forks_are_refused_before_the_notice_of_the_fault_has_come(run_dir: RunDir) -> None:
    faults = DaemonFaults(run_dir, HERE)
    write_faults(run_dir, [fault("fork-refused", number=3)])
    assert faults.fork_refusal(10.0) == "fault 3 refuses forks"
    write_faults(run_dir, [])
    assert faults.fork_refusal(11.0) == ""


def test_a_link_is_named_by_worker_or_node() -> None:
    broken = FaultInForce(1, "partition", [], 0.0, 1.0, links=[LinkEnds("node-1", "node-2:6700")])
    assert broken.breaks("node-1:6701", "node-2:6700")
    assert not broken.breaks("node-1:6701", "node-2:6701")
    assert not broken.breaks("node-2:6700", "node-1:6701")
    assert FaultInForce(1, "drop", [], 0.0, 1.0, links=[LinkEnds(ANYBODY, ANYBODY)]).breaks("a:1", "b:2")
