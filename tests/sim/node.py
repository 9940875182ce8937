"""One incarnation of a worker in the model: the product's tracking, tables and links, and bolts that a shape describes.

What `engine.core.turn` and `ipc.data_plane` do with sockets is done here in a few lines without them: fencing,
connecting, credit, word of what was lost. `tests.sim.cores` runs the real ones.
"""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from typing import TYPE_CHECKING, Any

from squall.engine.api.failure import FAILED, WORKER_DIED, Failure
from squall.engine.api.tuple import Run
from squall.engine.core.spout_executor import SpoutTask
from squall.engine.flow.batch import Batch, OpenBatch
from squall.engine.flow.ids import ACKER_BITS, EdgeIds
from squall.engine.flow.parcel import Parcel
from squall.engine.tracking.fate import Fate
from squall.engine.tracking.open_messages import Ports
from tests.sim.parts import IDS, IDS_PER_INCARNATION, MESSAGE_TIMEOUT_NS, STATS, WINDOW_BYTES
from tests.sim.shapes import FAILS_FIRST, FORGETS_FIRST, JOIN, RESETS, SELF_ANCHOR, BoltSpec

if TYPE_CHECKING:
    from squall.ipc.link import LinkReceiver, LinkSender, Missed
    from tests.sim.world import World

DATA, CREDIT, HELLO, LOST, KNOWN, SPOILT = 0, 1, 2, 3, 4, 5
"""SPOILT: DATA that cannot be decoded."""
_BY_BOLT = Failure(FAILED, "bolt")


class Roots:
    """As `engine.flow.ids.root_ids`, in a form that can be saved with the world: from 3.14 on, itertools' own
    cannot."""

    def __init__(self, first: int, step: int) -> None:
        self._next = first
        self._step = step

    def __iter__(self) -> Roots:
        return self

    def __next__(self) -> int:
        root = self._next
        self._next += self._step
        return root


