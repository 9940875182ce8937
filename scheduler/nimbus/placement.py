"""Which tasks an executor runs and which worker an executor runs in. Pure functions, the same answer every time.

Guarantees of `task_layout` (Storm's arithmetic): task ids are 1, 2, 3 … over components sorted by id, system ones
included; a component's tasks are cut into min(executors, tasks) contiguous ranges whose sizes differ by at most 1.

Guarantees of `place` (Storm's EvenScheduler)
    * No more workers than asked for, than free slots, or than executors; every worker has work.
    * The executors of one component are spread evenly: two workers differ by at most 1. Where that leaves a choice, the
      worker with less work gets the executor, so that totals are even as well.
    * One exception, because a tree's acker is best in its spout's own worker: where a choice is left for an acker, a
      worker that hosts a spout gets it, unless another would stay empty. The bolts that follow even the totals out as
      far as they can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from squall.scheduler.common.messages import ComponentSummary, ExecutorRef, SlotRef

_ORDER_OF_KINDS = {"spout": 0, "acker": 1}
"""Spouts first, then the ackers that follow them, then bolts, which fill up what is uneven."""


def task_layout(components: Iterable[ComponentSummary]) -> list[ExecutorRef]:
    """The executors of a topology, sorted by first task."""
    executors = []
    first = 1
    for component in sorted(components, key=lambda component: component.id):
        count = min(component.executors, component.tasks)
        for number in range(count):
            size = component.tasks // count + (number < component.tasks % count)
            executors.append(ExecutorRef(component.id, first, first + size - 1))
            first += size
    return executors


def place(
    executors: Sequence[ExecutorRef],
    n_workers: int,
    free_slots: Iterable[SlotRef],
    kinds: Mapping[str, str] | None = None,
) -> tuple[list[SlotRef], list[list[ExecutorRef]]] | None:
    """The workers' slots and each one's executors; None if there is no free slot (or nothing to place).

    `kinds` says what each component is ("spout", "bolt" or "acker"); one that is not in it counts as a bolt.
    """
    workers = interleave(free_slots)[: min(n_workers, len(executors))]
    if not workers:
        return None
    return workers, _deal(executors, [[] for _ in workers], kinds or {})


def replace_lost(
    workers: Sequence[SlotRef],
    work: Sequence[Sequence[ExecutorRef]],
    n_workers: int,
    usable_slots: Iterable[SlotRef],
    kinds: Mapping[str, str] | None = None,
) -> tuple[list[SlotRef], list[list[ExecutorRef]]] | None:
    """Where a placement goes whose slots are usable only in part; None if no slot is usable.

    What lies on usable slots stays there. The rest goes to free slots, as many as the topology is still to have, and
    what these cannot balance to the workers that stayed.
    """
    usable = set(usable_slots)
    kept = {slot: list(mine) for slot, mine in zip(workers, work, strict=True) if slot in usable}
    lost = [executor for slot, mine in zip(workers, work, strict=True) if slot not in usable for executor in mine]
    n_new = min(max(n_workers, 1) - len(kept), len(lost))
    new = interleave(usable - kept.keys())[: max(0, n_new)]
    if not kept and not new:
        return None
    return [*kept, *new], _deal(lost, [*kept.values(), *([] for _ in new)], kinds or {})


def _deal(
    executors: Sequence[ExecutorRef], work: list[list[ExecutorRef]], kinds: Mapping[str, str]
) -> list[list[ExecutorRef]]:
    """Hand out executors to workers that may have some already."""
    placed = [Counter(executor.component for executor in mine) for mine in work]
    hosts_spout = [any(kinds.get(executor.component) == "spout" for executor in mine) for mine in work]

    def order(executor: ExecutorRef) -> tuple[int, str, int]:
        return _ORDER_OF_KINDS.get(kinds.get(executor.component, "bolt"), 2), executor.component, executor.first_task

    for number, executor in enumerate(sorted(executors, key=order), 1):
        # Not at the price of a worker without work: each executor still to come can fill one empty worker.
        follow_spout = kinds.get(executor.component) == "acker" and len(executors) - number >= work.count([])
        chosen = min(
            range(len(work)),
            key=lambda w: (placed[w][executor.component], follow_spout and not hosts_spout[w], len(work[w]), w),
        )
        work[chosen].append(executor)
        placed[chosen][executor.component] += 1
        hosts_spout[chosen] |= kinds.get(executor.component) == "spout"
    return [sorted(mine, key=lambda executor: executor.first_task) for mine in work]


def interleave(slots: Iterable[SlotRef]) -> list[SlotRef]:
    """Slots so ordered that any first few of them lie on as many nodes as possible."""
    ports: dict[str, list[int]] = {}
    for slot in slots:
        ports.setdefault(slot.node, []).append(slot.port)
    nodes = [[SlotRef(node, port) for port in sorted(ports[node])] for node in sorted(ports)]
    return [slot for row in zip_longest(*nodes) for slot in row if slot is not None]
