"""The nodes that Nimbus knows: which of them were heard from lately, and the slots they offer.

Guarantees: slots are offered only by nodes that were heard from within NODE_TIMEOUT_SECS.

Pure: no I/O, no clock. Owner: `scheduler.nimbus.decisions`.
"""

from __future__ import annotations

from dataclasses import dataclass

from squall.scheduler.common.messages import RegisterSupervisor, SlotRef
from squall.scheduler.common.node_name import check_node_name

NODE_TIMEOUT_SECS = 5.0
"""A node that missed this many seconds of heartbeats (one a second) is gone. Less would blame a busy machine."""


@dataclass
class _Node:
    ports: list[int]
    pid: int
    heard_at: float
    alive: bool = True


class Nodes:
    """By name."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

    def register(self, request: RegisterSupervisor, now: float) -> None:
        """A node is there, for the first time or again. UsageError if its name cannot be one."""
        check_node_name(request.node)
        self._nodes[request.node] = _Node(sorted(set(request.ports)), request.pid, heard_at=now)

    def heard(self, name: str, now: float) -> bool:
        """A node lives; whether it had been given up."""
        node = self._nodes.get(name)
        if node is None:
            return False
        node.heard_at = now
        was_gone, node.alive = not node.alive, True
        return was_gone

    def give_up_silent(self, now: float) -> list[str]:
        """The nodes that have been silent for too long since just now."""
        silent = [
            name for name, node in self._nodes.items() if node.alive and now - node.heard_at >= NODE_TIMEOUT_SECS
        ]
        for name in silent:
            self._nodes[name].alive = False
        return silent

    def next_deadline(self) -> float | None:
        """When `give_up_silent` may find one."""
        return min((node.heard_at + NODE_TIMEOUT_SECS for node in self._nodes.values() if node.alive), default=None)

    @property
    def alive(self) -> dict[str, list[int]]:
        """Ports by node."""
        return {name: node.ports for name, node in sorted(self._nodes.items()) if node.alive}

    @property
    def gone(self) -> list[str]:
        return sorted(name for name, node in self._nodes.items() if not node.alive)

    @property
    def pids(self) -> dict[str, int]:
        """Process of every node's supervisor, also of nodes that are gone."""
        return {name: node.pid for name, node in self._nodes.items()}

    def offered(self) -> list[SlotRef]:
        """Every slot of every living node, sorted by node and port."""
        return [SlotRef(name, port) for name, ports in self.alive.items() for port in ports]
