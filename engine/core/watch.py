"""Lets something see the batches of a running worker: a trace follows messages, a tap shows tuples.

Guarantees
    * A worker that nothing watches pays four loops over nothing for a batch.
    * What watches changes no tuple, no order and no ack. A trace cuts a batch around the tuples that it follows, as the
      end of a slice does; that of a batch bolt stays whole.
    * Of a message that is followed, each task notes when a tuple left its task, came into the queue of the next one,
      and was executed; its spout notes the emit, the ack and each failure. Times are of the monotonic clock, which all
      processes of a machine share.

Relies on: `Seen` being fast and not raising. Thread: the worker's loop; `execute` also that of an executor that has its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from squall.engine.api.component import BatchBolt
from squall.engine.api.failure import Failure
from squall.engine.api.stream import TICK_STREAM, declared
from squall.engine.api.topology import ALL
from squall.engine.api.tuple import Tuple
from squall.engine.core.executor import BoltTask, Process, Watch
from squall.engine.core.worker_core import WorkerCore
from squall.engine.flow.batch import Batch
from squall.engine.flow.ids import ACKER_BITS
from squall.engine.foreign.text import repr_of
from squall.engine.tracking.open_messages import OpenMessages

_TEXT_CHARS = 300
Seen = Callable[[Sequence[Any]], None]
"""Takes one event: its kind, and what `Trace` or `Tap` says of that kind. Any thread."""


def watch(core: WorkerCore, watches: Sequence[Watch]) -> None:
    """Have these, and no others, see the batches of a worker from now on."""
    core.watches = core.tracking.watches = watches
    for executor in core.bolts:
        executor.watches = watches


class Marked(Protocol):
    """Messages that a spout has chosen to follow, by root: known to all workers before a tuple of theirs arrives."""

    @property
    def roots(self) -> set[int]: ...

    def mark(self, root: int) -> None: ...


class Hit(NamedTuple):
    """A run of a batch that belongs to a message that is followed."""

    begin: int
    """Its first row."""
    rows: int
    root: int
    edge: int


def _is_chosen(root: int, every: int) -> bool:
    """Return True if a message is the one in `every` (0: none) that a sample has. All workers choose alike."""
    return bool(every and root) and not (root >> ACKER_BITS) % every


def hits_of(batch: Batch, every: int, marked: Collection[int]) -> list[Hit]:
    """The runs of one message in `every` (0: of none), and of those that are marked, in the order of their rows."""
    roots: Sequence[int] = batch.roots
    runs: Sequence[int]
    if isinstance(roots, range) and not marked:
        # Those in a block are consecutive numbers: nothing is looked at but the members that are followed.
        runs = range(-(roots.start >> ACKER_BITS) % every, len(roots), every) if every else ()
    else:
        runs = [run for run, root in enumerate(roots) if _is_chosen(root, every) or root in marked]
    if not runs:
        return []
    starts, edges = [*batch.starts, len(batch.rows)], batch.edges
    return [Hit(starts[run], starts[run + 1] - starts[run], roots[run], edges[run]) for run in runs]


def _id_text(message_id: Any) -> str:
    """A message's id as people write it."""
    return message_id[:_TEXT_CHARS] if type(message_id) is str else repr_of(message_id, _TEXT_CHARS)


