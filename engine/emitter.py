"""Emitting: from values to open batches, through the groupings. The first half of a tuple's way.

Guarantees: a tuple that breaks its stream's declaration (unknown stream, wrong number of values, emit on a direct
stream) is refused at once, before any id is drawn, by an error that names component, stream and fields.

One emitter per sending task, used by that task's thread. It costs the tuple path one call: each stream gets a function
specialised for its subscriptions when the task is set up, so that nothing is decided twice.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from engine.batch import OpenBatch
from engine.errors import ComponentError
from engine.groupings import ChooseMany, ChooseOne, KeyMemo, Values, make_chooser
from engine.outbox import Outbox
from engine.plan import Plan
from engine.stream import Stream
from engine.topology import FIELDS, Subscription, Topology
from engine.tuple import Run

PlaceOne = ChooseOne[OpenBatch]
Choosers = Callable[[Sequence[OpenBatch]], tuple[PlaceOne | None, ChooseMany[OpenBatch] | None]]
"""What chooses among the open batches of a route, for one target or any number."""


class Route:
    """One subscription seen from one sending task: its target tasks, and the batch open to each."""

    __slots__ = ("batches", "many", "one", "outbox", "subscription", "targets")

    def __init__(
        self, source: int, stream: str, subscription: Subscription, targets: Sequence[int], outbox: Outbox,
        bits: dict[int, int], choosers: Choosers,
    ) -> None:
        self.subscription = subscription
        self.targets = list(targets)
        self.batches = [OpenBatch(source, stream, target, bits) for target in targets]
        self.outbox = outbox
        self.one, self.many = choosers(self.batches)


class StreamOut:
    """One output stream of one task."""

    __slots__ = ("counted_by_batch", "emitted", "routes", "shape", "who")

    def __init__(self, who: str, shape: Stream, routes: list[Route]) -> None:
        self.who = who
        self.shape = shape
        self.routes = routes
        self.emitted = 0
        self.counted_by_batch = False
        """Set when `BasicCollector` takes its short cut, which leaves the counting to `Emitter.count_batch`."""

    def check(self, values: Any) -> Values:
        """`values` as a tuple of the right length, or ComponentError."""
        if values.__class__ is not tuple:
            if not isinstance(values, tuple | list):
                raise ComponentError(
                    f"{self.who} must emit a tuple or list of values for ({', '.join(self.shape.fields)}), "
                    f"not {values!r:.80}"
                )
            values = tuple(values)
        if len(values) != len(self.shape.fields):
            raise ComponentError(
                f"{self.who} emitted {len(values)} values {values!r:.80}, but its fields are "
                f"({', '.join(self.shape.fields)})"
            )
        return values  # type: ignore[no-any-return]

    def place(self, values: Values, key: object, run: Run) -> list[int]:
        """Append checked values to the batches of every route; the task ids they go to."""
        if self.shape.direct:
            raise self._needs_task()
        self.emitted += 1
        tasks: list[int] = []
        for route in self.routes:
            batches = (route.one(values),) if route.one is not None else route.many(values)  # type: ignore[misc]
            for batch in batches:
                _append(batch, values, key, run, route.outbox)
                tasks.append(batch.target)
        return tasks

    def place_joined(self, values: Values, runs: list[Run]) -> list[int]:
        """As `place`, anchored to several inputs."""
        if self.shape.direct:
            raise self._needs_task()
        self.emitted += 1
        tasks: list[int] = []
        for route in self.routes:
            batches = (route.one(values),) if route.one is not None else route.many(values)  # type: ignore[misc]
            for batch in batches:
                route.outbox.start_joined_run(batch, runs)
                batch.rows.append(values)
                tasks.append(batch.target)
        return tasks

    def _needs_task(self) -> ComponentError:
        return ComponentError(f"{self.who} is a direct stream; use emit_direct(task, values)")

    def place_direct(self, task: int, values: Values, runs: list[Run]) -> list[int]:
        """Append to the batch of one task the sender named."""
        if not self.shape.direct:
            raise ComponentError(f"{self.who} is not a direct stream; use emit, or declare it with direct=True")
        self.emitted += 1
        for route in self.routes:
            if task in route.targets:
                batch = route.batches[route.targets.index(task)]
                route.outbox.start_joined_run(batch, runs)
                batch.rows.append(values)
                return [task]
        known = sorted(task for route in self.routes for task in route.targets)
        if known:
            raise ComponentError(f"{self.who} cannot send to task {task!r}; its subscribers' tasks are {known}")
        return []

    def fast_place(self) -> PlaceOne | None:
        """For a stream with one subscription that picks one task: the batch for given values."""
        return self.routes[0].one if len(self.routes) == 1 else None

    def fast_memo(self) -> tuple[KeyMemo[OpenBatch], int] | None:
        """As `fast_place` for a fields grouping by one field: a dict of key -> batch, and where the key stands."""
        if len(self.routes) != 1:
            return None
        subscription = self.routes[0].subscription
        if subscription.grouping != FIELDS or len(subscription.fields) != 1:
            return None
        return KeyMemo(self.routes[0].batches), self.shape.index[subscription.fields[0]]


def _append(batch: OpenBatch, values: Values, key: object, run: Run, outbox: Outbox) -> None:
    if batch.last is not key:
        outbox.start_run(batch, key, run)
    batch.rows.append(values)


class Emitter:
    """All output streams of one task."""

    def __init__(
        self, component: str, task: int, worker: int, topology: Topology, plan: Plan, outbox: Outbox,
        bits: dict[int, int], rng: random.Random, context: Any = None,
    ) -> None:
        self.component = component
        self.task = task
        self.outbox = outbox
        self.streams: dict[str, StreamOut] = {}
        for name, shape in topology[component].outputs.items():
            routes = []
            for spec, subscription in topology.subscribers(component, name):
                targets = plan.tasks_of(spec.id)
                if subscription.custom is not None:
                    # A grouping keeps what it is prepared with, and one object may serve several senders and bolts.
                    grouping = copy.deepcopy(subscription.custom)
                    grouping.prepare(context, component, name, targets)
                    subscription = replace(subscription, custom=grouping)
                choosers = partial(
                    make_chooser, subscription, shape, task, targets, plan.tasks_of(spec.id, worker),
                    random.Random(rng.random()),
                )
                routes.append(Route(task, name, subscription, targets, outbox, bits, choosers))
            self.streams[name] = StreamOut(f"{component}[{task}] stream {name!r}", shape, routes)

    def stream(self, name: str) -> StreamOut:
        """A declared stream, or ComponentError."""
        try:
            return self.streams[name]
        except KeyError:
            declared = ", ".join(map(repr, self.streams)) or "none"
            raise ComponentError(
                f"{self.component}[{self.task}] emitted to undeclared stream {name!r}; declared: {declared}"
            ) from None

    def count_batch(self, stream: str, rows: int) -> None:
        """A batch was closed. Where each emit is one row (see `fast_place`), this is how emits are counted."""
        out = self.streams[stream]
        if out.counted_by_batch:
            out.emitted += rows

    @property
    def emitted(self) -> int:
        """Emits so far, over all streams."""
        return sum(stream.emitted for stream in self.streams.values())
