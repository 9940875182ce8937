"""JoinBolt: joins streams by key within a window, as Storm's.

Pure. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from squall.engine.api.tuple import Tuple
from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.engine.state.windowing.windows import Window, WindowedBolt

if TYPE_CHECKING:
    from squall.engine.api.collectors import BasicCollector


class _Part(NamedTuple):
    component: str
    field: str
    prior: str
    """The component whose tuples it is joined to."""
    keeps_prior: bool
    """True if those without a partner are kept: a left join."""


class JoinBolt(WindowedBolt):
    """Joins the tuples of several components that are in one window and have equal values in a field::

        JoinBolt("orders", "customer").left_join("payments", "order", prior="orders")
            .select("orders:customer", "amount", "paid").with_tumbling_window(secs=10)

    Its input must be grouped so that what is joined meets: by these fields, or by one task. Each combination is emitted
    once for each window."""

    def __init__(self, component: str, field: str) -> None:
        """`field` of the first component is what the first join compares with."""
        self._field_of = {component: field}
        self._joins: list[_Part] = []
        self._selected: list[tuple[str, str]] = []
        self.outputs = ()

    def join(self, component: str, field: str, prior: str) -> Self:
        """Join the tuples of another component to those of an earlier one: an inner join."""
        return self._join(component, field, prior, keeps_prior=False)

    def left_join(self, component: str, field: str, prior: str) -> Self:
        """The same, with None in place of the values of a partner that is not there."""
        return self._join(component, field, prior, keeps_prior=True)

    def _join(self, component: str, field: str, prior: str, *, keeps_prior: bool) -> Self:
        if prior not in self._field_of or component in self._field_of:
            raise UsageError(
                f"JoinBolt joins {repr_of(component)} to {repr_of(prior)}; allowed: a new component to one of "
                f"{', '.join(self._field_of)}"
            )
        self._field_of[component] = field
        self._joins.append(_Part(component, field, prior, keeps_prior))
        return self

    def select(self, *fields: str) -> Self:
        """Name the fields to emit: "component:field", or "field" of the first component that has it."""
        self._selected = [(one.rpartition(":")[0], one.rpartition(":")[2]) for one in fields]
        self.outputs = tuple(field for _, field in self._selected)
        return self

    def input_mistake(self, inputs: Mapping[str, tuple[str, ...]]) -> str | None:
        if set(inputs) != set(self._field_of):
            return f"joins {', '.join(self._field_of)} and reads {', '.join(sorted(inputs))}; allowed: the same"
        needed = [*self._field_of.items(), *((name, field) for name, field in self._selected if name)]
        for component, field in needed:
            if field not in (known := inputs.get(component, ())):
                return f"names field {field!r} of {component!r}, whose fields are {', '.join(known)}"
        for component, field in self._selected:
            if not component and not any(field in fields for fields in inputs.values()):
                return f"selects field {field!r}, which none of its inputs has"
        return None if self._selected else "selects no field; call select"

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        of: dict[str, list[Tuple]] = {component: [] for component in self._field_of}
        for tup in window.get():
            of[tup.source_component].append(tup)
        first = next(iter(self._field_of))
        rows: list[Mapping[str, Tuple]] = [{first: tup} for tup in of[first]]
        for part in self._joins:
            partners: dict[Any, list[Tuple]] = {}
            for tup in of[part.component]:
                partners.setdefault(tup[part.field], []).append(tup)
            joined: list[Mapping[str, Tuple]] = []
            for row in rows:
                prior = row.get(part.prior)
                found = [] if prior is None else partners.get(prior[self._field_of[part.prior]], [])
                joined += [{**row, part.component: tup} for tup in found]
                if not found and part.keeps_prior:
                    joined.append(row)
            rows = joined
        for row in rows:
            collector.emit(tuple(self._value(row, *one) for one in self._selected))

    def _value(self, row: Mapping[str, Tuple], component: str, field: str) -> Any:
        tuples = [row[component]] if component in row else [] if component else row.values()
        return next((tup[field] for tup in tuples if field in tup), None)
