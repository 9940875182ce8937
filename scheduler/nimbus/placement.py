"""Deals tasks to executors, executors to workers, and workers to slots that have not given the topology up. Pure
functions: the same input gives the same answer.

Guarantees of `task_layout` (Storm's arithmetic): task ids are 1, 2, 3 … over components sorted by id, system ones
included; a component's tasks are cut into min(executors, tasks) contiguous ranges whose sizes differ by at most 1.

Guarantees of `place` (Storm's EvenScheduler)
    * No more workers than asked for, than free slots, or than executors; every worker has work.
    * The executors of one component are spread evenly: two workers differ by at most 1. If that leaves a choice, the
      worker with less work gets the executor, so that totals are even as well; among those, the one with fewer spouts.
    * Bolts with one executor (a sink, a global bolt) choose first, while workers without spouts have the least work: in
      a spout's worker such a bolt would hold up the spout, whose other bolts can go on elsewhere.
    * One exception, because a tree's acker is best in its spout's worker: if there is a choice for an acker, a worker
      that hosts a spout gets it, unless another would stay empty. The bolts, which follow, even the totals out as far
      as they can.

Guarantees of `usable`: a slot that gave a topology up gets none of its work again while there is another one, until an
operator resets it. If there is no other, it keeps its work and stays FAILED.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from squall.engine.api.plan import ExecutorPlan
from squall.scheduler.common.messages import ComponentSummary, SlotRef, TopologyRecord

_ORDER_OF_KINDS = {"spout": 0, "acker": 1}
_SINGLE_BOLT, _BOLT = 2, 3
"""Spouts first, then the ackers, which follow spouts, then single bolts, which avoid spouts, then other bolts, which
even the totals out."""


def task_layout(components: Iterable[ComponentSummary]) -> list[ExecutorPlan]:
    """The executors of a topology, sorted by first task."""
    executors = []
    first = 1
    for component in sorted(components, key=lambda component: component.id):
        count = min(component.executors, component.tasks)
        for number in range(count):
            size = component.tasks // count + (number < component.tasks % count)
            executors.append(ExecutorPlan(component.id, first, first + size - 1))
            first += size
    return executors


def place(
    components: Sequence[ComponentSummary],
    n_workers: int,
    usable_slots: Iterable[SlotRef],
    before: Iterable[tuple[SlotRef, list[ExecutorPlan]]] = (),
) -> tuple[list[SlotRef], list[list[ExecutorPlan]]] | None:
    """The workers' slots, and the executors of each; None if there is no usable slot or no executor.

    `before`: slots and executors of a placement to repair: executors on usable slots stay, the others go to free slots,
    as many as the topology still asks for, and to the workers that stayed as far as that balances better.
    """
    kinds = {component.id: component.kind for component in components}
    usable = set(usable_slots)
    kept = {slot: [*mine] for slot, mine in before if slot in usable}
    staying = {executor for mine in kept.values() for executor in mine}
    homeless = [executor for executor in task_layout(components) if executor not in staying]
    new = interleave(usable - kept.keys())[: max(0, min(n_workers - len(kept), len(homeless)))]
    if not kept and not new:
        return None
    return [*kept, *new], _deal(homeless, [*kept.values(), *([] for _ in new)], kinds)


def _deal(
    executors: Sequence[ExecutorPlan], work: list[list[ExecutorPlan]], kinds: Mapping[str, str]
) -> list[list[ExecutorPlan]]:
    """Deal executors to workers that may have some already."""
    placed = [Counter(executor.component for executor in mine) for mine in work]
    spouts = [sum(kinds[executor.component] == "spout" for executor in mine) for mine in work]
    sizes = Counter(executor.component for executor in executors) + sum(placed, Counter())

    def order(executor: ExecutorPlan) -> tuple[int, str, int]:
        of_bolts = _SINGLE_BOLT if sizes[executor.component] == 1 else _BOLT
        kind = _ORDER_OF_KINDS.get(kinds[executor.component], of_bolts)
        return kind, executor.component, executor.first_task

    for number, executor in enumerate(sorted(executors, key=order), 1):
        # Never leave a worker without work for it: each executor still to come can fill one empty worker.
        follow_spout = kinds[executor.component] == "acker" and len(executors) - number >= work.count([])
        chosen = min(
            range(len(work)),
            key=lambda w: (
                placed[w][executor.component], follow_spout and not spouts[w], len(work[w]), spouts[w], w,
            ),
        )
        work[chosen].append(executor)
        placed[chosen][executor.component] += 1
        spouts[chosen] += kinds[executor.component] == "spout"
    return [sorted(mine, key=lambda executor: executor.first_task) for mine in work]


def interleave(slots: Iterable[SlotRef]) -> list[SlotRef]:
    """Order slots so that any first few lie on as many nodes as possible."""
    ports: dict[str, list[int]] = {}
    for slot in slots:
        ports.setdefault(slot.node, []).append(slot.port)
    nodes = [[SlotRef(node, port) for port in sorted(ports[node])] for node in sorted(ports)]
    return [slot for row in zip_longest(*nodes) for slot in row if slot is not None]


def untried(record: TopologyRecord, free: Iterable[SlotRef]) -> list[SlotRef]:
    """The free slots that have not given the topology up."""
    return [slot for slot in free if slot not in record.given_up]


def usable(record: TopologyRecord, own: set[SlotRef], free: Iterable[SlotRef], keep: bool) -> set[SlotRef]:
    """The slots that a placement may take. `own`: those that the topology has and that are offered; `keep`: it stays
    where it can."""
    new = set(untried(record, free))
    good = new | set(untried(record, own))
    if keep and not new:
        # Otherwise its work would move to healthy workers, which would die of it next.
        return own
    return good or own
