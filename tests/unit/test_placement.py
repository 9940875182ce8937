"""Storm's arithmetic of tasks, executors and slots, and what `place` promises of any topology."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from operator import attrgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.engine.api.plan import ExecutorPlan
from squall.scheduler.common.messages import ComponentSummary, SlotRef
from squall.scheduler.nimbus.placement import place, task_layout


def component(id: str, executors: int, tasks: int | None = None, kind: str = "bolt") -> ComponentSummary:
    return ComponentSummary(id, kind, executors if tasks is None else tasks, executors)


def slots(nodes: int, ports: int) -> list[SlotRef]:
    return [SlotRef(f"node-{n}", 6700 + p) for n in range(1, nodes + 1) for p in range(ports)]


def counts(work: list[list[ExecutorPlan]]) -> list[Counter[str]]:
    return [Counter(executor.component for executor in mine) for mine in work]


def spread(components: list[ComponentSummary], workers: list[SlotRef]) -> list[Counter[str]]:
    placed = place(components, len(workers), workers)
    assert placed is not None
    return counts(placed[1])


first_task = attrgetter("first_task")


def test_task_ids_run_over_components_sorted_by_id() -> None:
    assert task_layout([component("b", 1, 2), component("a", 2), component("__acker", 1)]) == [
        ExecutorPlan("__acker", 1, 1),
        ExecutorPlan("a", 2, 2),
        ExecutorPlan("a", 3, 3),
        ExecutorPlan("b", 4, 5),
    ]


def test_a_single_acker_goes_where_the_spout_is() -> None:
    components = [component("a", 1), component("b", 2), component("z", 1, kind="spout")]
    components.append(component("__acker", 1, kind="acker"))
    found = spread(components, slots(3, 1))
    assert all(found)
    assert next(mine for mine in found if mine["z"])["__acker"] == 1


@pytest.mark.parametrize("others", [("a", 3), ("a", 2), ("z", 4)])
@pytest.mark.parametrize("ackers", [0, 1, 2])
def test_a_single_bolt_keeps_away_from_the_spout(others: tuple[str, int], ackers: int) -> None:
    components = [component("m", 1, kind="spout"), component("sink", 1), component(*others)]
    components += [component("__acker", ackers, kind="acker")] if ackers else []
    spouts, others_ = sorted(spread(components, slots(1, 2)), key=lambda mine: -mine["m"])
    assert (spouts["m"], spouts["sink"], others_["sink"]) == (1, 0, 1)
    assert abs(sum(spouts.values()) - sum(others_.values())) <= 1


def test_a_lost_single_bolt_goes_to_the_worker_with_fewer_spouts() -> None:
    components = [component("s", 2, kind="spout"), component("b", 1), component("sink", 1)]
    bolt, first, second, sink = task_layout(components)
    workers = slots(1, 4)
    work = [[first], [bolt], [second], [sink]]
    found = place(components, 3, workers[:3], zip(workers, work, strict=True))
    assert found == (workers[:3], [[first], [bolt, sink], [second]])


TOPOLOGIES = st.lists(
    st.tuples(st.sampled_from(["spout", "bolt", "acker"]), st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=7
).map(lambda rows: [component(f"c{i}", e, e + more, kind) for i, (kind, e, more) in enumerate(rows)])


@given(
    TOPOLOGIES, st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.sets(st.integers(0, 15)), st.integers(0, 3)
)
@settings(max_examples=300, deadline=None)
def test_any_topology_is_spread_evenly_and_whatever_is_lost_runs_somewhere_usable(
    components: list[ComponentSummary], n_workers: int, nodes: int, ports: int, gone: set[int], new: int
) -> None:
    executors, free = task_layout(components), slots(nodes, ports)
    placed = place(components, n_workers, free)
    assert placed == place(list(reversed(components)), n_workers, list(reversed(free)))
    assert placed is not None
    workers, work = placed
    assert len(workers) == len(set(workers)) == min(n_workers, len(free), len(executors))
    assert set(workers) <= set(free)
    assert all(mine == sorted(mine, key=first_task) and mine for mine in work)
    assert sorted(chain(*work), key=first_task) == executors
    for each in components:
        executed = [Counter(e.component for e in mine)[each.id] for mine in work]
        assert max(executed) - min(executed) <= 1
    if all(each.kind != "acker" for each in components):
        assert max(map(len, work)) - min(map(len, work)) <= 1
    usable = [slot for number, slot in enumerate(free) if number not in gone]
    usable += [SlotRef("node-9", 6700 + number) for number in range(new)]
    found = place(components, n_workers, usable, zip(*placed, strict=True))
    if found is None:
        assert not usable
        return
    after = dict(zip(*found, strict=True))
    assert set(after) <= set(usable)
    assert all(after.values())
    assert len(after) <= n_workers
    assert sorted(chain(*after.values()), key=first_task) == executors
    assert all(set(mine) <= set(after[slot]) for slot, mine in zip(*placed, strict=True) if slot in after)
