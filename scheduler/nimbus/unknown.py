"""Topologies that have workers or files, but that Nimbus does not know.

Guarantees
    * Topologies that Nimbus knows to have been deleted are not among them: their remains may be removed.
    * Slots that run work of an unknown topology are neither offered nor emptied until an operator asks for it
      (`forget`).

Why: running work must survive a store that was lost, or restored from an older copy.

Pure: no I/O. Thread: Nimbus's loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from squall.scheduler.common.messages import SlotRef
from squall.scheduler.nimbus.store import DELETED_KEPT


class Unknown:
    """Unknown topologies, by id and by slot."""

    def __init__(self, deleted: Iterable[str], traces: Iterable[str]) -> None:
        """`deleted`: ids of deleted topologies; `traces`: ids of topologies that have files and are not known."""
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
        """The slots that run work of unknown topologies -> id of the topology."""
        return dict(self._held)

    def ports(self, node: str) -> list[int]:
        return sorted(slot.port for slot in self._held if slot.node == node)

    def deleted(self, topology_id: str) -> None:
        """Note that a topology was deleted: its remains may be removed."""
        self._deleted[topology_id] = None
        while len(self._deleted) > DELETED_KEPT:
            del self._deleted[next(iter(self._deleted))]

    def registered(self, node: str, holds: Mapping[int, str], known: Iterable[str]) -> list[SlotRef]:
        """Take a supervisor's list of its slots' topologies, by port; returns the slots of unknown ones."""
        known_ids = {*known, *self._deleted}
        self._held = {slot: topology_id for slot, topology_id in self._held.items() if slot.node != node}
        found = {SlotRef(node, port): held for port, held in sorted(holds.items()) if held not in known_ids}
        self._held.update(found)
        return list(found)

    def forget(self) -> tuple[list[str], list[str]]:
        """Treat them all as deleted, as an operator asks; returns their ids, and the nodes to tell."""
        ids, nodes = self.ids, sorted({slot.node for slot in self._held})
        for topology_id in ids:
            self.deleted(topology_id)
        self._traces.clear()
        self._held.clear()
        return ids, nodes
