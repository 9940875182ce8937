"""Instructions of a slot's state machine to the supervisor's loop, in order. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from squall.scheduler.common.messages import SlotChanged, WorkerBoot


@dataclass(frozen=True)
class Fork:
    """Ask the forking parent for a worker. `Slot.forked` or `Slot.fork_failed` follows."""

    boot: WorkerBoot


@dataclass(frozen=True)
class Signal:
    """Send a signal to a worker. SIGKILL goes to its whole process group, other signals to the worker alone."""

    pid: int
    signum: int


@dataclass(frozen=True)
class DumpStacks:
    """Have a worker write the stacks of its threads to its log."""

    pid: int


@dataclass(frozen=True)
class SendStop:
    """Send StopWorker to the worker of that incarnation."""

    incarnation: int


@dataclass(frozen=True)
class SendStatus:
    """Send SetStatus to the worker of that incarnation."""

    incarnation: int
    status: str


@dataclass(frozen=True)
class Report:
    """Tell Nimbus."""

    changed: SlotChanged


@dataclass(frozen=True)
class SetBoard:
    """Write the slot's cell on the status board of an assignment."""

    topology_id: str
    slot_index: int
    incarnation: int
    state: int
    pid: int
    version: int = 1
    accused: bool = False
    """It ended by a cause that a tuple can have."""


@dataclass(frozen=True)
class SetVerdict:
    """Write this node's verdict on the topology to the slot's row of the status board."""

    topology_id: str
    slot_index: int
    deaths: int
    """Deaths in a row without progress."""
    hopeless: bool
    version: int = 1


@dataclass(frozen=True)
class ArmTimer:
    """Call `Slot.tick` at or after `at_secs` (monotonic). Replaces the slot's earlier timer; early ticks do nothing."""

    at_secs: float


@dataclass(frozen=True)
class ReplaceForkingParent:
    """The forking parent does not answer: end it and start another."""

    reason: str


Instruction = (
    Fork | Signal | DumpStacks | SendStop | SendStatus | Report | SetBoard | SetVerdict | ArmTimer
    | ReplaceForkingParent
)
