"""Fault points: a plan is understood or refused, and a point that fires is the last thing a process does."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Container

import pytest

from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.errors import UsageError
from squall.scheduler.common.fault_points import ENVIRONMENT, POINTS, FaultPoints, entry_of, from_environment
from squall.scheduler.worker.names import names_of

DEADLINE_SECS = 40.0
PLAN_OF_TWO = Plan(
    [[ExecutorPlan("count", 3, 3), ExecutorPlan("my bolt@,", 1, 1)], [ExecutorPlan("count", 4, 5)]],
    ["node-1:6700", "node-1:6701"],
)


def passes_survived(
    plan: str, incarnation: int, *points: str, names: Container[str] = ()
) -> tuple[int, int | None]:
    """How many of these points a process of these names passes under a plan, and its exit code."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def body() -> None:
        faults = FaultPoints(plan, incarnation, lambda: names)
        for point in points:
            faults.hit(point)
            theirs.send_bytes(b".")

    process = multiprocessing.get_context("fork").Process(target=body)
    process.start()
    theirs.close()
    survived = 0
    try:
        while ours.poll(DEADLINE_SECS):
            ours.recv_bytes()
            survived += 1
    except EOFError:
        process.join(DEADLINE_SECS)
    ours.close()
    code = process.exitcode
    process.close()
    return survived, code


@pytest.mark.parametrize("plan", ["", ",", ",,"])
def test_nothing_is_armed_by_default(plan: str) -> None:
    points = FaultPoints(plan, 1)
    assert not points.armed
    for point in POINTS:
        points.hit(point)


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_nth_pass_is_the_last(nth: int) -> None:
    points = ["worker.send"] * 7
    assert passes_survived(f"worker.send:{nth}", 1, *points) == (nth - 1, -signal.SIGKILL)


def test_other_points_are_not_counted() -> None:
    points = ("worker.step", "worker.send", "worker.step", "worker.send", "worker.step")
    assert passes_survived("worker.send:2", 1, *points) == (3, -signal.SIGKILL)
    assert passes_survived("worker.open:1", 1, *points) == (5, 0)


def test_several_points_count_for_themselves() -> None:
    points = ("worker.step", "worker.send", "worker.step", "worker.send")
    assert passes_survived("worker.send:2,worker.step:2", 1, *points) == (2, -signal.SIGKILL)


def test_death_is_told_first_with_each_entry_that_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[object] = []
    monkeypatch.setattr("os.kill", lambda pid, signum: happened.append(signum))
    plan = "worker.send:2@count,worker.step:9,worker.send:2@node-1,worker.send:3,worker.send:2@other"
    points = FaultPoints(plan, 1, lambda: {"count", "node-1"}, happened.append)
    for _ in range(2):
        points.hit("worker.send")
    assert happened == ["worker.send:2@count", "worker.send:2@node-1", signal.SIGKILL]


def test_only_the_first_incarnation_dies_unless_it_says_always() -> None:
    assert not FaultPoints("worker.send:1", 2).armed
    assert FaultPoints("worker.send:1", 1).armed
    assert FaultPoints("worker.send:1:always", 2).armed
    assert passes_survived("worker.send:1", 2, "worker.send") == (1, 0)
    assert passes_survived("worker.send:1:always,worker.step:1", 2, "worker.step", "worker.send") == (
        1, -signal.SIGKILL,
    )  # fmt: skip


@pytest.mark.parametrize(
    "entry",
    [
        "worker.send", "worker.send:", "worker.send:0", "worker.send:-1", "worker.send:1.5", "worker.send:²",
        "worker.send:x", "worker.sned:1", "Worker.send:1", ":1", "worker.send:1:ever", "worker.send:1:always:x", "1",
    ],
)  # fmt: skip
def test_entry_that_is_not_understood_is_quoted(entry: str) -> None:
    with pytest.raises(UsageError) as caught:
        FaultPoints(f"worker.step:1,{entry}", 1)
    assert str(caught.value) == (
        f"fault point {entry!r} is not understood; write point:n or point:n:always, point being one of "
        "worker.open, worker.ready, worker.receive, worker.acks, worker.step, worker.send, worker.credit, "
        "worker.publish, worker.stop"
    )


def test_point_is_for_workers_of_a_name() -> None:
    plan = PLAN_OF_TWO
    here, there = (names_of("node-1", 6700 + slot, slot, plan) for slot in (0, 1))
    assert here == {"node-1", "node-1:6700", "count", "count[0]", "my bolt@,", "my bolt@,[0]"}
    assert there == {"node-1", "node-1:6701", "count", "count[1]", "count[2]"}
    for name in here | there:
        entry = entry_of("worker.send", 2, name)
        for names in (here, there):
            assert FaultPoints(f"{entry},{entry_of('worker.step', 1, 'x')}", 1, lambda names=names: names).armed == (
                name in names
            )
    assert not FaultPoints(entry_of("worker.send", 2, "count"), 2, lambda: here).armed
    both = f"{entry_of('worker.send', 3, 'count')},{entry_of('worker.send', 2, 'node-1')}"
    for entries in (both, ",".join(reversed(both.split(",")))):
        assert passes_survived(entries, 1, *["worker.send"] * 4, names=here) == (1, -signal.SIGKILL), "at the earlier"


def test_wrong_plan_is_refused_in_every_incarnation() -> None:
    with pytest.raises(UsageError, match=r"'worker\.sned:1' is not understood"):
        FaultPoints("worker.sned:1", 2)


def test_plan_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert from_environment(1) is None
    monkeypatch.setenv(ENVIRONMENT, "worker.send:3")
    points = from_environment(1)
    assert points is not None
    assert points.armed
    assert from_environment(2) is None
