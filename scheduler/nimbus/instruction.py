"""The instructions that Nimbus's decisions return. Values only; `scheduler.nimbus.service` carries them out.

The order is always: store all changes in one transaction, then tell supervisors. So a supervisor never hears of
anything that a restarted Nimbus would not know. An assignment has its board before it is stored.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from squall.scheduler.common.messages import Assignment, RestartRecord, SlotRef, TopologyRecord


@dataclass(frozen=True)
class RemoveBoard:
    """Delete an assignment's status board."""

    topology_id: str
    version: int = 1


@dataclass(frozen=True)
class StoreTopology:
    """Store a new topology, or a known one's new record."""

    record: TopologyRecord


@dataclass(frozen=True)
class StoreAssignment:
    """Store a topology's assignment."""

    assignment: Assignment


@dataclass(frozen=True)
class StoreRestart:
    """Store a death, or news of it."""

    topology_id: str
    restart: RestartRecord


@dataclass(frozen=True)
class DeleteTopology:
    """Forget a topology, its assignment, its deaths, and its code if no other topology runs it."""

    topology_id: str


@dataclass(frozen=True)
class DropSuccessor:
    """Remove the files of a topology that was to take the place of another, and will not."""

    topology_id: str


@dataclass(frozen=True)
class RemoveUnknown:
    """Remove the remains of a topology that the store does not know, as an operator has asked."""

    topology_id: str


@dataclass(frozen=True)
class SendAssignNode:
    """Send the node's supervisor the `Nimbus.assign_node` of that moment."""

    node: str


@dataclass(frozen=True)
class EndWorker:
    """Kill the worker of this assignment in a slot: no supervisor does."""

    assignment: Assignment
    slot: SlotRef


@dataclass(frozen=True)
class Note:
    """Write a line to Nimbus's log."""

    text: str
    level: int = logging.INFO


StoreChange = StoreTopology | StoreAssignment | StoreRestart | DeleteTopology | RemoveUnknown
"""The instructions that change the store."""
NimbusInstruction = StoreChange | RemoveBoard | DropSuccessor | SendAssignNode | EndWorker | Note
