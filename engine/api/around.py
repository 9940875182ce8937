"""Objects that stand for others of the user's or the engine's; and what hides a last field of tuples from users'
components, whose place in the topology is between a component that adds it and one that takes it off.

Pure. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

from squall.engine.api.columns import ColumnBatch, Columns
from squall.engine.api.stream import Stream
from squall.engine.api.topology import Subscription
from squall.engine.api.tuple import Tuple, TupleSource


class Around:
    """Stands for an object of the user's or the engine's: has its class, and all its attributes that a subclass does
    not define. So the engine treats a component behind it as the kind that it is. A copy is made of what it was made of
    itself, and has nothing of its life in a worker."""

    _made_of: tuple[Any, ...]

    def __new__(cls, *made_of: Any) -> Self:
        around = super().__new__(cls)
        around._made_of = made_of
        return around

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._inner.__class__

    def __reduce__(self) -> Any:
        return type(self), self._made_of


# ---- a hidden last field ----


class _WithoutLast(Around):
    """Stands for a custom grouping."""

    def choose_tasks(self, source_task: int, values: Any) -> Any:
        return self._inner.choose_tasks(source_task, values[:-1])


def hiding_last(one: Subscription) -> Subscription:
    """The same subscription; its grouping, if it is the user's, does not see the field."""
    hiding: Any = _WithoutLast
    return one if one.custom is None else replace(one, custom=hiding(one.custom))


class HiddenField:
    """Takes the field off what a bolt receives."""

    def __init__(self, field: str, suffix: str = "") -> None:
        """`suffix`: an ending of components' names that is hidden as well."""
        self._field, self._suffix = field, suffix
        self._plain: dict[TupleSource, TupleSource | None] = {}

    def source(self, source: TupleSource) -> TupleSource | None:
        """A source without the field; None if it has none, as that of ticks."""
        try:
            return self._plain[source]
        except KeyError:
            plain = None
            if source.fields[-1:] == (self._field,):
                component = source.component.removesuffix(self._suffix)
                plain = TupleSource(component, source.task, source.stream, Stream(*source.fields[:-1]))
                self._plain[plain] = plain  # the next tuple of a basic bolt is the same object
            self._plain[source] = plain
            return plain

    def off(self, tup: Tuple) -> Any:
        """Take it off a tuple; return its value, None if there is none."""
        source = self.source(tup._source)
        if source is None:
            return None
        hidden = tup.values[-1]
        tup.values, tup._source = tup.values[:-1], source
        return hidden

    def off_batch(self, batch: ColumnBatch) -> tuple[ColumnBatch, Any]:
        """A batch without it, and its column, None if there is none."""
        source = self.source(batch._source)
        if source is None:
            return batch, None
        *columns, hidden = batch.columns
        return ColumnBatch(Columns(tuple(columns), len(batch)), source), hidden


class HidingOut(Around):
    """Stands for a collector: adds the field to what is emitted. Subclasses say what it holds."""

    def _row(self, values: Any, task: int | None, named: dict[str, Any]) -> Any:
        """The values of an emit with it. `task`: of a direct emit; `named`: its other arguments."""
        return values

    def _columns(self, columns: Any, task: int | None, named: dict[str, Any]) -> Any:
        """The same for a batch."""
        return columns

    # What is misplaced, the engine refuses.

    def emit(self, values: Any, *misplaced: Any, **named: Any) -> Any:
        values = self._row(values, None, named)
        return self._inner.emit(values, *misplaced, **named)

    def emit_direct(self, task: int, values: Any, *misplaced: Any, **named: Any) -> Any:
        values = self._row(values, task, named)
        return self._inner.emit_direct(task, values, *misplaced, **named)

    def emit_batch(self, columns: Any, *misplaced: Any, **named: Any) -> None:
        columns = self._columns(columns, None, named)
        self._inner.emit_batch(columns, *misplaced, **named)

    def emit_batch_direct(self, task: int, columns: Any, *misplaced: Any, **named: Any) -> None:
        columns = self._columns(columns, task, named)
        self._inner.emit_batch_direct(task, columns, *misplaced, **named)

    def give_up(self, values: Any, message_id: Any, why: str, *misplaced: Any, **named: Any) -> None:
        values = self._row(values, None, {"message_id": message_id, **named})
        self._inner.give_up(values, message_id, why, *misplaced, **named)


class AnchoringOut(HidingOut):
    """Stands for the collector of a bolt that anchors by itself: what is added to an emit is known of its anchors."""

    def __init__(self, collector: Any) -> None:
        super().__init__(collector)
        self.known: dict[int, Any] = {}
        """What is known of each tuple at hand, by its `id`, until its answer; overwritten when another gets that `id`.
        """

    def ack(self, tup: Tuple) -> None:
        self._inner.ack(tup)
        self.known.pop(id(tup), None)

    def fail(self, tup: Tuple) -> None:
        self._inner.fail(tup)
        self.known.pop(id(tup), None)

    @staticmethod
    def _ids_of_anchors(named: dict[str, Any]) -> list[int]:
        """The `id` of each anchor of an emit. A generator becomes a list, as the engine reads it once more."""
        anchors = named.get("anchors", ())
        if isinstance(anchors, Tuple) or not isinstance(anchors, Iterable):
            anchors = [anchors]
        elif not isinstance(anchors, list | tuple):
            named["anchors"] = anchors = list(anchors)
        return list(map(id, anchors))
