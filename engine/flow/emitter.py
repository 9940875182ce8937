"""Puts emitted values into open batches, through the groupings: the first half of a tuple's way.

Guarantees: a tuple that breaks its stream's declaration (unknown stream, wrong number of values, emit on a direct
stream) is refused at once, before any id is drawn, by an error that names component, stream and fields.

One emitter per sending task. It costs the tuple path one call: each stream gets a function specialised for its
subscriptions when the task is set up, so that nothing is decided twice.

Thread: the sending task's.
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
from squall.engine.flow.groupings import ChooseMany, ChooseOne, KeyHash, Keys, TextHash, Values, make_chooser
from squall.engine.flow.outbox import Outbox
from squall.engine.foreign.picklable import PickleCheck
from squall.engine.foreign.sizes import row_bytes
from squall.engine.foreign.stable_hash import stable_hash
from squall.engine.foreign.text import repr_of
from squall.engine.plural import plural

UNNAMED: Any = object()
"""In place of a task: the grouping chooses."""
BatchFor = ChooseOne[OpenBatch]
Choosers = Callable[[Sequence[OpenBatch]], tuple[BatchFor | None, ChooseMany[OpenBatch] | None]]
"""The function that chooses among the open batches of a route, for one target or any number."""


class Route:
    """One subscription seen from one sending task: its target tasks, and the batch open to each."""

    __slots__ = ("batches", "many", "one", "subscription", "targets")

    def __init__(
        self, source: int, stream: str, subscription: Subscription, targets: Sequence[int], bits: dict[int, int],
        choosers: Choosers, check: PickleCheck, open_batch: Callable[..., OpenBatch] = OpenBatch,
    ) -> None:
        self.subscription = subscription
        self.targets = list(targets)
        self.batches = [open_batch(source, stream, target, bits, check) for target in targets]
        self.one, self.many = choosers(self.batches)

    def choose(self, values: Values, task: Any) -> Sequence[OpenBatch]:
        """The batches of the tasks that a tuple goes to, or of the one that its sender named."""
        if task is not UNNAMED:
            return (self.batches[self.targets.index(task)],)
        return (self.one(values),) if self.one is not None else self.many(values)  # type: ignore[misc]


class StreamOut:
    """One output stream of one task."""

    __slots__ = ("counted_by_batch", "emitted", "outbox", "routes", "shape", "text_hash", "who")

    def __init__(
        self, who: str, shape: Stream, routes: list[Route], outbox: Outbox, text_hash: TextHash = stable_hash
    ) -> None:
        self.outbox = outbox
        self.text_hash = text_hash
        self.who = who
        self.shape = shape
        self.routes = routes
        self.emitted = 0
        self.counted_by_batch = False
        """Emits are counted by `Emitter.count_batch`: each is one row of one batch."""

    def check(self, values: Any, task: Any = UNNAMED) -> Values:
        """Return `values` as a tuple of the right length. Raises ComponentError, also if the stream does not go to the
        task."""
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
        if task is not UNNAMED or self.shape.direct:
            self._check_task(task)
        return values  # type: ignore[no-any-return]

    def _check_task(self, task: Any) -> None:
        if task is UNNAMED:
            raise ComponentError(f"{self.who} is a direct stream; use emit_direct(task, values)")
        if not self.shape.direct:
            raise ComponentError(f"{self.who} is not a direct stream; use emit, or declare it with direct=True")
        if self.routes and not self._routes_to(task):
            known = sorted(task for route in self.routes for task in route.targets)
            raise ComponentError(
                f"{self.who} cannot send to task {repr_of(task)}; allowed: its subscribers' tasks, {known}"
            )

    def _routes_to(self, task: Any) -> list[Route]:
        """The route to a task that the sender named."""
        return [route for route in self.routes if task in route.targets][:1]

    def append(self, values: Values, key: object, anchor: Run | list[Run], task: Any = UNNAMED) -> list[int]:
        """Append checked values to their batches; returns the ids of the tasks. `anchor`: the run that they belong to,
        or several; `key` marks tuples with the same anchor."""
        outbox = self.outbox
        tasks: list[int] = []
        for route in self.routes if task is UNNAMED else self._routes_to(task):
            for batch in route.choose(values, task):
                if batch.last is not key:
                    if anchor.__class__ is list:
                        outbox.start_joined_run(batch, anchor, values)
                    else:
                        outbox.start_run(batch, key, anchor, values)  # type: ignore[arg-type]
                batch.rows.append(values)
                tasks.append(batch.target)
        if not self.counted_by_batch:
            self.emitted += 1
        return tasks

    def only_route(self) -> Route | None:
        """The only route, if every tuple goes to one task of one bolt. An emit may then bypass `append`."""
        if len(self.routes) != 1 or self.routes[0].one is None or self.shape.direct:
            return None
        return self.routes[0]

    def by_one_field(self, route: Route) -> tuple[Keys[OpenBatch], int] | None:
        """Of a fields grouping by one field: the batches by key, and the key's index in a tuple."""
        subscription = route.subscription
        if subscription.grouping != FIELDS or len(subscription.fields) != 1:
            return None
        hash_of = KeyHash(self.who, subscription.fields)
        return Keys(route.batches, hash_of, self.text_hash), self.shape.index[subscription.fields[0]]


class PickledStreamOut(StreamOut):
    """The same for `debug`: every value is pickled."""

    __slots__ = ("_pickles",)

    def __init__(
        self, who: str, shape: Stream, routes: list[Route], outbox: Outbox, text_hash: TextHash = stable_hash
    ) -> None:
        super().__init__(who, shape, routes, outbox, text_hash)
        self._pickles = PickleCheck(who, shape.fields)

    def check(self, values: Any, task: Any = UNNAMED) -> Values:
        checked = super().check(values, task)
        self._pickles.test(checked)
        return checked

    def only_route(self) -> Route | None:
        """None: an emit that bypasses `append` would check nothing."""
        return None


class Emitter:
    """All output streams of one task."""

    def __init__(
        self, component: str, task: int, worker: int, topology: Topology, plan: Plan, outbox: Outbox,
        bits: dict[int, int], rng: random.Random, context: Any = None, debug: bool = False,
        open_batch: Callable[..., OpenBatch] = OpenBatch, text_hash: TextHash = stable_hash,
    ) -> None:
        """`debug`: whether each value is pickled as a check; else only the first of each kind. `text_hash`: see
        `Keys`."""
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
                    hash_of=KeyHash(who, subscription.fields), text_hash=text_hash,
                )
                routes.append(Route(task, name, subscription, targets, bits, choosers, check, open_batch))
            self.streams[name] = (PickledStreamOut if debug else StreamOut)(who, shape, routes, outbox, text_hash)
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
        """Count the rows of a closed batch as emits, on streams where each emit is one row of one batch."""
        out = self.streams[stream]
        if out.counted_by_batch:
            out.emitted += rows

    def newest_row_bytes(self) -> int:
        """Estimated memory of the last emit on each stream; 0 if none is left in a batch."""
        size = 0
        for batches in self._routed:
            for batch in batches:
                if batch.rows:
                    size += row_bytes(batch.rows[-1])
                    break
        return size

    def open_bytes(self) -> int:
        """Estimated memory of the emits since the last flush."""
        return sum(
            len(batch.rows) * row_bytes(batch.rows[-1]) for batches in self._routed for batch in batches if batch.rows
        )

    @property
    def emitted(self) -> int:
        """Emits so far, over all streams."""
        return sum(stream.emitted for stream in self.streams.values())
