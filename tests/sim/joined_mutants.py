"""Clusters that are wrong in one place each, in what daemons, workers and store have to do with one another: the joined
simulation must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from squall.engine.api.failure import Failure
from squall.engine.core.surroundings import Parts as CoreParts
from squall.ipc.board import Board
from squall.scheduler.common.messages import Assignment, AssignNode, RegisterSupervisor, TopologyRecord
from squall.scheduler.nimbus.instruction import CreateBoard, StoreChange
from squall.scheduler.nimbus.topology_life import TopologyLife
from tests.sim import invariants
from tests.sim.book import Lines
from tests.sim.core_mutants import NEITHER, careless_emit
from tests.sim.joined_life import JoinedParts
from tests.sim.joined_machine import MachineParts
from tests.sim.machine import Process
from tests.sim.mutants import BlindAcker, HighestPrefix
from tests.sim.parts import Parts
from tests.sim.stored_nimbus import SimulatedStore, StoredNimbus
from tests.sim.turn_mutants import TellsNobody
from tests.sim.watchful_supervisor import WatchfulSupervisor


@dataclass(frozen=True)
class JoinedMutant:
    """What was taken away, and the invariants one of which must break."""

    parts: JoinedParts
    breaks: tuple[str, ...]
    first: int = 0
    """The seed to begin with: lives before it do not show it."""


class Inattentive(WatchfulSupervisor):
    """Does not hear of the end of the workers that it has taken over."""

    def _watch(self, process: Process, parent: int | None) -> None:
        super()._watch(process, parent)
        if parent is None:
            process.on_end = lambda status: None


class ForgetsPlaces(StoredNimbus):
    """Comes back without knowing where topologies run."""

    def _read_store(self) -> tuple[list[TopologyLife], int, set[str]]:
        lives, number, deleted = super()._read_store()
        return [TopologyLife(life.record) for life in lives], number, deleted


class StoresLater(StoredNimbus):
    """Says yes, and writes it down when there is time for it."""

    def _store_all(self, changes: list[StoreChange]) -> None:
        epoch = self.epoch
        if changes:
            self.machine.after(0.2, lambda: self._then(epoch, changes))

    def _then(self, epoch: int, changes: list[StoreChange]) -> None:
        if self.up and self.epoch == epoch:
            self.do(lambda: self._all(changes))

    def _all(self, changes: list[StoreChange]) -> list[Any]:
        super()._store_all(changes)
        return []


class CommitsHalf(SimulatedStore):
    """Commits each change by itself."""

    def _run(self, sql: str, *values: object) -> Any:
        found = super()._run(sql, *values)
        if sql.startswith(("INSERT", "UPDATE", "DELETE")):
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


class RestsSoon(StoredNimbus):
    """Takes a topology for one at rest when its spouts were told to stop."""

    def _is_at_rest(self, record: TopologyRecord, assignment: Assignment) -> bool:
        pending = self.machine.open_messages(record.id, assignment.version)
        if pending:
            raise invariants.InvariantBrokenError(invariants.RESTED_EARLY, f"{record.id}: {pending}")
        return True


class BeginsBoards(StoredNimbus):
    """Makes a board that continues no other."""

    def _make_board(self, step: CreateBoard) -> None:
        path = self.machine.run_dir.board(step.topology_id, step.version)
        Board.create(str(path), step.n_slots, step.n_tasks).close()


class Unasking(StoredNimbus):
    """Does not ask a node that registers what it holds."""

    def register(self, request: RegisterSupervisor, answer: Callable[[AssignNode], None]) -> None:
        super().register(replace(request, holds={}), answer)


class Unmoved(Lines):
    """Hears of a failure, and does nothing."""

    def on_failure(self, message_id: int, failure: Failure) -> None:
        self.book.fails(self.opening, message_id, failure.reason, self.context.now_ns())


class KeepsHighest(Lines):
    prefix = HighestPrefix


def _core(**parts: Callable[..., Any]) -> JoinedParts:
    return _worker(Parts(core=CoreParts(**parts)))


def _worker(parts: Parts) -> JoinedParts:
    return JoinedParts(machine=MachineParts(worker=parts))


_LOST = (invariants.MESSAGE_LOST, invariants.WAITED_FOR_TIMEOUT)

JOINED_MUTANTS = {
    "deaths of adopted workers": JoinedMutant(JoinedParts(supervisor=Inattentive), (invariants.NOT_RUNNING,), 115),
    "places from the store": JoinedMutant(JoinedParts(nimbus=ForgetsPlaces), (invariants.NAME_TWICE,), 4),
    "stored before answered": JoinedMutant(JoinedParts(nimbus=StoresLater), (invariants.FORGOTTEN,), 22),
    "one transaction": JoinedMutant(
        JoinedParts(machine=MachineParts(store=CommitsHalf)), (invariants.STORE_DIFFERS,), 4
    ),
    "the store's journal": JoinedMutant(
        JoinedParts(machine=MachineParts(store=Unjournaled)), (invariants.STORE_DIFFERS,), 66
    ),
    "a look at what is open": JoinedMutant(JoinedParts(nimbus=RestsSoon), (invariants.RESTED_EARLY,), 12),
    "boards that continue": JoinedMutant(JoinedParts(nimbus=BeginsBoards), (invariants.MISCOUNTED,)),
    "what a node holds": JoinedMutant(JoinedParts(nimbus=Unasking), (invariants.MISCOUNTED,), 1226),
    "replay": JoinedMutant(JoinedParts(machine=MachineParts(lines=Unmoved)), (invariants.MESSAGE_LOST,), 2),
    "contiguous position": JoinedMutant(
        JoinedParts(machine=MachineParts(lines=KeepsHighest)), (invariants.COMMITTED_TOO_FAR,), 12
    ),
    "anchors": JoinedMutant(_core(fast_emit=careless_emit), (invariants.ACKED_EARLY,)),
    "trees of the dead": JoinedMutant(_core(acker=BlindAcker), _LOST, 2),
    "link dedupe and INIT guard": JoinedMutant(
        _worker(NEITHER), (invariants.ACKED_EARLY, invariants.EXECUTED_TWICE)
    ),
    "acks for who sleeps": JoinedMutant(_worker(Parts(turn=TellsNobody)), _LOST),
}
