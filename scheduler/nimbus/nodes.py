"""The nodes that Nimbus knows: when it last heard from them, and the slots that they offer.

Guarantees: slots are offered only by nodes that were heard from within NODE_TIMEOUT_SECS and are not leaving. A node
that has registered as leaving stays so until it registers otherwise, and is then silent without being missed. What a
supervisor sent before it died may arrive after its successor has registered: it registers nothing any more.

Pure: no I/O, no clock. Thread: Nimbus's loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from squall.engine.errors import ClusterError
from squall.scheduler.common.messages import RegisterSupervisor, SlotRef
from squall.scheduler.common.role import check_node_name

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
