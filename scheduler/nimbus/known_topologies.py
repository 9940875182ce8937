"""The topologies that Nimbus knows, by name, and what it does not know but finds at work.

Pure: no I/O. Thread: Nimbus's loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from squall.engine.errors import UsageError
from squall.scheduler.common.messages import SlotRef
from squall.scheduler.nimbus.topology_life import TopologyLife


class Topologies:
    """Topologies in the order of their submission; a name stands for one at a time."""

    def __init__(self, lives: Iterable[TopologyLife]) -> None:
        self._lives = {life.record.name: life for life in lives}

    def __iter__(self) -> Iterator[TopologyLife]:
        """Iterate over a snapshot: topologies may be added and removed meanwhile."""
        return iter(list(self._lives.values()))

    def __bool__(self) -> bool:
        return bool(self._lives)

    def add(self, life: TopologyLife) -> None:
        self._lives[life.record.name] = life

    def remove(self, name: str) -> None:
        """Remove the topology of that name, if there is one."""
        self._lives.pop(name, None)

    def by_id(self, topology_id: str) -> TopologyLife | None:
        return next((life for life in self._lives.values() if life.record.id == topology_id), None)

    def get(self, name: str) -> TopologyLife | None:
        return self._lives.get(name)

    def named(self, name: str) -> TopologyLife:
        """The topology of that name. UsageError if there is none."""
        life = self._lives.get(name)
        if life is None:
            running = ", ".join(map(repr, self._lives)) or "none"
            raise UsageError(f"there is no topology named {name!r:.80}; running: {running}")
        return life

    def changeable(self, name: str) -> TopologyLife:
        """The topology of that name. UsageError if it is being killed or moved already."""
        life = self.named(name)
        status, successor = life.record.status, life.record.successor
        if successor is not None:
            raise UsageError(f"topology {name!r} gives way to {successor.topology.id}: try again when that is there")
        if status not in ("ACTIVE", "INACTIVE"):
            raise UsageError(f"topology {name!r} is {status}: only ACTIVE and INACTIVE ones can change")
        return life

    def check_free(self, name: str) -> None:
        """UsageError if the name is taken."""
        life = self._lives.get(name)
        if life is None:
            return
        is_killed = life.record.status == "KILLED" and life.record.successor is None
        why = "still being killed" if is_killed else "already running: choose another name, or replace or kill it"
        raise UsageError(f"a topology named {name!r} is {why}")

    def taken_slots(self) -> set[SlotRef]:
        return {slot for life in self._lives.values() for slot in life.slots}


class UnknownTopologies:
    """Topologies that have workers or files, but that Nimbus does not know: its store was restored from an older copy.

    Guarantees
        * Topologies that are known to have been deleted are not among them: their remains may be removed.
        * Slots that run work of an unknown topology are neither offered nor emptied until an operator asks for it
          (`forget`): running work must survive the loss of a store.
    """

    def __init__(self, deleted: Iterable[str], traces: Iterable[str]) -> None:
        """`deleted`: ids of deleted topologies; `traces`: ids of topologies that have files and are not known."""
        self._deleted = set(deleted)
        self._traces = set(traces)
        self.slots: dict[SlotRef, str] = {}
        """The slots that run work of unknown topologies -> id of the topology."""

    def __bool__(self) -> bool:
        return bool(self._traces or self.slots)

    @property
    def ids(self) -> list[str]:
        return sorted({*self._traces, *self.slots.values()})

    def ports(self, node: str) -> list[int]:
        return sorted(slot.port for slot in self.slots if slot.node == node)

    def deleted(self, topology_id: str) -> None:
        """Note that a topology was deleted: its remains may be removed."""
        self._deleted.add(topology_id)

    def registered(self, node: str, holds: Mapping[int, str], known: Iterable[str]) -> list[SlotRef]:
        """Take a supervisor's list of its slots' topologies, by port; returns the slots of unknown ones."""
        known_ids = {*known, *self._deleted}
        found = {SlotRef(node, port): held for port, held in sorted(holds.items()) if held not in known_ids}
        self.slots = {slot: held for slot, held in self.slots.items() if slot.node != node} | found
        return list(found)

    def forget(self) -> tuple[list[str], list[str]]:
        """Treat them all as deleted, as an operator asks; returns their ids, and the nodes to tell."""
        ids, nodes = self.ids, sorted({slot.node for slot in self.slots})
        self._deleted.update(ids)
        self._traces.clear()
        self.slots.clear()
        return ids, nodes
