"""Clusters that are wrong in one place each: the simulation of daemons must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from squall.scheduler.common.messages import (
    Assignment,
    AssignNode,
    RegisterSupervisor,
    SlotAssignment,
    TopologyRecord,
)
from squall.scheduler.nimbus.decisions import Instructions, Nimbus
from squall.scheduler.nimbus.instruction import NimbusInstruction, StoreChange, StoreTopology
from tests.sim.cluster_life import LifeParts
from tests.sim.daemons import NimbusDaemon, SupervisorDaemon
from tests.sim.machine import Process


class TellsFirst(NimbusDaemon):
    """Supervisors hear of what is not stored yet."""

    def _carry_out(self, steps: list[NimbusInstruction]) -> None:
        later = [step for step in steps if isinstance(step, StoreChange)]
        super()._carry_out([step for step in steps if step not in later])
        super()._carry_out(later)  # type: ignore[arg-type]


class AnswersFirst(NimbusDaemon):
    """A client is answered, and what it asked for is stored when there is time for it."""

    def do(self, decide: Any) -> bool:
        steps = list(decide())
        self.machine.after(0.2, lambda: super(AnswersFirst, self).do(lambda: steps) if self.up else None)
        return self.up


class ForgetsNodes(NimbusDaemon):
    """Does not look for the workers of nodes that are silent."""

    def known(self, assignment: Assignment, slot: Any) -> list[Process]:
        found = super().known(assignment, slot)
        return found if slot.node in self.nimbus.cluster().supervisors else list(self.machine.processes.values())


class CountsAnew(SupervisorDaemon):
    """Begins to count incarnations again when it begins."""

    def _admit(self, work: SlotAssignment) -> Any:
        cells = super()._admit(work)
        if cells is not None and work.slot_index < len(cells) and cells[work.slot_index].pid == 0:
            cells[work.slot_index].incarnation = 0
        return cells

    def start(self) -> None:
        for (node, _), (boot, _) in self.machine.ledger.items():
            cells = self.machine.boards.get((boot.topology.id, boot.assignment.version))
            if node == self.node and cells is not None:
                cells[boot.slot_index].incarnation = 0
        super().start()


class NoLease(Process):
    """Lives as long as nobody ends it."""

    @property
    def may_live(self) -> bool:
        return True


class Deaf(SupervisorDaemon):
    """Does not ask Nimbus again what is wanted when it has come back."""

    def _register(self) -> None:
        if self.epoch > 1 and self.nimbus.epoch > 1:
            self._registered = self.nimbus.epoch
            return
        super()._register()


class Forgets(NimbusDaemon):
    """Takes a node that is leaving for one that has come back."""

    def register(self, request: RegisterSupervisor, answer: Callable[[AssignNode], None]) -> None:
        super().register(replace(request, leaves_within_secs=None), answer)


class KeepsNoSuccessor(NimbusDaemon):
    """Keeps in mind alone what takes the place of a topology."""

    def _store(self, change: StoreChange) -> None:
        if isinstance(change, StoreTopology):
            change = StoreTopology(replace(change.record, successor=None))
        super()._store(change)


class Impatient(Nimbus):
    """Begins a successor as soon as the one before it was told to leave."""

    def replaceable(self) -> list[TopologyRecord]:
        return [life.record for life in self._topologies if life.record.successor and life.left_at is not None]

    def replaced(self, topology_id: str, now: float) -> Instructions:
        life = self._topologies.by_id(topology_id)
        for slot in life.slots if life else ():
            life.vacated(slot)  # type: ignore[union-attr]
        return super().replaced(topology_id, now)


LIFE_MUTANTS = {
    "stored before told": LifeParts(nimbus=TellsFirst),
    "stored before answered": LifeParts(nimbus=AnswersFirst),
    "dead nodes found": LifeParts(nimbus=ForgetsNodes),
    "incarnations from the board": LifeParts(supervisor=CountsAnew),
    "lease": LifeParts(process=NoLease),
    "registration": LifeParts(supervisor=Deaf),
    "leaving nodes known": LifeParts(nimbus=Forgets),
    "successors stored": LifeParts(nimbus=KeepsNoSuccessor),
    "successors wait": LifeParts(decisions=Impatient),
}