class Trace(Watch):
    """Follows one message in `every`, or those with one id, through this worker.

    Events::

        emit     time, root, spout task, message id, values
        left     time, root, edge, task, stream, receiving task, tuples
        arrived  time, root, edge, task, stream, receiving task
        executed begin, end, root, edge, task, its tuples, tuples that were executed together, whether its tree failed
        acked    time, root, spout task
        failed   time, root, spout task, reason, component, task, error, attempt
    """

    def __init__(
        self, core: WorkerCore, seen: Seen, now_ns: Callable[[], int], marked: Marked, every: int = 0,
        message_id: str = "",
    ) -> None:
        """`every`: follow one message in so many (0: none); `message_id`: the text of the id of those to follow."""
        self._core, self._seen, self._now_ns, self._marked = core, seen, now_ns, marked
        self._every, self._message_id = every, message_id
        self._outboxes = {task.task: executor.outbox for executor in core.bolts for task in executor.tasks}
        self._open: dict[tuple[int, str], int] = {}
        """(spout task, text of a message's id) -> root, of messages of spouts here that are followed."""
        self._again: set[tuple[int, str]] = set()
        """Of those, what has failed: the next attempt is followed, too."""

    def left(self, batch: Batch) -> None:
        spout = self._core.spout_tasks.get(batch.source)
        if spout is not None:
            self._emitted(spout.pending, batch)
        if hits := self._hits(batch):
            now_ns = self._now_ns()
            for _, rows, root, edge in hits:
                self._seen(("left", now_ns, root, edge, batch.source, batch.stream, batch.target, rows))

    def _hits(self, batch: Batch) -> list[Hit]:
        return hits_of(batch, self._every, self._marked.roots)

    def _emitted(self, pending: OpenMessages, batch: Batch) -> None:
        """Look for messages to follow among those that a spout emits."""
        if self._message_id or self._again:
            roots: Iterable[int] = batch.roots
        else:
            roots = [hit.root for hit in self._hits(batch)]
        for root in roots:
            message = pending.message_of(root) if root else None
            if message is None:
                continue
            message_id, values = message
            key = batch.source, _id_text(message_id)
            if self._open.get(key) == root:
                continue
            if key in self._again or key[1] == self._message_id:
                self._again.discard(key)
                self._marked.mark(root)
            elif not _is_chosen(root, self._every):
                continue
            self._open[key] = root
            shown = declared(self._core.topology[self._core.plan.task_component[batch.source]].outputs, values)
            self._seen(("emit", self._now_ns(), root, *key, repr_of(shown, _TEXT_CHARS)))

    def arrived(self, batch: Batch) -> None:
        if hits := self._hits(batch):
            now_ns = self._now_ns()
            for hit in hits:
                self._seen(("arrived", now_ns, hit.root, hit.edge, batch.source, batch.stream, batch.target))

    def execute(self, process: Process, task: BoltTask, batch: Batch) -> None:
        hits = self._hits(batch) if batch.stream != TICK_STREAM else []
        if not hits:
            process(task, batch)
            return
        if isinstance(task.user, BatchBolt):
            self._timed(process, task, batch, hits)
            return
        done, new_edge = 0, self._outboxes[task.task].edges.next
        for hit in hits:
            if hit.begin > done:
                process(task, batch.split(hit.begin - done, new_edge))
            done = hit.begin + hit.rows
            its = batch.split(hit.rows, new_edge) if hit.rows < len(batch.rows) else batch
            self._timed(process, task, its, [hit])
        if its is not batch:
            process(task, batch)

    def _timed(self, process: Process, task: BoltTask, batch: Batch, hits: list[Hit]) -> None:
        rows, began_ns = len(batch.rows), self._now_ns()
        try:
            process(task, batch)
        finally:
            self._executed(task, began_ns, hits, rows)

    def ended(self, task: BoltTask, tup: Tuple, began_ns: int) -> None:
        root = tup._run.root
        if root in self._marked.roots or _is_chosen(root, self._every):
            self._executed(task, began_ns, [Hit(0, 1, root, tup._run.edge)], 1)

    def _executed(self, task: BoltTask, began_ns: int, hits: Iterable[Hit], rows: int) -> None:
        ended_ns, failed = self._now_ns(), self._outboxes[task.task].fails
        for _, its, root, edge in hits:
            self._seen(("executed", began_ns, ended_ns, root, edge, task.task, its, rows, root in failed))

    def acked(self, task: int, roots: Container[int]) -> None:
        now_ns = self._now_ns()
        for key, root in [(key, root) for key, root in self._open.items() if key[0] == task and root in roots]:
            del self._open[key]
            self._seen(("acked", now_ns, root, task))

    def failed(self, task: int, message_ids: Sequence[Any], failure: Failure) -> None:
        if not self._open:
            return
        for key in {(task, _id_text(message_id)) for message_id in message_ids} & self._open.keys():
            self._again.add(key)
            where = failure.reason, failure.component, failure.task, failure.error, failure.attempt
            self._seen(("failed", self._now_ns(), self._open.pop(key), task, *where))


class Tap(Watch):
    """Shows some of the tuples that tasks emit, or that they execute if nothing reads what they emit.

    Event::

        tuple    time, task, stream, values, "emitted" or "executed"
    """

    def __init__(
        self, core: WorkerCore, seen: Seen, now_ns: Callable[[], int], component: str, most_per_sec: int
    ) -> None:
        self._plan = plan = core.plan
        outputs = core.topology[component].outputs
        self._seen, self._now_ns, self._topology = seen, now_ns, core.topology
        self._tasks = frozenset(plan.tasks_of(component))
        readers = {stream: core.topology.subscribers(component, stream) for stream in outputs}
        self._reader = {
            stream: frozenset(plan.tasks_of(specs[0][0].id)) for stream, specs in readers.items() if specs
        }
        """Stream -> the tasks of one of its readers: what goes to all of them is shown once."""
        self._all = {stream for stream, specs in readers.items() if specs and specs[0][1].grouping == ALL}
        self._pause_ns = 1_000_000_000 // most_per_sec
        self._next_ns = 0

    def left(self, batch: Batch) -> None:
        reader = self._reader.get(batch.stream, ())
        is_first = batch.target in reader and (batch.stream not in self._all or batch.target == min(reader))
        if is_first and batch.source in self._tasks:
            self._show(self._plan.task_component[batch.source], batch.stream, batch.rows, batch.source, "emitted")

    def execute(self, process: Process, task: BoltTask, batch: Batch) -> None:
        if not self._reader and task.task in self._tasks and batch.stream != TICK_STREAM:
            self._show(self._plan.task_component[batch.source], batch.stream, batch.rows, task.task, "executed")
        process(task, batch)

    def ended(self, task: BoltTask, tup: Tuple, began_ns: int) -> None:
        if not self._reader and task.task in self._tasks and not tup.is_tick:
            self._show(tup.source_component, tup.source_stream, [tup.values], task.task, "executed")

    def _show(self, source: str, stream: str, rows: Sequence[Any], task: int, what: str) -> None:
        now_ns = self._now_ns()
        if now_ns < self._next_ns or not len(rows):
            return
        self._next_ns = now_ns + self._pause_ns
        shown = declared(self._topology[source].outputs, rows[0], stream)
        self._seen(("tuple", now_ns, task, stream, repr_of(shown, _TEXT_CHARS), what))
