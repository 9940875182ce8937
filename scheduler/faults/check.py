"""Checks faults against the catalogue, and their targets against the cluster.

Guarantees: all mistakes are reported at once, one line each. Every fault that passes begins and ends: a plan leaves
nothing broken.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from squall.engine.errors import UsageError
from squall.scheduler.faults.catalogue import CATALOGUE
from squall.scheduler.faults.fault import Fault, shown
from squall.scheduler.faults.kind import Kind
from squall.scheduler.faults.resolution import locate
from squall.scheduler.faults.target import parse_target
from squall.scheduler.faults.view import Place, View, listed


def kind_of(fault: Fault) -> Kind:
    """A fault's row of the catalogue; UsageError if there is none."""
    kind = CATALOGUE.get(fault.kind)
    if kind is None:
        near = difflib.get_close_matches(fault.kind, CATALOGUE, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"fault {shown(fault.kind)} is unknown{hint} (squall faults lists all)")
    return kind


def mistakes_of(fault: Fault, view: View | None = None, *, has_end: bool = False) -> list[str]:
    """The mistakes in a fault; with a view, also in its targets. `has_end`: whether its plan has an end."""
    try:
        kind = kind_of(fault)
    except UsageError as error:
        return [str(error)]
    found = [*kind.params_mistakes(fault.params), *_when_mistakes(kind, fault, has_end)]
    if fault.probability is not None and not kind.is_drawn:
        found.append(f"{kind.name} takes no probability; faults that do are {', '.join(_drawn())}")
    try:
        targets = [parse_target(target) for target in fault.targets]
        if view is not None:
            found += field_mistakes(kind, fault, locate(kind, targets, view).tasks, view)
    except UsageError as error:
        found.append(str(error))
    return found


def field_mistakes(kind: Kind, fault: Fault, tasks: Iterable[Place], view: View) -> Iterator[str]:
    """Fields that none of these tasks can find in a tuple, as far as is known."""
    components = dict.fromkeys((place.topology, place.component) for place in tasks)
    known = [view.received.get(component) for component in components]
    for parameter in kind.parameters:
        name = fault.params.get(parameter.name)
        if parameter.type != "field" or name is None or not known:
            continue
        if all(fields is not None and name not in fields for fields in known):
            who = listed([component for _, component in components])
            fields = listed(sorted({field for fields in known if fields for field in fields}))
            yield f"{parameter.name} is {shown(name)}, which no tuple to {who} has; fields of its tuples are {fields}"


def _drawn() -> list[str]:
    return [kind.name for kind in CATALOGUE.values() if kind.is_drawn]


def _when_mistakes(kind: Kind, fault: Fault, has_end: bool) -> Iterator[str]:
    lasts_secs = kind.ends_after_secs(fault)
    if kind.lasts_secs is None and fault.for_secs is not None:
        yield f"{kind.name} is over at once; it takes no `for`"
    if fault.times is not None and fault.times > 1 and fault.every_secs is None:
        yield f"{fault.times} times of {kind.name} need an `every`, such as every 5s"
    if fault.every_secs is not None and fault.times is None:
        if not has_end:
            yield (
                f"{kind.name} every {fault.every_secs:g}s never ends; say how many times, or give the plan an end "
                f"(for: 60s in a plan, --for 60s for a run)"
            )
        if lasts_secs is not None and lasts_secs >= fault.every_secs:
            yield (
                f"{kind.name} for {lasts_secs:g}s every {fault.every_secs:g}s is never healed; allowed: a `for` that "
                f"is shorter than the `every`"
            )
