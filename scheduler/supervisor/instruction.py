"""Instructions of a slot's state machine to the supervisor's loop, in order. Values only."""

from __future__ import annotations

import msgspec

from squall.scheduler.common.messages import SlotChanged, WorkerBoot


class Instruction(msgspec.Struct, frozen=True):
    """One of the classes below."""


class Fork(Instruction):
    """Ask the forking parent for a worker. `Slot.forked` or `Slot.fork_failed` follows."""

    boot: WorkerBoot


class Signal(Instruction):
    """Send a signal to a worker. SIGKILL goes to its whole process group, other signals to the worker alone."""

    pid: int
    signum: int


class DumpStacks(Instruction):
    """Have a worker write the stacks of its threads to its log."""

    pid: int


class SendStop(Instruction):
    """Send StopWorker to the worker of that incarnation."""

    incarnation: int


class SendStatus(Instruction):
    """Send SetStatus to the worker of that incarnation."""

    incarnation: int
    status: str


class Report(Instruction):
    """Tell Nimbus."""

    changed: SlotChanged


class SetBoard(Instruction):
    """Write the slot's cell on the status board of an assignment."""

    topology_id: str
    slot_index: int
    incarnation: int
    state: int
    pid: int
    version: int = 1
    accused: bool = False
    """It ended by a cause that a tuple can have."""


class SetVerdict(Instruction):
    """Write this node's verdict on the topology to the slot's row of the status board."""

    topology_id: str
    slot_index: int
    deaths: int
    """Deaths in a row without progress."""
    hopeless: bool
    version: int = 1


class ArmTimer(Instruction):
    """Call `Slot.tick` at or after `at_secs` (monotonic). Replaces the slot's earlier timer; early ticks do nothing."""

    at_secs: float


class ReplaceForkingParent(Instruction):
    """The forking parent does not answer: end it and start another."""

    reason: str
