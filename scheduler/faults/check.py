"""Checks faults against the catalogue, and their targets against the cluster.

Guarantees: every fault that passes begins and ends: a plan leaves nothing broken.
"""

from __future__ import annotations

from squall.engine.errors import UsageError
from squall.scheduler.faults.catalogue import CATALOGUE, kind_of
from squall.scheduler.faults.fault import Fault
from squall.scheduler.faults.resolution import View, resolve


def check(fault: Fault, view: View | None = None, *, has_end: bool = False) -> None:
    """UsageError for a mistake in a fault; with a view, also in its targets. `has_end`: whether its plan has an end."""
    kind = kind_of(fault)
    kind.params_of(fault)
    if fault.probability is not None and not kind.is_drawn:
        drawn = ", ".join(other.name for other in CATALOGUE.values() if other.is_drawn)
        raise UsageError(f"{kind.name} takes no probability; faults that do are {drawn}")
    if kind.lasts_secs is None and fault.for_secs is not None:
        raise UsageError(f"{kind.name} is over at once; it takes no `for`")
    if (fault.times or 1) > 1 and fault.every_secs is None:
        raise UsageError(f"{fault.times} times of {kind.name} need an `every`, such as every 5s")
    if fault.every_secs is not None and fault.times is None:
        if not has_end:
            raise UsageError(
                f"{kind.name} every {fault.every_secs:g}s never ends; say how many times, or give the plan an end "
                f"(for: 60s in a plan, --for 60s for a run)"
            )
        lasts_secs = kind.ends_after_secs(fault)
        if lasts_secs is not None and lasts_secs >= fault.every_secs:
            raise UsageError(
                f"{kind.name} for {lasts_secs:g}s every {fault.every_secs:g}s is never healed; write a `for` that is "
                f"shorter than the `every`"
            )
    if view is not None:
        resolve(kind, fault.targets, view)
