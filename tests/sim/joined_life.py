"""A life of everything at once: real worker cores over simulated wires, placed and watched by simulated daemons, while
all of it is broken and mended.

What must hold, beside what holds in every life of a cluster (`tests.sim.cluster_life`): what the book says of tuples
(`tests.sim.book`); a topology taken for one at rest is. At the end: every record is acked, the boards say that all is
drained, each slot is a topology's or free.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from squall.engine.api.config import Config
from squall.ipc.shim import LinkRule
from squall.scheduler.common.messages import ComponentSummary, SubmitTopology
from squall.scheduler.records.topology_view import TopologyView
from tests.sim.book import Lines, topology_of
from tests.sim.cluster_life import ClusterLife, LifeParts
from tests.sim.invariants import MISCOUNTED, NEVER_ENDED, NOT_RUNNING, SLOT_LEAKED, STATE_LEFT, InvariantBrokenError
from tests.sim.joined_machine import JoinedMachine
from tests.sim.machine import Process
from tests.sim.parts import PARTS, Parts
from tests.sim.supervisor_daemon import SupervisorDaemon
from tests.sim.watchful_supervisor import WatchfulSupervisor
from tests.sim.worker_process import WorkerProcess

_HEAL_SECS, _LOOK_SECS, _STILL_SECS = 130.0, 0.5, 2.0
_TIMEOUTS_SECS = (5.0, 60.0)
"""In lives with the second, nothing may wait for it: all that is broken is mended long before. Unless a node is lost:
who is to hear of the deaths of its workers drains until then."""
_LINK_FAULTS = ("drop", "duplicate", "delay", "reorder", "flip", "cut", "garble")


@dataclass(frozen=True)
class JoinedParts(LifeParts):
    """What a joined life is made of; controls put something wrong in."""

    supervisor: type[SupervisorDaemon] = WatchfulSupervisor
    process: type[Process] = WorkerProcess
    worker: Parts = PARTS
    lines: type[Lines] = Lines

    @property
    def life(self) -> type[JoinedLife]:
        return JoinedLife


JOINED = JoinedParts()


class JoinedLife(ClusterLife):
    """One seeded life. What each step does depends on the seed and its number alone, whatever is left out."""

    names: Sequence[str] = ("one", "two")
    life_secs = 6.0
    port_counts: Sequence[int] = (2, 3)
    worker_counts: Sequence[int] = (1, 2, 3, 4)
    request_rate = 0.7
    fault_rates: Sequence[float] = (1.0, 3.0)
    faults: Sequence[str] = (
        "worker", "worker", "inside", "inside", "pause", "nimbus", "supervisor", "node", "parent", "leave", "stop",
        "hang", "refuse", "links", "links", "store",
    )
    machine: JoinedMachine

    def __init__(self, seed: int, parts: JoinedParts = JOINED, without: Collection[int] = ()) -> None:
        self._seed = seed
        super().__init__(seed, parts, without)
        self._timeout_secs = self.rng.choice(_TIMEOUTS_SECS)
        self.machine.may_time_out = self._timeout_secs == min(_TIMEOUTS_SECS)
        self._window_bytes = self.rng.choice((1 << 16, 8 << 20))
        self._ackers = self.rng.choice((None, 1, 2))
        self._pending = self.rng.choice((3, 10, None))

    def _new_machine(self, seed: int, parts: LifeParts) -> JoinedMachine:
        assert isinstance(parts, JoinedParts)
        return JoinedMachine(seed, parts)

    def _takes_step(self) -> bool:
        takes = super()._takes_step()
        self.rng = random.Random(f"{self._seed} {self.steps}")
        return takes

    # ---- what clients do ----

    def _begin(self, until: float) -> None:
        for name in self.names:
            self.machine.after(self.rng.uniform(0.1, 1.0), lambda name=name: self._ask("ACTIVE", name))  # type: ignore[misc]
        if self.rng.random() < 0.4:
            self._break_links()
        super()._begin(until)

    def _submission(self, name: str, workers: int) -> SubmitTopology:
        conf = {
            "workers": workers, "message_timeout_secs": self._timeout_secs, "max_spout_pending": self._pending,
            "link_window_bytes": self._window_bytes, "ackers": self._ackers, "worker_timeout_secs": 2.0,
            "seed": self._seed,
        }
        book = self.machine.new_book(self._timeout_secs)
        rows = topology_of(book).layout(Config(**conf).acker_count)
        return SubmitTopology(name, conf, [ComponentSummary(*row) for row in rows], "ab" * 32, [])

    # ---- what breaks ----

    def _inject(self, fault: str, node: SupervisorDaemon) -> None:
        machine, rng = self.machine, self.rng
        workers = machine.workers
        if fault == "inside" and workers:
            rng.choice(workers).dies_in = rng.randrange(20)
        elif fault == "pause" and workers:
            victim = rng.choice(workers)
            victim.stopped_until = max(victim.stopped_until, machine.now + rng.choice((0.05, 0.5, 3.0)))
        elif fault == "links":
            self._break_links()
        else:
            super()._inject(fault, node)

    def _lose(self, node: SupervisorDaemon) -> None:
        self.machine.may_time_out = True
        super()._lose(node)

    def _break_links(self) -> None:
        kinds = [kind for kind in _LINK_FAULTS if self.rng.random() < 0.4]
        self.machine.break_links([LinkRule(kind, self.rng.choice((0.02, 0.1, 0.3))) for kind in kinds])

    def _heal(self) -> None:
        self.machine.break_links([])
        for process in self.machine.workers:
            process.dies_in = None
        super()._heal()

    # ---- what must hold ----

    def _check(self) -> None:
        """After all that happens but turns of workers, which change nothing of daemons."""
        if self.machine.in_turn:
            self.machine.in_turn = False
            return
        super()._check()

    def _come_to_rest(self) -> None:
        machine = self.machine
        end, rested = machine.now + _HEAL_SECS, False
        # What rests must still do so after a while: a topology may just be about to move to slots that became free.
        while machine.now < end and not (rested and self._rests):
            self._activate()
            rested = self._rests
            machine.run_until(machine.now + (_STILL_SECS if rested else _LOOK_SECS), self._check)
        self._check_end()

    def _activate(self) -> None:
        """Somebody wants to see the results of what was deactivated."""
        for record in self.nimbus.nimbus.cluster().topologies:
            if record.status == "INACTIVE":
                self.nimbus.do(lambda name=record.name: self.nimbus.nimbus.set_status(name, "ACTIVE")[1])  # type: ignore[misc]

    @property
    def _rests(self) -> bool:
        if any(each.stopped_until > self.machine.now for each in (self.nimbus, *self.nodes, *self.machine.workers)):
            return False
        if any(node.is_leaving or not node.up for node in self.nodes):
            return False
        try:
            self._check_end()
        except InvariantBrokenError:
            return False
        return True

    def _check_end(self) -> None:
        super()._check_end()
        self._check_slots()
        for record, assignment in self.nimbus.nimbus.assigned():
            board = None if assignment is None else self.machine.board(record.id, assignment.version)
            if assignment is None or board is None or record.status != "ACTIVE":
                continue
            self.machine.book_of(record).check_end()
            view = TopologyView(board, assignment, record)
            if not view.is_drained():
                self._broken(NEVER_ENDED, f"{record.id} is not drained: {view.undrained()}")
            counted = {column: view.spout_total(column) for column in ("emitted", "acked", "dead_letters")}
            if counted != self.machine.book_of(record).totals:
                self._broken(MISCOUNTED, f"{record.id}: {counted}, of {self.machine.book_of(record).totals}")
            left = view.unfinished()
            if left:
                self._broken(STATE_LEFT, f"by the board of {record.id}: {left}")
        for address in self.machine.by_address:
            if any(self.machine.wire.queues.get(address, ())):
                self._broken(STATE_LEFT, f"frames under way to {self.machine.by_address[address]}")

    def _check_slots(self) -> None:
        cluster = self.nimbus.nimbus.cluster()
        away = [node.node for node in self.nodes if node.node not in cluster.supervisors]
        if away:
            self._broken(NOT_RUNNING, f"supervisors of {away}")
        taken = [
            slot for _, assignment in self.nimbus.nimbus.assigned() if assignment is not None
            for slot in assignment.workers if slot.node in cluster.supervisors
        ]
        there = sorted((node.node, port) for node in self.nodes for port in node.ports)
        if sorted((slot.node, slot.port) for slot in [*taken, *cluster.free_slots]) != there:
            self._broken(SLOT_LEAKED, f"taken {taken}, free {cluster.free_slots}, there are {there}")
