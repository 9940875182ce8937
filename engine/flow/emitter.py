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
from functools import partial
from typing import Any

from squall.engine.api.columns import Columns
from squall.engine.api.context import TopologyContext
from squall.engine.api.stream import Stream, check_kind, check_width, checked_row, undeclared
from squall.engine.api.topology import FIELDS, Subscription, Topology
from squall.engine.errors import ComponentError
from squall.engine.flow.anchoring import Anchoring, Owned
from squall.engine.flow.batch import OpenBatch, made, open_batches
from squall.engine.flow.batch_groupings import Share, Spread, make_spread, named
from squall.engine.flow.groupings import (
    Choices,
    ChooseMany,
    ChooseOne,
    Chooser,
    KeyHash,
    Keys,
    TextHash,
    Values,
    custom_chooser,
    make_chooser,
    number_in,
)
from squall.engine.flow.outbox import Outbox
from squall.engine.flow.shuffle_rounds import Rounds
from squall.engine.foreign.given_columns import ALLOWED, column_mistake
from squall.engine.foreign.picklable import PickleCheck
from squall.engine.foreign.sizes import row_bytes
from squall.engine.foreign.stable_hash import stable_hash
from squall.engine.foreign.text import repr_of

UNNAMED: Any = object()
"""In place of a task: the grouping chooses."""
_LISTS = {list}
BatchFor = ChooseOne[OpenBatch]
Start = Callable[[OpenBatch, Any, Values], None]
Report = Callable[[BaseException], None]


class Route:
    """One subscription seen from one sending task: its target tasks, and the batch open to each."""

    __slots__ = (
        "_new_chooser", "_new_keys", "_shape", "_spread", "batches", "check", "divides", "many", "one", "subscription",
        "targets",
    )

    def __init__(
        self, subscription: Subscription, shape: Stream, targets: Sequence[int],
        new_batch: Callable[[int], OpenBatch], check: PickleCheck, new_chooser: Callable[[Keys[Any]], Chooser[Any]],
        new_keys: Callable[[Choices[Any]], Keys[Any]],
    ) -> None:
        """`new_batch` makes the batch open to a task; `new_keys` and `new_chooser` choose among anything that is
        numbered as the targets."""
        self.subscription = subscription
        self.divides = subscription.grouping == FIELDS
        """True if the values of a row alone say to which task it goes, so that a batch can be divided by column."""
        self.targets = targets
        self.batches = open_batches(len(targets), lambda number: new_batch(targets[number]))
        self.one: BatchFor | None
        self.many: ChooseMany[OpenBatch] | None
        self.one, self.many = new_chooser(new_keys(self.batches))
        self.check = check
        self._shape = shape
        self._new_chooser = new_chooser
        self._new_keys = new_keys
        self._spread: Spread | None = None

    def choose(self, values: Values, task: Any) -> Sequence[OpenBatch]:
        """The batches of the tasks that a tuple goes to, or of the one that its sender named."""
        if task is not UNNAMED:
            return (self.batches[number_in(self.targets, task)],)
        return (self.one(values),) if self.one is not None else self.many(values)  # type: ignore[misc]

    def spread(self, rows: Columns, task: Any) -> list[Share]:
        """The tasks that rows go to, or the one that their sender named, and which rows go to each."""
        if task is not UNNAMED:
            return named(number_in(self.targets, task))
        if self._spread is None:
            # Few senders emit batches; keys remembered take memory.
            keys = self._new_keys(range(len(self.targets)))
            self._spread = make_spread(self.subscription, self._shape, *self._new_chooser(keys), keys)
        return self._spread(rows)

    def leads_to(self, task: Any) -> bool:
        """Return True if a task that a sender names, whatever that is, is one of the targets."""
        try:
            number_in(self.targets, task)
        except (KeyError, TypeError):
            return False
        return True


Places = list[tuple[Route, list[Share]]]
"""For each route, the targets of a batch's rows."""


