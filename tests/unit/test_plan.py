"""The physical plan and its look-ups."""

from __future__ import annotations

from squall.engine.api.plan import ExecutorPlan, Plan

PLAN = Plan(
    [
        [ExecutorPlan("count", 3, 4), ExecutorPlan("__acker", 2, 2)],
        [ExecutorPlan("count", 5, 5), ExecutorPlan("__acker", 1, 1), ExecutorPlan("lines", 6, 6)],
    ],
    ["node-1:6700", "node-1:6701"],
)


def test_who_is_where() -> None:
    assert PLAN.n_workers == 2
    assert PLAN.task_worker == {1: 1, 2: 0, 3: 0, 4: 0, 5: 1, 6: 1}
    assert PLAN.task_component[4] == "count"


def test_tasks_of_a_component_are_sorted() -> None:
    assert PLAN.tasks_of("count") == [3, 4, 5]
    assert PLAN.tasks_of("count", 0) == [3, 4]
    assert PLAN.tasks_of("count", 1) == [5]
    assert PLAN.tasks_of("lines", 0) == []
    assert PLAN.tasks_of("nothing") == []


def test_ackers_are_numbered_by_task_id() -> None:
    assert PLAN.ackers == [1, 2]
    assert Plan([[ExecutorPlan("lines", 1, 1)]], ["n:1"]).ackers == []
