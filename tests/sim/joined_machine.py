"""The machine of a joined life: the one of `tests.sim.machine`, with wires between real workers.

Guarantees: the same seed does the same, down to each byte on the wires, which is in the hash of the trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.engine.clock import NS_PER_SEC
from squall.ipc.board import DEAD, STOPPED
from squall.ipc.shim import LinkRule
from squall.scheduler.common.messages import Assignment, TopologyRecord
from squall.scheduler.records.topology_view import TopologyView
from squall.scheduler.supervisor.instruction import SetBoard
from tests.sim.book import Book
from tests.sim.invariants import RESTED_EARLY, InvariantBrokenError
from tests.sim.machine import Machine
from tests.sim.wire import Message, Wire
from tests.sim.worker_process import WorkerProcess

if TYPE_CHECKING:
    from tests.sim.joined_life import JoinedParts

_RECORDS, _EMITS_FOR_SECS = (20, 60), (0.5, 2.0, 5.0)


class JoinedMachine(Machine):
    """Close it at the end."""

    parts: JoinedParts

    def __init__(self, seed: int, parts: JoinedParts) -> None:
        super().__init__(seed, parts)
        self.wire = Wire(self.rng)
        self.wire.sent = self._sent
        self.by_address: dict[str, WorkerProcess] = {}
        """Those that listen."""
        self.books: dict[str, Book] = {}
        """By topology."""
        self.may_time_out = True
        """Whether an attempt may fail by its timeout."""
        self._have_ended: set[str] = set()
        """Topologies of which a worker has ended."""
        self.rules: list[LinkRule] = []
        """How links are broken now."""
        self.in_turn = False
        """Whether the last that happened was a worker's turn."""

    def board_says(self, step: SetBoard) -> None:
        if step.state in (DEAD, STOPPED) or step.incarnation > 1:
            # Also a worker that was never forked: peers have seen it begin, and another take its place.
            self._have_ended.add(step.topology_id)

    def new_book(self, timeout_secs: float, name: str = "") -> Book:
        return Book(self.rng.choice(_RECORDS), timeout_secs, lambda text: self.note(f"{name}: {text}"))

    def book_of(self, topology: TopologyRecord) -> Book:
        """The book of a topology, begun when its first worker is."""
        book = self.books.get(topology.id)
        if book is None:
            book = self.books[topology.id] = self.new_book(topology.conf["message_timeout_secs"], topology.name)
            book.began_ns = round(self.now * NS_PER_SEC)
            book.emits_for_secs = self.rng.choice(_EMITS_FOR_SECS)
            book.breaks = bool(self.rules)
            book.may_time_out = lambda: self.may_time_out
            book.workers_ended = lambda: topology.id in self._have_ended
        return book

    @property
    def workers(self) -> list[WorkerProcess]:
        return [process for process in self.processes.values() if isinstance(process, WorkerProcess)]

    def _sent(self, address: str, message: Message) -> None:
        for part in message:
            self._trace.update(part)
        listener = self.by_address.get(address)
        if listener is not None:
            listener.hear()

    def break_links(self, rules: list[LinkRule]) -> None:
        """From now on, and with no rules no longer."""
        self.rules = rules
        for book in self.books.values():
            book.breaks += bool(rules)
        for process in self.workers:
            if process.inside is not None:
                process.inside.plane.break_links(rules, self.rng.getrandbits(32))

    def is_at_rest(self, record: TopologyRecord, assignment: Assignment) -> bool:
        board = self.board(record.id, assignment.version)
        if board is None or not TopologyView(board, assignment, record).is_at_rest():
            return False
        self.check_rest(record.id, assignment.version)
        return True

    def check_rest(self, topology_id: str, version: int) -> None:
        """Raise InvariantBrokenError if spouts wait for messages, as they know themselves."""
        for process in self.workers:
            boot = process.boot
            if process.inside is not None and (boot.topology.id, boot.assignment.version) == (topology_id, version):
                pending = sum(len(task.pending) for task in process.inside.core.spout_tasks.values())
                if pending:
                    raise InvariantBrokenError(RESTED_EARLY, f"{topology_id}: {pending} messages are open in {process}")

    def reported(self, component: str, task: int, text: str) -> None:
        raise AssertionError(f"{component}[{task}] reported {text}")

