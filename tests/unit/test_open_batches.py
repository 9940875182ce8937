"""What a task holds for the tasks that it may send to does not grow with their number until it sends to them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from squall.engine.api.builder import BoltDeclarer, TopologyBuilder
from squall.engine.api.component import CustomGrouping
from squall.engine.core.surroundings import Parts
from squall.engine.flow.batch import OpenBatch
from squall.engine.flow.groupings import number_in
from tests.unit.rig import Does, Feeder, Rig, acks

SENDERS, TARGETS = 40, 300


class ToEverySecond(CustomGrouping):
    def prepare(self, context: Any, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.tasks = itertools.cycle(target_tasks[::2])

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        return [next(self.tasks)]


GROUPINGS: dict[str, Callable[[BoltDeclarer], object]] = {
    "shuffle": lambda bolt: bolt.shuffle_grouping("spout"),
    "local or shuffle": lambda bolt: bolt.local_or_shuffle_grouping("spout"),
    "fields": lambda bolt: bolt.fields_grouping("spout", "value"),
    "partial key": lambda bolt: bolt.partial_key_grouping("spout", "value"),
    "global": lambda bolt: bolt.global_grouping("spout"),
    "none": lambda bolt: bolt.none_grouping("spout"),
    "all": lambda bolt: bolt.all_grouping("spout"),
    "custom": lambda bolt: bolt.custom_grouping("spout", ToEverySecond()),
}


def rig_of(grouping: str, made: list[int]) -> tuple[Feeder, Rig]:
    """Many senders, many targets; each open batch that is made is noted, by its sender."""

    def note(source: int, *rest: Any) -> OpenBatch:
        made.append(source)
        return OpenBatch(source, *rest)

    spout, builder = Feeder(), TopologyBuilder()
    builder.set_spout("spout", spout, 1, tasks=SENDERS)
    GROUPINGS[grouping](builder.set_bolt("bolt", Does(acks), 1, tasks=TARGETS))
    return spout, Rig(builder, around={"parts": Parts(open_batch=note)})


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_who_emits_has_a_batch_for_each_task_that_was_chosen(grouping: str) -> None:
    made: list[int] = []
    spout, rig = rig_of(grouping, made)
    for number in range(1000):
        spout.feed(number, id=number)
    rig.settle()
    copies = TARGETS if grouping == "all" else 1
    assert sum(rig.core.stats[task].executed for task in rig.plan.tasks_of("bolt")) == 1000 * copies
    assert len(spout.acked) == 1000
    assert max(Counter(made).values()) <= TARGETS


@pytest.mark.parametrize("task", [0, -1, 10**9, "x", None, (1,), 1.5])
def test_a_task_that_is_none_of_many_is_refused(task: Any) -> None:
    with pytest.raises((KeyError, TypeError)):
        number_in(range(1, TARGETS), task)
    assert number_in(range(1, TARGETS), TARGETS - 1) == TARGETS - 2
