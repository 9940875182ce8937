"""The collector of a bolt with state: keeps its emits until they are committed.

Guarantees: nothing is emitted before `send`; emits of rows that failed are dropped. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, compress
from typing import Any

from squall.engine.api.collectors import BatchCollector
from squall.engine.api.stream import DEFAULT_STREAM, Declared, Stream
from squall.engine.errors import ComponentError
from squall.engine.foreign.given_columns import parents_of, values_of
from squall.engine.state.records.absorbed import Emitted, Group
from squall.engine.state.records.lineage import Children, Lineage


class HeldEmits:
    """The collector of a bolt with state: keeps its emits until they are committed."""

    def __init__(self, who: str, lineage: Lineage, streams: Mapping[str, Stream], read: frozenset[str]) -> None:
        self._who, self._declared, self._carried, self._read = who, Declared(who, streams), lineage.carried, read
        self.failed: dict[int, str] = {}
        self._ready: list[Emitted] = []
        self._children = Children(lineage, (), 1)
        self.drop()

    def begin(self, collector: BatchCollector, children: Children) -> None:
        """Take up a batch."""
        self._collector, self._children = collector, children
        self.failed = {}
        self.given: Sequence[int] = ()
        """The rows of the batch that the bolt sees, if not all."""
        self.row = 0
        """The row at hand."""
        self._ready = []
        self.drop()

    def drop(self) -> None:
        """Drop what was emitted and is not committed."""
        self._rows: dict[tuple[str, int | None], tuple[list[int], list[tuple[Any, ...]], list[int]]] = {}
        """Stream and task -> the row and the values of each emit, and its place in the following, if the stream carries
        identities."""
        self._parents: list[int] = []
        """The row of each emit on such streams."""
        self._batches: list[Emitted] = []
        self._children.drop()

    # ---- what the component calls ----

    def emit(self, values: Any, *, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit a tuple, once the state is committed. Returns an empty list: the tasks are not known yet."""
        return self.emit_direct(None, values, stream=stream)

    def emit_direct(self, task: int | None, values: Any, *, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit in the same way, to the task of this id."""
        values = self._declared.row(values, stream, task)
        if (its := self._rows.get((stream, task))) is None:
            its = self._rows[stream, task] = [], [], []
        row = self.row
        its[0].append(row)
        its[1].append(values)
        if stream in self._carried:
            its[2].append(len(self._parents))
            self._parents.append(row)
        return []

    def emit_batch(
        self, columns: Sequence[Any], *, counts: Sequence[int] | None = None, parents: Sequence[int] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit rows, once the state is committed."""
        self.emit_batch_direct(None, columns, counts=counts, parents=parents, stream=stream)

    def emit_batch_direct(
        self, task: int | None, columns: Sequence[Any], *, counts: Sequence[int] | None = None,
        parents: Sequence[int] | None = None, stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit in the same way, to the task of this id."""
        self._declared.check_columns(columns, stream, task)
        lists = tuple(list(values_of(column)) for column in columns)
        made, given = parents_of(len(lists[0]), counts, parents), self.given
        if any(len(column) != len(made) for column in lists):
            raise ComponentError(
                f"{self._who} stream {stream!r} emitted columns of {', '.join(str(len(column)) for column in lists)} "
                f"rows, and counts or parents for {len(made)}"
            )
        if given:
            made = [given[row] for row in made]
        if stream in self._carried:
            lists = (*lists, self._children.of(made, counts is not None or parents is None))
        self._batches.append(Emitted(stream, task, made, lists))

    def fail(self, row: int | Sequence[int], why: str = "") -> None:
        """Fail input rows, by their numbers in the batch that the bolt sees."""
        for one in [row] if isinstance(row, int) else row:
            self.refuse(self.given[one] if self.given else one, why)

    def refuse(self, row: int, why: str) -> None:
        """Fail a row of the whole batch."""
        self._collector.fail(row, why)
        self.failed[row] = why

    def reset_timeout(self, tup: Any) -> None:
        """Start the message timeout of the batch at hand afresh."""
        self._collector.reset_timeout(tup)

    def report_error(self, error: BaseException) -> None:
        """Show an error in report and status; nothing fails."""
        self._collector.report_error(error)

    # ---- what its task calls ----

    def take(self, rows: Sequence[int]) -> list[Emitted]:
        """Make what was emitted ready to be sent; return what a group keeps of it, with places in the group."""
        identities = self._children.of(self._parents, True) if self._parents else ()
        made = []
        for (stream, task), (parents, values, places) in self._rows.items():
            columns = tuple(map(list, zip(*values, strict=True)))
            if places:
                columns = *columns, [identities[place] for place in places]
            made.append(Emitted(stream, task, parents, columns))
        made += self._batches
        if self.failed:
            made = [_without(emitted, self.failed) for emitted in made]
        self.drop()
        self._ready += made
        kept = [emitted for emitted in made if emitted.stream in self._read]
        if not kept or (isinstance(rows, range) and rows == range(len(rows))):
            return kept
        place_of = {row: place for place, row in enumerate(rows)}
        return [each._replace(parents=[place_of[parent] for parent in each.parents]) for each in kept]

    def repeat(self, identities: Sequence[int], known: Sequence[Group]) -> None:
        """Emit again what known tuples have emitted."""
        for row, group in enumerate(known):
            if group.number >= 0 and group.emitted:
                for stream, task, values in group.emitted_for(identities[row]):
                    self._ready.append(Emitted(stream, task, (row,), tuple([value] for value in values)))

    def send(self) -> None:
        """Emit all that is ready."""
        ready, self._ready = self._ready, []
        together: dict[tuple[str, int | None], list[Emitted]] = {}
        for emitted in ready:
            together.setdefault((emitted.stream, emitted.task), []).append(emitted)
        for (stream, task), parts in together.items():
            parents = list(chain.from_iterable(part.parents for part in parts))
            by_column = zip(*(part.columns for part in parts), strict=True)
            columns = [list(chain.from_iterable(column)) for column in by_column]
            if task is None:
                self._collector.emit_batch(columns, parents=parents, stream=stream)
            else:
                self._collector.emit_batch_direct(task, columns, parents=parents, stream=stream)


def _without(emitted: Emitted, failed: Mapping[int, str]) -> Emitted:
    """The rows that were not made from failed ones."""
    wanted = [parent not in failed for parent in emitted.parents]
    columns = tuple(list(compress(column, wanted)) for column in emitted.columns)
    return emitted._replace(parents=list(compress(emitted.parents, wanted)), columns=columns)