class StreamOut:
    """One output stream of one task."""

    __slots__ = (
        "counted_by_batch", "emitted", "newest_bytes", "outbox", "pickles", "routes", "shape", "text_hash", "watch",
        "who",
    )

    def __init__(
        self, who: str, shape: Stream, routes: list[Route], outbox: Outbox, text_hash: TextHash = stable_hash,
        pickles: PickleCheck | None = None,
    ) -> None:
        """`pickles`: for `debug`, tests each value; without it, the first one of each kind in a batch is looked at."""
        self.pickles = pickles
        self.outbox = outbox
        self.text_hash = text_hash
        self.who = who
        self.shape = shape
        self.routes = routes
        self.emitted = 0
        self.counted_by_batch = False
        """Emits are counted by `Emitter.count_batch`: each is one row of one batch."""
        self.watch: Callable[[Values, list[int]], object] | None = None
        """Told each row of a batch and its tasks, for hooks."""
        self.newest_bytes = 0
        """Estimated memory of a row of the newest batch that a spout emitted as a whole."""

    def check(self, values: Any, task: Any = UNNAMED) -> Values:
        """Return `values` as a tuple of the right length. Raises ComponentError, also if the stream does not go to the
        task."""
        if values.__class__ is not tuple or len(values) != len(self.shape.fields):
            values = checked_row(self.who, self.shape, values)
        if task is not UNNAMED or self.shape.direct:
            self._check_task(task)
        if self.pickles is not None:
            self.pickles.test(values)
        return values  # type: ignore[no-any-return]

    def _check_task(self, task: Any) -> None:
        check_kind(self.who, self.shape, task is not UNNAMED)
        if self.routes and not self._routes_to(task):
            known = sorted(task for route in self.routes for task in route.targets)
            raise ComponentError(
                f"{self.who} cannot send to task {repr_of(task)}; allowed: its subscribers' tasks, {known}"
            )

    def _routes_to(self, task: Any) -> list[Route]:
        """The route to a task that the sender named."""
        return [route for route in self.routes if route.leads_to(task)][:1]

    def append(self, values: Values, key: object, start: Start, task: Any = UNNAMED) -> list[int]:
        """Append checked values to their batches; returns the ids of the tasks. `key` marks tuples with the same
        anchor; `start(batch, key, values)` opens a run of such tuples."""
        tasks: list[int] = []
        for route in self.routes if task is UNNAMED else self._routes_to(task):
            for batch in route.choose(values, task):
                if batch.last is not key:
                    start(batch, key, values)
                batch.rows.append(values)
                tasks.append(batch.target)
        if not self.counted_by_batch:
            self.emitted += 1
        return tasks

    def check_columns(self, columns: Any, task: Any = UNNAMED) -> Columns:
        """Return columns as rows. Raises ComponentError, also if the stream does not go to the task."""
        check_width(self.who, self.shape, columns)
        if set(map(type, columns)) != _LISTS:
            columns = self._other_columns(columns)
        lengths = list(map(len, columns))
        if len(set(lengths)) != 1:
            told = ", ".join(f"{field} has {length}" for field, length in zip(self.shape.fields, lengths, strict=True))
            raise ComponentError(f"{self.who} emitted columns of different lengths: {told}")
        if task is not UNNAMED or self.shape.direct:
            self._check_task(task)
        rows = Columns(tuple(columns), lengths[0])
        if self.pickles is not None:
            for row in rows:
                self.pickles.test(row)
        elif rows and self.routes:
            self.routes[0].check.look(rows[0])
        return rows

    def _other_columns(self, columns: Sequence[Any]) -> list[Any]:
        """Check columns that are not all lists. Tuples become some."""
        for field, column in zip(self.shape.fields, columns, strict=True):
            mistake = column_mistake(column)
            if mistake is not None:
                raise ComponentError(f"{self.who} field {field!r}: {mistake} is no column; allowed: {ALLOWED}")
        return [list(column) if type(column) is tuple else column for column in columns]

    def spread(self, rows: Columns, task: Any = UNNAMED) -> Places:
        """Where checked rows go. Raises what a grouping raises; nothing was put anywhere then."""
        routes = self.routes if task is UNNAMED else self._routes_to(task)
        return [(route, route.spread(rows, task)) for route in routes]

    def append_batch(
        self, rows: Columns, places: Places, owned: Owned, anchoring: Anchoring
    ) -> None:
        """Put rows where `spread` said, anchored to the runs that own them."""
        outbox = self.outbox
        for route, shares in places:
            rest, left = owned, len(shares) if route.divides else 0
            for target, wanted in shares:
                instead_of = route.batches[target]
                chosen = rows if wanted is None else rows.select(wanted)
                # Counting rows costs more than subtracting their numbers.
                owners = rest if wanted is None or left == 1 else owned.where(wanted)
                if left > 1:
                    rest, left = rest.without(owners), left - 1
                mask = instead_of.bits[instead_of.target]
                outbox.put(instead_of, anchoring.batch_of(chosen, owners, instead_of, mask, outbox.edges))
        self.emitted += len(rows)
        if self.watch is not None:
            for row, tasks in zip(rows, _tasks_of(rows, places), strict=True):
                self.watch(row, tasks)

    def only_route(self) -> Route | None:
        """The only route, if every tuple goes to one task of one bolt. An emit may then bypass `append`."""
        if len(self.routes) != 1 or self.routes[0].one is None or self.shape.direct or self.pickles is not None:
            return None
        return self.routes[0]