class Node:
    """A worker from its start to its death. Emits, executes and tells; decides nothing about the schedule."""

    __slots__ = (
        "ackers", "bits", "fence", "inbox", "incarnation", "kept", "last_init", "me", "opens", "outbox", "parcels",
        "peers", "pending", "receivers", "roots", "rotates_at_ns", "seen", "senders", "to_confirm", "tracking", "world",
    )

    def __init__(self, world: World, me: int, incarnation: int) -> None:
        shape, parts = world.shape, world.parts
        n_workers = shape.plan.n_workers
        self.world = world
        self.me = me
        self.incarnation = incarnation
        self.rotates_at_ns = 0
        self.seen = [(0, False)] * n_workers
        self.fence = [0] * n_workers
        self.senders: dict[int, tuple[LinkSender, int]] = {}
        self.receivers: dict[int, LinkReceiver] = {}
        self.to_confirm: dict[int, int] = {}
        self.parcels = defaultdict[int, Parcel](Parcel)
        self.inbox: list[Batch] = []
        self.kept: list[tuple[BoltSpec, int, Run, tuple[int, ...]]] = []
        self.opens: dict[int, OpenBatch] = {}
        self.bits: dict[int, int] = {}
        self.last_init: tuple[int, int, int, int] | None = None
        self.peers = parts.peers(n_workers, me)
        self.peers.update(me, incarnation, True)
        turn = (incarnation * n_workers + me) % 64 if parts.ids_per_worker else 0
        start = (turn * 8 + world.seed % 8) * IDS_PER_INCARNATION
        edges = EdgeIds()
        edges.pool.extend(IDS[start : start + IDS_PER_INCARNATION])
        self.outbox = parts.core.outbox(edges)
        spout_tasks: dict[int, Any] = {}
        self.tracking = parts.core.tracking(
            shape.plan, self.peers, self.outbox, spout_tasks, self.parcel, parts.core.acker
        )
        self.ackers = self.tracking.ackers
        self.pending = None
        if me == shape.spout_worker:
            # Each turn its own acker: those of this worker, or all in turn (D7b).
            n_ackers = len(shape.plan.ackers)
            acker = min(self.ackers) if self.ackers else incarnation % n_ackers
            start = (incarnation << 10) + 1 if parts.root_per_attempt else 1
            self.roots = Roots(start << ACKER_BITS | acker, 1 << ACKER_BITS)
            self.pending = parts.core.pending(
                shape.spout_task, STATS, MESSAGE_TIMEOUT_NS, Fate(),
                Ports(world.now, self.init_tree, self.tracking.forget_tree, world.give_up, world.note),
            )
            spout_tasks[shape.spout_task] = SpoutTask(
                "spout", shape.spout_task, world.spout, None, self.pending, STATS, None
            )
        self.follow()

    def parcel(self, worker: int) -> Parcel:
        return self.parcels[worker]

    def init_tree(self, root: int, xor: int, spout_task: int, mask: int) -> None:
        self.last_init = (root, xor, spout_task, mask)
        self.tracking.init_tree(root, xor, spout_task, mask)

    # ---- what the board says ----

    def follow(self) -> None:
        board = self.world.board
        if self.seen == board and self.bits:
            return
        changed = [worker for worker, now in enumerate(board) if worker != self.me and now != self.seen[worker]]
        self.seen = list(board)
        # As `WorkerCore.peers_changed`: what was to go to the dead is dropped before any tree fails.
        dead = [worker for worker in changed if self._peer_changed(worker, *board[worker])]
        self._refresh_bits()
        for worker in dead:
            self._drop_for(worker)
        for worker in dead:
            self.tracking.worker_died(worker, Failure(WORKER_DIED))
            self._pack_acks()

    def _peer_changed(self, worker: int, incarnation: int, alive: bool) -> bool:
        """As `Turn.follow_peers`; whether an incarnation died."""
        if not alive or incarnation != self.peers.incarnation(worker):
            link = self.senders.pop(worker, None)
            if link is not None:
                link[0].close()
                self.to_confirm.pop(worker, None)
            self.fence_off(worker, incarnation if alive else incarnation + 1)
        died = self.peers.update(worker, incarnation, alive)
        if alive and worker not in self.senders:
            self.senders[worker] = (self.world.parts.sender(WINDOW_BYTES), incarnation)
        return died

    def _drop_for(self, worker: int) -> None:
        self.outbox.take_there(lambda target: self.world.worker_of(target) == worker)
        self.parcels.pop(worker, None)

    def _pack_acks(self) -> None:
        """There is no shorter way than by parcel."""
        for told in self.tracking.take_to_tell():
            self.tracking.put_in_parcel(*told)

    def _refresh_bits(self) -> None:
        peer_bits = [self.peers.bit(worker) for worker in range(self.peers.n_workers)]
        for task, worker in self.world.shape.plan.task_worker.items():
            self.bits[task] = peer_bits[worker]

    def fence_off(self, worker: int, incarnation: int) -> None:
        if not self.world.parts.fences:
            return
        if incarnation > self.fence[worker]:
            self.fence[worker] = incarnation
        receiver = self.receivers.get(worker)
        if receiver is not None and receiver.incarnation < incarnation:
            del self.receivers[worker]

    # ---- tuples ----

    def emit_to(
        self, source: int, targets: tuple[int, ...], serials: tuple[int, ...], runs: list[Run], of: Run | None = None
    ) -> None:
        """A tuple, anchored to these runs; `of`: the one that its bolt is executing."""
        world = self.world
        for target in targets:
            batch = self.opens.get(source << 8 | target)
            if batch is None:
                batch = world.parts.core.open_batch(source, "default", target, self.bits)
                self.opens[source << 8 | target] = batch
            self.outbox.start_run(batch, of, runs)
            batch.rows.append(serials)
            if batch.mask:
                for serial in serials:
                    world.truth.touched[serial] |= 1 << world.worker_of(target)

    def emit(self, offset: int) -> None:
        """The spout emits a message, for the first time or again."""
        world, shape = self.world, self.world.shape
        serial = world.truth.begin_attempt(offset, world.now_ns)
        root = next(self.roots) if world.parts.root_per_attempt else (offset + 1) << ACKER_BITS
        run = Run(root, 0, 0)
        self.emit_to(shape.spout_task, shape.first, (serial,), [run])
        self.pending.add(root, offset, (), run.children, run.mask)  # type: ignore[attr-defined]

    def step(self) -> None:
        """Execute what is here, then settle what is known of the trees: one turn of the loop."""
        if self.pending:
            self.pending.expire()
        inbox = self.inbox
        while inbox.extend(self.outbox.take_here()) or inbox:
            self.execute(inbox.pop(0))
        self.tracking.settle()
        self._pack_acks()

    def execute(self, batch: Batch) -> None:
        bolt = self.world.shape.bolts[batch.target]
        others = batch.others
        for index, serials in enumerate(batch.rows):
            root = batch.roots[index]
            run = Run(root, batch.edges[index], 1, others.get(index, ()) if others else ())
            if bolt.kind == JOIN:
                self.world.truth.executed(bolt, serials)
                self.kept.append((bolt, batch.target, run, serials))
                if len(self.kept) == 2:
                    self.flush_kept()
            elif bolt.kind == FAILS_FIRST and self.world.truth.is_first(serials):
                self.outbox.fail_run(run, _BY_BOLT)
            elif bolt.kind == FORGETS_FIRST and self.world.truth.is_first(serials):
                self.world.truth.executed(bolt, serials)
                self.world.forgot = True
            else:
                self.world.truth.executed(bolt, serials)
                self._pass_on(bolt, batch.target, run, serials)

    def _pass_on(self, bolt: BoltSpec, task: int, run: Run, serials: tuple[int, ...]) -> None:
        outbox = self.outbox
        if bolt.kind == RESETS:
            outbox.reset_roots(run.trees())
        if bolt.kind == SELF_ANCHOR:
            self.emit_to(task, bolt.targets, serials, [run, run])
        else:
            self.emit_to(task, bolt.targets, serials, [run], run)
        outbox.ack_run(run)

    def flush_kept(self) -> None:
        """Emit what a joining bolt keeps, anchored to all of it, and ack it: the last first."""
        kept = self.kept
        self.kept = []
        if not kept:
            return
        bolt, task = kept[0][:2]
        serials = tuple(serial for _, _, _, those in kept for serial in those)
        self.emit_to(task, bolt.targets, serials, [run for _, _, run, _ in kept])
        for _, _, run, _ in reversed(kept):
            self.outbox.ack_run(run)

    # ---- frames ----

    def send(self) -> bool:
        """Put parcels and credit on the links; whether there was anything."""
        for batch in self.outbox.take_there():
            self.parcel(self.world.worker_of(batch.target)).batches.append(batch)
        sent = False
        for worker in list(self.parcels):
            link = self.senders.get(worker)
            if link is not None and link[0].has_credit:
                parcel = self.parcels.pop(worker)
                if parcel:
                    sent = True
                    held = copy(parcel)
                    held.let_go()
                    self.put(worker, DATA, link[0].send(1, held=held), parcel)
        for worker, receiver in self.receivers.items():
            if receiver.owed:
                sent |= self.send_credit(worker, receiver)
        for worker, number in self.to_confirm.items():
            sent = True
            self.put(worker, KNOWN, number, None)
        self.to_confirm.clear()
        return sent

    def ask(self) -> bool:
        """The other ends of the links have been silent for long; whether there was anything to ask."""
        asked = False
        for worker, (sender, _) in self.senders.items():
            if sender.under_way_bytes and self.world.parts.probes:
                asked = True
                self.put(worker, HELLO, sender.sequence, None)
        for worker, receiver in self.receivers.items():
            asked |= self.tell_missed(worker, receiver)
        return asked

    def tell_missed(self, worker: int, receiver: LinkReceiver) -> bool:
        link = self.senders.get(worker)
        if link is None or link[1] != receiver.incarnation:
            return False
        missed = receiver.tell_missed()
        if missed:
            self.put(worker, LOST, missed[-1].last, missed)
        return bool(missed)

    def send_credit(self, worker: int, receiver: LinkReceiver) -> bool:
        link = self.senders.get(worker)
        if link is None or link[1] != receiver.incarnation:
            return False
        receiver.credited = receiver.processed
        self.put(worker, CREDIT, receiver.processed, None)
        return True

    def put(self, worker: int, kind: int, number: int, body: Parcel | list[Missed] | None) -> None:
        frame = (kind, self.incarnation, self.senders[worker][1], number, body)
        self.world.links[self.me, worker].append(frame)

    def take(self, source: int, frame: tuple[int, int, int, int, Any]) -> None:
        """A frame arrives: as `DataPlane._take`."""
        kind, sender, receiver, number, body = frame
        if receiver != self.incarnation or sender < self.fence[source]:
            return
        link = self.receivers.get(source)
        if link is None or link.incarnation != sender:
            self.fence_off(source, sender)
            link = self.receivers[source] = self.world.parts.receiver(sender, WINDOW_BYTES)
        back = self.senders.get(source)
        if kind in (DATA, SPOILT):
            if link.accept(number):
                if kind == DATA:
                    self.inbox += body.batches
                    self.tracking.receive(body)
                    # The turn that follows executes all of it.
                    link.done(number)
                else:
                    link.spoil(number)
        elif kind == HELLO:
            link.skip_to(number)
            self.send_credit(source, link)
        elif kind == KNOWN:
            link.known(number)
        elif back is not None and back[1] == sender:
            if kind == CREDIT:
                back[0].credit(number)
            else:
                for lost, damaged in back[0].lost(body):
                    self.tracking.frame_lost(source, lost, damaged)
                self.to_confirm[source] = max(number, self.to_confirm.get(source, 0))
        if link.untold:
            self.tell_missed(source, link)

    def rotate(self) -> None:
        """A message timeout has passed since the last time: as in `Turn._end`."""
        self.rotates_at_ns = self.world.now_ns + MESSAGE_TIMEOUT_NS
        self.tracking.rotate()
