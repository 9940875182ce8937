"""Clusters that are wrong in one place each: simulated lives must notice. Where daemons and store alone show it, the
workers are simulated, too; otherwise they are the product's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as with_fields

from squall.engine.api.failure import Failure
from squall.scheduler.common.messages import (
    Assignment,
    AssignNode,
    RegisterSupervisor,
    SlotAssignment,
    TopologyRecord,
)
from squall.scheduler.nimbus.decisions import Instructions, Nimbus
from squall.scheduler.nimbus.instruction import NimbusInstruction, StoreChange, StoreTopology
from squall.scheduler.nimbus.topology_life import TopologyLife
from squall.scheduler.worker.self_watch import Lease
from tests.sim import invariants
from tests.sim.book import Lines
from tests.sim.cluster_life import THE_PRODUCT, LifeParts
from tests.sim.control import Control
from tests.sim.core_mutants import TellsNobody
from tests.sim.joined_life import JOINED, JoinedParts
from tests.sim.machine import Process
from tests.sim.mutants import HighestPrefix
from tests.sim.nimbus_daemon import NimbusDaemon, SimulatedStore
from tests.sim.parts import Parts
from tests.sim.supervisor_daemon import SupervisorDaemon
from tests.sim.watchful_supervisor import WatchfulSupervisor


@dataclass(frozen=True)
class LifeMutant(Control):
    """A life of a cluster that lacks a part."""

    kind = "lives"
    most = 300
    parts: LifeParts

    def run(self, seed: int, is_off: bool = True) -> None:
        product = JOINED if isinstance(self.parts, JoinedParts) else THE_PRODUCT
        parts = self.parts if is_off else replace(product, faults=self.parts.faults)
        parts.life(seed, parts).run()


# ---- daemons and store ----


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
        board = super()._admit(work)
        if board is not None and board.slot(work.slot_index).pid == 0:
            board.set_slot(work.slot_index, 0, 0, 0)
        return board


class NoLease(Lease):
    """Does not end."""

    def check(self) -> None:
        pass


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
        super().register(with_fields(request, leaves_within_secs=None), answer)


class KeepsNoSuccessor(NimbusDaemon):
    """Keeps in mind alone what takes the place of a topology."""

    def _store_all(self, changes: list[StoreChange]) -> None:
        super()._store_all([
            StoreTopology(with_fields(change.record, successor=None)) if isinstance(change, StoreTopology) else change
            for change in changes
        ])


class Impatient(Nimbus):
    """Begins a successor as soon as the one before it was told to leave."""

    def _finish_if_empty(self, life: TopologyLife, now: float) -> Instructions:
        for slot in life.slots if life.record.successor and life.left_at is not None else ():
            life.vacated(slot)
        return super()._finish_if_empty(life, now)


class ForgetsPlaces(NimbusDaemon):
    """Comes back without knowing where topologies run."""

    def _read_store(self) -> tuple[list[TopologyLife], int, set[str]]:
        lives, number, deleted = super()._read_store()
        return [TopologyLife(life.record) for life in lives], number, deleted


class CommitsHalf(SimulatedStore):
    """Commits each change by itself."""

    def _run(self, sql: str, *values: object) -> Any:
        found = super()._run(sql, *values)
        if sql.startswith(("INSERT", "DELETE")):
            super()._run("COMMIT")
            super()._run("BEGIN IMMEDIATE")
        return found


class Unjournaled(SimulatedStore):
    """Writes to its file without a journal, and makes no copy."""

    def _make_copy(self) -> None:
        pass

    def _open(self) -> None:
        super()._open()
        self._run("PRAGMA journal_mode = OFF")


# ---- daemons and real workers ----


class Inattentive(WatchfulSupervisor):
    """Does not hear of the end of the workers that it has taken over."""

    def _watch(self, process: Process, parent: int | None) -> None:
        super()._watch(process, parent)
        if parent is None:
            process.on_end = lambda status: None


class RestsSoon(NimbusDaemon):
    """Takes a topology for one at rest when its spouts were told to stop."""

    def _is_at_rest(self, record: TopologyRecord, assignment: Assignment) -> bool:
        self.machine.check_rest(record.id, assignment.version)
        return True


class BeginsBoards(NimbusDaemon):
    """Makes a board that continues no other."""

    def _make_board(self, assignment: Assignment) -> None:
        self.machine.run_dir.board(assignment.topology_id, assignment.version - 1).unlink(missing_ok=True)
        super()._make_board(assignment)


class Unasking(NimbusDaemon):
    """Does not ask a node that registers what it holds."""

    def register(self, request: RegisterSupervisor, answer: Callable[[AssignNode], None]) -> None:
        super().register(with_fields(request, holds={}), answer)


class Unmoved(Lines):
    """Hears of a failure, and does nothing."""

    def on_failure(self, message_id: int, failure: Failure) -> None:
        self.book.fails(self.opening, message_id, failure.reason, self.context.now_ns())


class KeepsHighest(Lines):
    prefix = HighestPrefix


_ADOPTED, _HOLDS = ("supervisor", "worker"), ("nimbus", "stop", "worker")

LIFE_MUTANTS = (
    LifeMutant("stored before told", invariants.NAME_TWICE, LifeParts(nimbus=TellsFirst)),
    LifeMutant("stored before answered", invariants.FORGOTTEN, LifeParts(nimbus=AnswersFirst)),
    LifeMutant("dead nodes found", invariants.NOT_RUNNING, LifeParts(nimbus=ForgetsNodes)),
    LifeMutant("incarnations from the board", invariants.NAME_TWICE, LifeParts(supervisor=CountsAnew)),
    LifeMutant("lease", invariants.STRAY, LifeParts(lease=NoLease)),
    LifeMutant("registration", invariants.NOT_RUNNING, LifeParts(supervisor=Deaf)),
    LifeMutant("leaving nodes known", invariants.GIVEN_WHILE_LEAVING, LifeParts(nimbus=Forgets)),
    LifeMutant("successors stored", invariants.FORGOTTEN, LifeParts(nimbus=KeepsNoSuccessor)),
    LifeMutant("successors wait", invariants.TWO_OF_A_NAME, LifeParts(decisions=Impatient)),
    LifeMutant("places from the store", invariants.NAME_TWICE, LifeParts(nimbus=ForgetsPlaces)),
    LifeMutant("one transaction", invariants.STORE_DIFFERS, LifeParts(store=CommitsHalf)),
    LifeMutant("the store's journal", invariants.STORE_DIFFERS, LifeParts(store=Unjournaled)),
    # Nobody starts another in its place.
    LifeMutant(
        "deaths of adopted workers", invariants.NOT_RUNNING, JoinedParts(supervisor=Inattentive, faults=_ADOPTED)
    ),
    LifeMutant("a look at what is open", invariants.RESTED_EARLY, JoinedParts(nimbus=RestsSoon)),
    LifeMutant("boards that continue", invariants.MISCOUNTED, JoinedParts(nimbus=BeginsBoards)),
    LifeMutant("what a node holds", invariants.MISCOUNTED, JoinedParts(nimbus=Unasking, faults=_HOLDS)),
    LifeMutant("replay", invariants.MESSAGE_LOST, JoinedParts(lines=Unmoved)),
    LifeMutant("contiguous position", invariants.COMMITTED_TOO_FAR, JoinedParts(lines=KeepsHighest)),
    LifeMutant("acks for who sleeps", invariants.WAITED_FOR_TIMEOUT, JoinedParts(worker=Parts(turn=TellsNobody))),
)
