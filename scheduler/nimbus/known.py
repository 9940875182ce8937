"""What Nimbus knows: nodes with their slots, topologies by name, and topologies that it finds at work unknown.

Guarantees
    * Slots are offered only by nodes that were heard from within NODE_TIMEOUT_SECS and are not leaving. A node that has
      registered as leaving stays so until it registers otherwise, and is then silent without being missed. What a
      supervisor sent before it died may arrive after its successor has registered: it registers nothing any more.
    * A name stands for one topology at a time.
    * Slots that run work of an unknown topology are neither offered nor emptied until an operator asks for it: running
      work must survive the loss of a store.

Pure: no I/O, no clock. Thread: Nimbus's loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from squall.engine.errors import ClusterError, UsageError
from squall.scheduler.common.messages import RegisterSupervisor, SlotRef
from squall.scheduler.common.role import check_node_name
from squall.scheduler.nimbus.topology_life import TopologyLife

NODE_TIMEOUT_SECS = 5.0
"""Silence after which a node is gone, five heartbeats. Less would blame an overloaded machine."""


@dataclass
class _Node:
    ports: list[int]
    pid: int
    started_ticks: int
    heard_at: float
    leaving: bool = False
    alive: bool = True


class Nodes:
    """Nodes by name."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

    def register(self, request: RegisterSupervisor, now: float) -> None:
        """Add a node, or learn that it is back. UsageError if the name is not allowed; ClusterError if a supervisor
        that was started later has registered, so that this one is dead."""
        check_node_name(request.node)
        present = self._nodes.get(request.node)
        if present is not None and request.started_ticks < present.started_ticks:
            raise ClusterError(
                f"the supervisor of {request.node} with pid {request.pid} is not registered: the one with pid "
                f"{present.pid} was started later, and is"
            )
        leaving = request.leaves_within_secs is not None
        ports = sorted(set(request.ports))
        self._nodes[request.node] = _Node(ports, request.pid, request.started_ticks, now, leaving)

    def heard(self, name: str, now: float) -> bool:
        """Note that a node lives; returns whether it had been given up."""
        node = self._nodes.get(name)
        if node is None:
            return False
        node.heard_at = now
        was_gone, node.alive = not node.alive, True
        return was_gone

    def give_up_silent(self, now: float) -> list[str]:
        """Give up the nodes that have been silent for too long; returns those that just became so."""
        silent = [
            name for name, node in self._nodes.items() if node.alive and now - node.heard_at >= NODE_TIMEOUT_SECS
        ]
        for name in silent:
            self._nodes[name].alive = False
        return silent

    def next_deadline(self) -> float | None:
        """When `give_up_silent` may find a node next."""
        return min((node.heard_at + NODE_TIMEOUT_SECS for node in self._nodes.values() if node.alive), default=None)

    @property
    def alive(self) -> dict[str, list[int]]:
        """Ports by node."""
        return {name: node.ports for name, node in sorted(self._nodes.items()) if node.alive}

    @property
    def gone(self) -> list[str]:
        """Silent nodes that were not leaving."""
        return sorted(name for name, node in self._nodes.items() if not node.alive and not node.leaving)

    def is_leaving(self, name: str) -> bool:
        return name in self._nodes and self._nodes[name].leaving

    @property
    def leaving(self) -> list[str]:
        """Nodes that are leaving and have not left."""
        return sorted(name for name, node in self._nodes.items() if node.alive and node.leaving)

    @property
    def pids(self) -> dict[str, int]:
        """Pid of every node's supervisor, also of nodes that are gone, but not of those that have left."""
        return {name: node.pid for name, node in self._nodes.items() if node.alive or not node.leaving}

    @property
    def slots(self) -> list[SlotRef]:
        """Every slot of every living node, sorted by node and port."""
        return [SlotRef(name, port) for name, ports in self.alive.items() for port in ports]

    def offered(self) -> list[SlotRef]:
        """Those that may get work."""
        return [slot for slot in self.slots if not self.is_leaving(slot.node)]


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
    Those that are known to have been deleted are not among them: their remains may be removed."""

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