class Emitter:
    """All output streams of one task."""

    def __init__(
        self, topology: Topology, context: TopologyContext, outbox: Outbox, bits: dict[int, int], rng: random.Random,
        open_batch: Callable[..., OpenBatch], debug: bool,
    ) -> None:
        """`debug`: whether each value is pickled as a check; else only the first of each kind."""
        self.component = component = context.component_id
        self.task = task = context.task_id
        plan, text_hash = context.plan, context.text_hash
        self.outbox = outbox
        self.streams: dict[str, StreamOut] = {}
        self.rounds: list[Rounds[Any]] = []
        """Of the shuffles among several tasks, for rows and for batches."""
        for name, shape in topology[component].outputs.items():
            routes = []
            who = f"{component}[{task}] stream {name!r}"
            check = PickleCheck(who, shape.fields)
            new_batch = partial(open_batch, task, name, bits=bits, check=check)
            for spec, subscription in topology.subscribers(component, name):
                targets = plan.tasks_of(spec.id)
                new_keys = partial(
                    Keys, n_targets=len(targets), hash_of=KeyHash(who, subscription.fields), text_hash=text_hash
                )
                new_rng = partial(random.Random, rng.random())
                new_chooser: Callable[[Keys[Any]], Chooser[Any]]
                if subscription.custom is not None:
                    # A grouping keeps what it is prepared with, and one object may serve several senders and bolts.
                    grouping = copy.deepcopy(subscription.custom)
                    grouping.prepare(context, component, name, targets)
                    new_chooser = partial(custom_chooser, grouping, task, targets)
                else:
                    near = plan.tasks_of(spec.id, plan.task_worker[task])
                    new_chooser = partial(make_chooser, subscription, shape, targets, near, new_rng, self.rounds.append)
                routes.append(Route(subscription, shape, targets, new_batch, check, new_chooser, new_keys))
            pickles = PickleCheck(who, shape.fields) if debug else None
            self.streams[name] = StreamOut(who, shape, routes, outbox, text_hash, pickles)
        self._routed = [route.batches for stream in self.streams.values() for route in stream.routes]

    def stream(self, name: str) -> StreamOut:
        """A declared stream, or ComponentError."""
        try:
            return self.streams[name]
        except KeyError:
            raise undeclared(f"{self.component}[{self.task}]", name, self.streams) from None

    def misplaced(self, call: str, given: Sequence[Any], *names: str, message_id: Any = None) -> ComponentError:
        """The error of a call with arguments by position that must be given by name: `names`, in an earlier order; the
        first of them is there already if `message_id` is not None."""
        names = names if message_id is None else names[1:]
        [first, *more] = given
        if not more and isinstance(first, str) and (first in self.streams or "message_id" not in names):
            names = ("stream",)
        meant = ", ".join(
            f"{name}={repr_of(value) if isinstance(value, str | int) else '...'}"
            for name, value in zip(names, given, strict=False)
        )
        return ComponentError(
            f"{self.component}[{self.task}] called {call}, {', '.join(map(repr_of, given))}); arguments after the "
            f"{call.rpartition(' ')[2].rpartition('(')[2]} need their names: write {meant}"
        )

    def count_batch(self, stream: str, rows: int) -> None:
        """Count the rows of a closed batch as emits, on streams where each emit is one row of one batch."""
        out = self.streams[stream]
        if out.counted_by_batch:
            out.emitted += rows

    def newest_row_bytes(self) -> int:
        """Estimated memory of the last emit on each stream; 0 if none is left in a batch."""
        size = 0
        for batches in self._routed:
            for batch in made(batches):
                if batch.rows:
                    size += row_bytes(batch.rows[-1])
                    break
        return size or max((stream.newest_bytes for stream in self.streams.values()), default=0)

    @property
    def emitted(self) -> int:
        """Emits so far, over all streams."""
        return sum(stream.emitted for stream in self.streams.values())


def _tasks_of(rows: Columns, places: Places) -> list[list[int]]:
    """The tasks that each row went to."""
    tasks: list[list[int]] = [[] for _ in rows]
    for route, shares in places:
        for target, wanted in shares:
            for index, its in enumerate(tasks):
                if wanted is None or wanted[index]:
                    its.append(route.batches[target].target)
    return tasks
