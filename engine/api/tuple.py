"""The tuple that a bolt receives, and the run in which it is tracked.

A *run* is a series of consecutive tuples of one tree to one task. It has one edge, whatever its length; the receiver
acks the edge when the last tuple of the run is done. Each tuple is still acked or failed on its own.

Guarantees: a tuple is acked or failed once; a second time is an error, and so is anchoring to a tuple that is done,
because either would corrupt the XOR of its tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from sys import getrefcount
from typing import Any

from squall.engine.api.stream import SYSTEM_COMPONENT, TICK_STREAM, Stream
from squall.engine.errors import ComponentError
from squall.engine.foreign.text import repr_of


class TupleSource:
    """The origin of tuples: their component, task and stream; shared by all tuples of a batch."""

    __slots__ = ("component", "fields", "index", "stream", "task")

    def __init__(self, component: str, task: int, stream: str, shape: Stream) -> None:
        self.component = component
        self.task = task
        self.stream = stream
        self.fields = shape.fields
        self.index = shape.index


class Run:
    """A run at its receiver: all that is needed to ack its edge. `root` 0 means untracked.

    `others` holds the (root, edge) pairs beyond the first of a tuple that was anchored to several trees.
    """

    __slots__ = ("children", "edge", "failed", "mask", "number", "others", "remaining", "root")

    def __init__(self, root: int, edge: int, remaining: int, others: tuple[tuple[int, int], ...] = ()) -> None:
        self.root = root
        self.edge = edge
        self.remaining = remaining
        self.others = others
        self.children = 0
        """XOR of the edges of all tuples anchored in this run."""
        self.mask = 0
        """Workers to which those tuples were sent, one bit per incarnation."""
        self.failed = False
        self.number = -1
        """Its place in the batch that is being executed, which acks it at its end; -1: it is acked by itself."""

    def trees(self) -> tuple[int, ...]:
        """Roots of its trees; 0 stands for none."""
        return (self.root, *(other for other, _ in self.others)) if self.others else (self.root,)


class FromSource:
    """Values with the source that they come from: a tuple or a batch."""

    __slots__ = ("_source",)

    _source: TupleSource

    def __contains__(self, field: object) -> bool:
        """Return True if there is a *field* of that name."""
        return field in self._source.index

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the values, in their order."""
        return self._source.fields

    @property
    def source_component(self) -> str:
        """The component that emitted the values."""
        return self._source.component

    @property
    def source_task(self) -> int:
        """The task that emitted them; the one of the first row if a batch joins those of several."""
        return self._source.task

    @property
    def source_stream(self) -> str:
        """The stream on which they were emitted."""
        return self._source.stream

    @property
    def is_tick(self) -> bool:
        """Return True for a tick of the system, which is no data."""
        return self._source.stream == TICK_STREAM and self._source.component == SYSTEM_COMPONENT

    def _has_no(self, field: object) -> ComponentError:
        source = self._source
        return ComponentError(
            f"a {type(self).__name__} of {source.component}, stream {source.stream!r}, has no field {repr_of(field)}; "
            f"its fields are {', '.join(source.fields)}"
        )


class Tuple(FromSource):
    """A tuple that a bolt received. Read its values by position (`tup[0]`), by field (`tup["word"]`), by iteration, or
    as `values`. A bolt may hold it until it acks or fails it.
    """

    __slots__ = ("_done", "_run", "values")

    values: tuple[Any, ...]
    """Its values, one for each field."""

    def __init__(self, values: tuple[Any, ...], source: TupleSource, run: Run) -> None:
        self.values = values
        self._source = source
        self._run = run
        self._done = False

    def __getitem__(self, key: int | str) -> Any:
        if key.__class__ is str:
            try:
                return self.values[self._source.index[key]]
            except KeyError:
                raise self._has_no(key) from None
        return self.values[key]  # type: ignore[index]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def select(self, *fields: str) -> tuple[Any, ...]:
        """Return the values of some fields as a tuple, in the given order."""
        return tuple(self[name] for name in fields)

    def __repr__(self) -> str:
        source = self._source
        named = zip(source.fields, self.values, strict=False)
        shown = ", ".join(f"{name}={repr_of(value, 60)}" for name, value in named)
        return f"<Tuple from {source.component}:{source.task} {source.stream} {shown}>"


Anchors = Tuple | Sequence[Tuple]
UNTRACKED = Run(0, 0, 0)
"""The run of tuples of no tree, or whose trees only their collector knows. Shared: it is never written to."""


def _refcount_of_unshared() -> int:
    tup = Tuple((), TupleSource("", 0, "", Stream()), UNTRACKED)
    return getrefcount(tup)


UNSHARED = _refcount_of_unshared()
"""`getrefcount` of an object that only a local variable holds; it differs between interpreters."""
