"""What Nimbus's decisions tell its daemon to do. Values only; `scheduler.nimbus.service` carries them out.

Always in this order: boards are made, everything to be kept is stored in one transaction, then supervisors hear of it.
So a supervisor never hears of what a restarted Nimbus would not know, nor of an assignment without a board.
"""

from __future__ import annotations

from dataclasses import dataclass

from squall.scheduler.common.messages import Assignment, RestartRecord, SlotRef, TopologyRecord


@dataclass(frozen=True)
class CreateBoard:
    """Make an assignment's status board. If that fails, `Nimbus.unplace` or `Nimbus.withdraw` the topology."""

    topology_id: str
    n_slots: int
    n_tasks: int
    version: int = 1
    """Above 1, the board goes on from that of the version before it, if there is one."""


@dataclass(frozen=True)
class RemoveBoard:
    """Delete an assignment's status board."""

    topology_id: str
    version: int = 1


@dataclass(frozen=True)
class StoreTopology:
    """Keep a new topology, or a known one's new record."""

    record: TopologyRecord


@dataclass(frozen=True)
class StoreStatus:
    """Keep a topology's new status and, if it is "KILLED", how long it may still run."""

    topology_id: str
    status: str
    kill_wait_secs: float = 0.0


@dataclass(frozen=True)
class StoreAssignment:
    """Keep where a topology runs."""

    assignment: Assignment


@dataclass(frozen=True)
class StoreRestart:
    """Keep a death, or what is now known of it."""

    topology_id: str
    restart: RestartRecord


@dataclass(frozen=True)
class DeleteTopology:
    """Forget a topology, its assignment, its deaths, and its code if no other topology runs it."""

    topology_id: str


@dataclass(frozen=True)
class RemoveUnknown:
    """Remove what is left of a topology that the store does not know; an operator has said so."""

    topology_id: str


@dataclass(frozen=True)
class SendAssignNode:
    """Send the node's supervisor what `Nimbus.assign_node` says by then."""

    node: str


@dataclass(frozen=True)
class EndWorker:
    """Kill the worker of this assignment in a slot: nobody else does."""

    assignment: Assignment
    slot: SlotRef


@dataclass(frozen=True)
class Note:
    """Write a line to Nimbus's log."""

    text: str


StoreChange = StoreTopology | StoreStatus | StoreAssignment | StoreRestart | DeleteTopology | RemoveUnknown
"""What is to be kept."""
NimbusInstruction = (
    StoreChange
    | CreateBoard
    | RemoveBoard
    | SendAssignNode
    | EndWorker
    | Note
)
