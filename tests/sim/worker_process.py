"""A worker of the simulated cluster that is one: the product's worker core, turn, data plane and status board.

Guarantees: as `scheduler.worker.loop.Worker`, it turns, publishes when its turn says so, and sleeps as long as that
says, or until a frame is there. It can be killed between two turns and at each effect inside one, be stopped for a
time, and hang. What happens depends on the machine's generator alone, ids included.

What is not the product's: ZeroMQ (`tests.sim.wire`), the process, its files, and what it says to its supervisor.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from squall.engine.api.config import Config
from squall.engine.clock import NS_PER_SEC
from squall.engine.core.assemble import Assembler, close_tasks
from squall.engine.core.surroundings import Surroundings
from squall.ipc.data_plane import DataPlane, PlaneAddress, PlaneLimits, PlaneParts
from squall.ipc.frame import opening_of
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.worker.loop import plan_of
from squall.scheduler.worker.worker_board import BoardTrialPermit, WorkerBoard
from tests.sim.book import Book, topology_of
from tests.sim.invariants import unwrapped
from tests.sim.machine import Process
from tests.sim.wire import Context
from tests.unit.rig import copy_component

if TYPE_CHECKING:
    from tests.sim.joined_machine import JoinedMachine

_TURN_SECS = (0.001, 0.05)
"""On a busy machine: what a worker waits for its turn on a processor."""
_LATE_SECS = (0.0005, 0.02)
_LONG_NS = 1_500_000
_LATEST_SECS = 0.5
_LATE = (0.0, 0.1, 0.5)
"""How likely it is that a worker that looks for frames does not find one that is under way."""


class _KilledInside(BaseException):
    """The process is killed at an effect of its turn."""


class MortalPlane(DataPlane):
    """Its process may die before and after each effect of a turn."""

    passes: Callable[[], None]
    _took = False

    def receive(self, deliver: Any, most: int) -> int:
        frames = super().receive(deliver, most)
        if frames:
            self._took = True
            self.passes()
        return frames

    def take_acks(self, absorb: Any) -> int:
        acks = super().take_acks(absorb)
        if acks:
            self.passes()
        return acks

    def tell_acks(self, worker: int, acks: Any) -> bool:
        told = super().tell_acks(worker, acks)
        if told:
            self.passes()
        return told

    def send(self, worker: int, parcel: Any, most_bytes: int | None = None) -> int:
        self.passes()
        too_big = super().send(worker, parcel, most_bytes)
        self.passes()
        return too_big

    def send_credit(self, at_least: int) -> None:
        super().send_credit(at_least)
        if self._took:
            self._took = False
            self.passes()


class Inside:
    """What is in a worker's process: the objects that `scheduler.worker.loop.Worker` makes."""

    def __init__(self, process: WorkerProcess, machine: JoinedMachine, book: Book) -> None:
        boot, parts = process.boot, machine.parts.worker
        me, incarnation = boot.slot_index, boot.incarnation
        config = Config(**boot.topology.conf)
        plan = plan_of(boot.assignment)
        self.board = machine.board(boot.topology.id, boot.assignment.version)
        self.context = Context(machine.wire)
        path = machine.run_dir.worker_socket(
            boot.topology.id, boot.assignment.version, boot.node, boot.port, incarnation
        )
        self.address = f"ipc://{path}"
        self.plane = MortalPlane(
            self.context,  # type: ignore[arg-type]
            PlaneAddress(opening_of(boot.topology.id, boot.assignment.version), me, incarnation, path),
            PlaneLimits(config.link_window_bytes, 0),
            parts.rings(self.board.rings, self.board.n_slots, me, incarnation), None,
            PlaneParts(sender=parts.sender, receiver=parts.receiver),
        )
        self.plane.passes = process.passes
        if machine.rules:
            self.plane.break_links(machine.rules, machine.rng.getrandbits(32))
        peers = parts.peers(plan.n_workers, me)
        peers.update(me, incarnation, True)
        bounded = config.max_crashes is not None or config.max_attempts is not None
        around = Surroundings(
            boot.topology.name, f"{boot.node}:{boot.port}", incarnation, process.now_ns, None, machine.reported,
            lambda component, task, message_id, values, failure: None, copy=copy_component, threads=False,
            account=self.board.account, untracked=self.board.flow(me),
            said_quiet=self.board.said_quiet(me), at_hand=self.board.at_hand(me),
            trial_permit=BoardTrialPermit(self.board, me, bounded, process.now_ns),
            parts=replace(parts.core, draw=machine.rng.randbytes),
        )
        topology = topology_of(book, machine.parts.lines)
        self.core = Assembler(topology, plan, config, me, peers, around).build()
        self.shared = WorkerBoard(self.board, self.core, self.plane, machine.run_dir, boot, process.now_ns)
        self.turn = parts.turn(
            self.core, self.plane, self.shared, config, process.now_ns, sending=parts.sending
        )
        self.turn.follow_peers()
        self.shared.publish(acted=True, congested=False)


