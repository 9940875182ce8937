"""The instructions that Nimbus's decisions return. Values only; `scheduler.nimbus.service` carries them out.

The order is always: store all changes in one transaction, then tell supervisors. So a supervisor never hears of
anything that a restarted Nimbus would not know. An assignment has its board before it is stored.
"""

from __future__ import annotations

import logging

import msgspec

from squall.scheduler.common.messages import Assignment, RestartRecord, SlotRef, TopologyRecord


class NimbusInstruction(msgspec.Struct, frozen=True):
    """One of the classes below."""


class StoreChange(NimbusInstruction):
    """A change of the store."""


class RemoveBoard(NimbusInstruction):
    """Delete an assignment's status board."""

    topology_id: str
    version: int = 1


class StoreTopology(StoreChange):
    """Store a new topology, or a known one's new record."""

    record: TopologyRecord


class StoreAssignment(StoreChange):
    """Store a topology's assignment."""

    assignment: Assignment


class StoreRestart(StoreChange):
    """Store a death, or news of it."""

    topology_id: str
    restart: RestartRecord


class DeleteTopology(StoreChange):
    """Forget a topology, its assignment, its deaths, and its code if no other topology runs it."""

    topology_id: str


class DropSuccessor(NimbusInstruction):
    """Remove the files of a topology that was to take the place of another, and will not."""

    topology_id: str


class RemoveUnknown(StoreChange):
    """Remove the remains of a topology that the store does not know, as an operator has asked."""

    topology_id: str


class SendAssignNode(NimbusInstruction):
    """Send the node's supervisor the `Nimbus.assign_node` of that moment."""

    node: str


class EndWorker(NimbusInstruction):
    """Kill the worker of this assignment in a slot: no supervisor does."""

    assignment: Assignment
    slot: SlotRef


class Note(NimbusInstruction):
    """Write a line to Nimbus's log."""

    text: str
    level: int = logging.INFO
