"""The small topologies that the model runs: who emits to whom, and in which worker each task lives.

Pure data. A shape and its plan pickle as their name, because the exhaustive search keeps thousands of worlds as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.api.stream import ACKER_COMPONENT

PASS, JOIN, SELF_ANCHOR, RESETS = "pass", "join", "self anchor", "resets"
FAILS_FIRST, FORGETS_FIRST = "fails first", "forgets first"
"""The latter neither acks nor fails the first attempt."""


class BoltSpec(NamedTuple):
    """One bolt task: what it does with a tuple, and to which tasks it emits."""

    bit: int
    """Its mark in the set of bolts that have executed a tree."""
    worker: int
    kind: str
    targets: tuple[int, ...]


class NamedPlan(Plan):
    """A plan that pickles as the name of its shape."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _plan_of, (self.worker_names[0],)


@dataclass(frozen=True)
class Shape:
    """One topology on 2 or 3 workers. Tasks: ackers from 1, the spout at 9, bolts from 10."""

    name: str
    layout: str
    """Bolts as `name@worker:kind>targets`, the spout as `spout@worker>targets`, ackers as `acker@worker`."""
    messages: int = 1
    plan: NamedPlan = field(init=False, compare=False)
    bolts: dict[int, BoltSpec] = field(init=False, compare=False)
    first: tuple[int, ...] = field(init=False, compare=False)
    spout_worker: int = field(init=False, compare=False)
    spout_task: int = field(init=False, compare=False)
    full: int = field(init=False, compare=False)
    """Marks of all bolts."""
    fails: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        places: dict[str, tuple[int, str, list[str]]] = {}
        ackers: list[int] = []
        for entry in self.layout.split():
            head, _, targets = entry.partition(">")
            name, _, place = head.partition("@")
            worker, _, kind = place.partition(":")
            if name == "acker":
                ackers.append(int(worker))
            else:
                places[name] = (int(worker), kind.replace("-", " ") or PASS, list(filter(None, targets.split(","))))
        tasks = {name: len(ackers) + 1 + index for index, name in enumerate(places)}
        n_workers = max([*ackers, *(worker for worker, _, _ in places.values())]) + 1
        executors: list[list[ExecutorPlan]] = [[] for _ in range(n_workers)]
        for index, worker in enumerate(ackers):
            executors[worker].append(ExecutorPlan(ACKER_COMPONENT, index + 1, index + 1))
        bolts = {}
        for name, (worker, kind, targets) in places.items():
            task = tasks[name]
            executors[worker].append(ExecutorPlan(name, task, task))
            if name != "spout":
                bolts[task] = BoltSpec(1 << len(bolts), worker, kind, tuple(tasks[target] for target in targets))
        worker, _, targets = places["spout"]
        values = {
            "plan": NamedPlan(executors, [self.name] * n_workers), "bolts": bolts, "spout_worker": worker,
            "spout_task": tasks["spout"], "first": tuple(tasks[target] for target in targets),
            "full": (1 << len(bolts)) - 1, "fails": any(bolt.kind == FAILS_FIRST for bolt in bolts.values()),
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _shape_of, (self.name,)


SHAPES = {shape.name: shape for shape in (
    Shape("edge", "acker@0 spout@0>a a@1"),
    Shape("chain", "acker@0 spout@0>a a@1>b b@0"),
    Shape("chain, acker apart", "acker@1 spout@0>a a@0>b b@1"),
    Shape("sent on", "acker@0 spout@0>a a@0>b b@1"),
    Shape("acker in a third worker", "acker@1 spout@0>a a@2"),
    Shape("fan-out", "acker@0 spout@0>a,b a@1 b@1"),
    Shape("two branches", "acker@0 spout@0>a,b a@0>c b@1>d c@1 d@0"),
    Shape("branches apart", "acker@0 spout@0>a,b a@1>c b@2>d c@2 d@1"),
    Shape("join", "acker@0 spout@0>a a@1:join>b b@0", messages=2),
    Shape("the last first", "acker@0 spout@0>a a@1:join", messages=2),
    Shape("self anchor", "acker@0 spout@0>a a@1:self-anchor>b b@0"),
    Shape("no bolts", "acker@1 spout@0"),
    Shape("failing bolt", "acker@0 spout@0>a a@1:fails-first"),
    Shape("forgetful bolt", "acker@0 spout@0>a a@1:forgets-first"),
    Shape("resetting bolt", "acker@1 spout@0>a a@1:resets"),
    Shape("three workers", "acker@2 spout@0>a a@1>b,c b@2 c@0", messages=2),
    Shape("two ackers", "acker@0 acker@2 spout@1>a a@0:join>b,c b@1 c@2", messages=3),
    Shape("long chain", "acker@0 spout@0>a a@1>b b@2>c c@1:join>d d@0", messages=3),
)}
"""Those with one or two messages are small enough to be explored exhaustively."""


def _shape_of(name: str) -> Shape:
    return SHAPES[name]


def _plan_of(name: str) -> NamedPlan:
    return SHAPES[name].plan
