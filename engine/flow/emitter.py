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

from squall.engine.api.plan import Plan
from squall.engine.api.stream import Stream
from squall.engine.api.topology import FIELDS, Subscription, Topology
from squall.engine.api.tuple import Run
from squall.engine.errors import ComponentError
from squall.engine.flow.batch import OpenBatch
from squall.engine.flow.groupings import ChooseMany, ChooseOne, KeyHash, KeyMemo, Values, make_chooser
from squall.engine.flow.outbox import Outbox
from squall.engine.foreign.picklable import PickleCheck
from squall.engine.foreign.sizes import row_bytes
from squall.engine.foreign.text import repr_of
from squall.engine.plural import plural

PlaceOne = ChooseOne[OpenBatch]
Choosers = Callable[[Sequence[OpenBatch]], tuple[PlaceOne | None, ChooseMany[OpenBatch] | None]]
"""What chooses among the open batches of a route, for one target or any number."""


class Route:
    """One subscription seen from one sending task: its target tasks, and the batch open to each."""

    __slots__ = ("batches", "many", "one", "outbox", "subscription", "targets")

    def __init__(
        self, source: int, stream: str, subscription: Subscription, targets: Sequence[int], outbox: Outbox,
        bits: dict[int, int], choosers: Choosers, check: PickleCheck, open_batch: Callable[..., OpenBatch] = OpenBatch,
    ) -> None:
        self.subscription = subscription
        self.targets = list(targets)
        self.batches = [open_batch(source, stream, target, bits, check) for target in targets]
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
                    f"not {repr_of(values)}"
                )
            values = tuple(values)
        if len(values) != len(self.shape.fields):
            raise ComponentError(
                f"{self.who} emitted {plural(len(values), 'value')} {repr_of(values)}, but its fields are "
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
                route.outbox.start_joined_run(batch, runs, values)
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
                route.outbox.start_joined_run(batch, runs, values)
                batch.rows.append(values)
                return [task]
        known = sorted(task for route in self.routes for task in route.targets)
        if known:
            raise ComponentError(f"{self.who} cannot send to task {repr_of(task)}; its subscribers' tasks are {known}")
        return []

    def takes(self, task: int) -> bool:
        """Whether a direct emit may name this task: if it fails all the same, that is its values' doing."""
        return self.shape.direct and (not self.routes or any(task in route.targets for route in self.routes))

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
        hash_of = KeyHash(self.who, subscription.fields)
        return KeyMemo(self.routes[0].batches, hash_of), self.shape.index[subscription.fields[0]]


class PickledStreamOut(StreamOut):
    """The same for `debug`: every value is pickled."""

    __slots__ = ("_pickles",)

    def __init__(self, who: str, shape: Stream, routes: list[Route]) -> None:
        super().__init__(who, shape, routes)
        self._pickles = PickleCheck(who, shape.fields)

    def check(self, values: Any) -> Values:
        checked = super().check(values)
        self._pickles.test(checked)
        return checked

    def fast_place(self) -> PlaceOne | None:
        """The short cuts check nothing."""
        return None


def _append(batch: OpenBatch, values: Values, key: object, run: Run, outbox: Outbox) -> None:
    if batch.last is not key:
        outbox.start_run(batch, key, run, values)
    batch.rows.append(values)


class Emitter:
    """All output streams of one task."""

    def __init__(
        self, component: str, task: int, worker: int, topology: Topology, plan: Plan, outbox: Outbox,
        bits: dict[int, int], rng: random.Random, context: Any = None, debug: bool = False,
        open_batch: Callable[..., OpenBatch] = OpenBatch,
    ) -> None:
        """`debug`: whether each value is pickled to see that it can be; else the first of their kinds are."""
        self.component = component
        self.task = task
        self.outbox = outbox
        self.streams: dict[str, StreamOut] = {}
        for name, shape in topology[component].outputs.items():
            routes = []
            who = f"{component}[{task}] stream {name!r}"
            check = PickleCheck(who, shape.fields)
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
                    hash_of=KeyHash(who, subscription.fields),
                )
                routes.append(Route(task, name, subscription, targets, outbox, bits, choosers, check, open_batch))
            self.streams[name] = (PickledStreamOut if debug else StreamOut)(who, shape, routes)
        self._routed = [route.batches for stream in self.streams.values() for route in stream.routes]

    def stream(self, name: str) -> StreamOut:
        """A declared stream, or ComponentError."""
        try:
            return self.streams[name]
        except KeyError:
            declared = ", ".join(map(repr, self.streams)) or "none"
            raise ComponentError(
                f"{self.component}[{self.task}] emitted to undeclared stream {repr_of(name)}; declared: {declared}"
            ) from None

    def count_batch(self, stream: str, rows: int) -> None:
        """A batch was closed. Where each emit is one row (see `fast_place`), this is how emits are counted."""
        out = self.streams[stream]
        if out.counted_by_batch:
            out.emitted += rows

    def newest_row_bytes(self) -> int:
        """About how much memory what was emitted last to each stream holds; 0 if nothing is there to be looked at."""
        size = 0
        for batches in self._routed:
            for batch in batches:
                if batch.rows:
                    size += row_bytes(batch.rows[-1])
                    break
        return size

    def open_bytes(self) -> int:
        """About how much memory what was emitted since the last flush holds."""
        return sum(
            len(batch.rows) * row_bytes(batch.rows[-1]) for batches in self._routed for batch in batches if batch.rows
        )

    @property
    def emitted(self) -> int:
        """Emits so far, over all streams."""
        return sum(stream.emitted for stream in self.streams.values())