class WorkerProcess(Process):
    """One incarnation of a worker."""

    def __init__(self, machine: JoinedMachine, pid: int, boot: WorkerBoot) -> None:
        self.machine = machine
        self.inside: Inside | None = None
        self.stopped_until = 0.0
        self.dies_in: int | None = None
        """After so many more effects of its turns it is killed."""
        self._status = ""
        self._clock_ns = 0
        self._wakes: tuple[float, int] | None = None
        """When it goes on, and the number of that plan; None while it does not sleep."""
        self._plans = 0
        super().__init__(machine, pid, boot)

    # ---- what its supervisor wants ----

    @property
    def status(self) -> str:
        return self._status

    @status.setter
    def status(self, status: str) -> None:
        self._status = status
        if self.inside is not None:
            with unwrapped():
                self.inside.core.set_active(status == "ACTIVE")
            self.inside.turn.stir()
            self.hear()

    # ---- life ----

    def _open(self) -> None:
        if not self.lives or self.hangs or self._is_stopped(self._open):
            return
        machine = self.machine
        if self.may_live and self._lease is not None and self._lease.has_begun(self.pid):
            with unwrapped():
                self.inside = Inside(self, machine, machine.book_of(self.boot.topology))
            machine.by_address[self.inside.address] = self
        super()._open()
        if self.is_ready and self.inside is not None:
            with unwrapped():
                self.inside.core.set_active(self._status == "ACTIVE")
            self.inside.turn.get_up()
            self._go_on_in(machine.rng.uniform(*_TURN_SECS))

    def end(self, status: int) -> None:
        if self.lives and self.inside is not None:
            self._leave(self.inside, in_order=status == 0)
            self.inside = None
        super().end(status)

    def _leave(self, inside: Inside, in_order: bool) -> None:
        machine = self.machine
        del machine.by_address[inside.address]
        if in_order:
            inside.core.end_attempts()
            assert not close_tasks(inside.core)
            inside.plane.close()
        else:
            machine.wire.queues.pop(inside.address, None)
            inside.context.die()

    def hear_order(self, status: str) -> None:
        if not self._is_stopped(lambda: self.hear_order(status)):
            super().hear_order(status)

    def _check_lease(self) -> None:
        if not self._is_stopped(self._check_lease):
            super()._check_lease()

    def _is_stopped(self, then: Callable[[], None]) -> bool:
        """Whether it is stopped now; it does `then` when that ends."""
        if self.stopped_until <= self.machine.now:
            return False
        self.machine.at(self.stopped_until, then)
        return True

    # ---- turns ----

    def now_ns(self) -> int:
        """What it reads off the clock: now and then something has taken its time."""
        machine = self.machine
        self._clock_ns = max(self._clock_ns, round(machine.now * NS_PER_SEC))
        if machine.rng.random() < 0.05:
            self._clock_ns += machine.rng.randrange(_LONG_NS)
        return self._clock_ns

    def passes(self) -> None:
        """An effect inside of a turn."""
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                raise _KilledInside

    def _go_on_in(self, secs: float) -> None:
        self._plans += 1
        plan = self._plans
        self._wakes = self.machine.now + secs, plan
        self.machine.after(secs, lambda: self._go_on(plan))

    def hear(self) -> None:
        """Something is on its way to it."""
        secs = self.machine.rng.uniform(*_LATE_SECS)
        if self._wakes is not None and self.machine.now + secs < self._wakes[0]:
            self._go_on_in(secs)

    def _go_on(self, plan: int) -> None:
        if plan != self._plans or self.inside is None or self.hangs:
            return
        if self._is_stopped(lambda: self._go_on(plan)):
            return
        machine = self.machine
        machine.in_turn = True
        machine.wire.late = machine.rng.choice(_LATE)
        self._wakes = None
        try:
            with unwrapped():
                secs = self._turn(self.inside)
        except _KilledInside:
            machine.note(f"killed inside of its turn: {self.pid}")
            machine.in_turn = False
            self.end(signal.SIGKILL)
            return
        self._go_on_in(max(0.0, self._clock_ns / NS_PER_SEC - machine.now) + secs)

    def _turn(self, inside: Inside) -> float:
        """As `Worker.run`: turn, publish if it is time to, sleep if there is nothing to do. For how long."""
        rng, turn = self.machine.rng, inside.turn
        turn.get_up()
        for bolt in inside.core.bolt_tasks.values():
            bolt.slice_rows = rng.choice((1, 2, 1000))
        worked = turn.run()
        if turn.acted:
            inside.shared.has_acted = True
        soon = rng.uniform(*_TURN_SECS)
        if turn.shows:
            inside.shared.publish(turn.acted, turn.blocked)
        elif worked:
            return soon
        wait_ms = turn.lie_down()
        if not wait_ms:
            turn.get_up()
            return soon
        if self.machine.wire.has_input(inside.plane.inbound):  # type: ignore[arg-type]
            return soon
        # Long idle, it is woken late: that is what a busy machine does, and makes no turn that does nothing. Never so
        # late that its supervisor would take it for one that hangs.
        wait_secs = wait_ms / 1000
        return soon + wait_secs + min(wait_secs * rng.choice((0, 0, 3, 15)), _LATEST_SECS)
