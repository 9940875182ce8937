"""Topologies that have left traces, workers or files, and that Nimbus does not know.

Guarantees
    * What a topology has left that Nimbus knows to have been deleted is not among them: it may be removed.
    * Slots in which a supervisor runs work of an unknown topology are neither offered nor emptied before an operator
      says so (`forget`).

Why: a store that was lost, or put back from an older copy, must not cost what runs.

Pure: no I/O. Owner: `scheduler.nimbus.decisions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from squall.scheduler.common.messages import SlotRef
from squall.scheduler.nimbus.store import DELETED_KEPT


class Unknown:
    """By id, and by slot."""

    def __init__(self, deleted: Iterable[str], traces: Iterable[str]) -> None:
        """`deleted`: ids whose traces are nobody's; `traces`: ids of topologies that have files and are not known."""
        self._deleted = dict.fromkeys(deleted)
        self._traces = set(traces)
        self._held: dict[SlotRef, str] = {}

    def __bool__(self) -> bool:
        return bool(self._traces or self._held)

    @property
    def ids(self) -> list[str]:
        return sorted({*self._traces, *self._held.values()})

    @property
    def slots(self) -> dict[SlotRef, str]:
        """Those that run such work, and whose."""
        return dict(self._held)

    def ports(self, node: str) -> list[int]:
        return sorted(slot.port for slot in self._held if slot.node == node)

    def deleted(self, topology_id: str) -> None:
        """A topology has gone as it should: what is left of it is nobody's."""
        self._deleted[topology_id] = None
        while len(self._deleted) > DELETED_KEPT:
            del self._deleted[next(iter(self._deleted))]

    def registered(self, node: str, holds: Mapping[int, str], known: Iterable[str]) -> list[SlotRef]:
        """A supervisor says whose work its slots do, by port; which of them are unknown."""
        known_ids = {*known, *self._deleted}
        self._held = {slot: topology_id for slot, topology_id in self._held.items() if slot.node != node}
        found = {SlotRef(node, port): held for port, held in sorted(holds.items()) if held not in known_ids}
        self._held.update(found)
        return list(found)

    def forget(self) -> tuple[list[str], list[str]]:
        """An operator's word: what they were is nobody's from now on. Their ids, and the nodes to be told."""
        ids, nodes = self.ids, sorted({slot.node for slot in self._held})
        for topology_id in ids:
            self.deleted(topology_id)
        self._traces.clear()
        self._held.clear()
        return ids, nodes
