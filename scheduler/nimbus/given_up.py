"""Chooses the slots that a topology may use when some have given it up. Pure, for `scheduler.nimbus.decisions`.

Guarantees: a slot that gave a topology up gets none of its work again while there is another one, until an operator
resets it. If there is no other, it keeps its work and stays FAILED.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from squall.scheduler.common.messages import SlotRef, TopologyRecord


def with_given_up(record: TopologyRecord, slot: SlotRef) -> TopologyRecord:
    """The record after one more slot has given the topology up."""
    return record if slot in record.given_up else replace(record, given_up=[*record.given_up, slot])


def with_tried(record: TopologyRecord, slot: SlotRef) -> TopologyRecord:
    """The record after a slot runs the topology again, even if it had given it up before."""
    if slot not in record.given_up:
        return record
    return replace(record, given_up=[other for other in record.given_up if other != slot])


def with_reset(record: TopologyRecord) -> TopologyRecord:
    """The record after an operator's reset."""
    return replace(record, given_up=[], resets=record.resets + 1)


def untried(record: TopologyRecord, free: Iterable[SlotRef]) -> list[SlotRef]:
    """The free slots that have not given the topology up."""
    return [slot for slot in free if slot not in record.given_up]


def usable(record: TopologyRecord, own: set[SlotRef], free: Iterable[SlotRef], keep: bool) -> set[SlotRef]:
    """The slots that a placement may take. `own`: those that the topology has and that are offered; `keep`: it stays
    where it can."""
    new = set(untried(record, free))
    good = new | set(untried(record, own))
    if keep and not new:
        # Otherwise its work would move to healthy workers, which would die of it next.
        return own
    return good or own
