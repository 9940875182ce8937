"""Tracking in one worker: brings acks, failures and resets to their ackers, and the ackers' answers to their spouts.

Guarantees: every message reaches the acker that its root names, here or, in a parcel, in another worker; every answer
reaches its spout's open messages likewise, once. Acks of one tree since the last time travel merged.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Protocol

from squall.engine.api.failure import FRAME_DAMAGED, FRAME_LOST, TIMEOUT, Failure
from squall.engine.api.plan import Plan
from squall.engine.flow.anchoring import Acks
from squall.engine.flow.ids import ACKER_BITS, ACKER_MASK, ALONE
from squall.engine.flow.outbox import Outbox
from squall.engine.flow.parcel import Parcel
from squall.engine.tracking.acker import Acker, Answer
from squall.engine.tracking.open_messages import OpenMessages
from squall.engine.tracking.peers import Peers


class Answered(Protocol):
    """A spout task, as the receiver of answers to its trees."""

    @property
    def task(self) -> int: ...

    @property
    def pending(self) -> OpenMessages: ...

    def tell(self) -> None: ...


class SeesAcks(Protocol):
    """What watches a worker, as the receiver of acks."""

    def acked(self, task: int, roots: Container[int]) -> None: ...


class Tracking:
    """The ackers of one worker and the ways to all others."""

    def __init__(
        self, plan: Plan, peers: Peers, outbox: Outbox, spout_tasks: Mapping[int, Answered],
        parcel_for: Callable[[int], Parcel], acker: Callable[[], Acker] = Acker,
    ) -> None:
        """`acker` makes the ackers of this worker."""
        self.plan = plan
        self.peers = peers
        self.outbox = outbox
        self.spout_tasks = spout_tasks
        self._parcel_for = parcel_for
        self._acker_worker = [plan.task_worker[task] for task in plan.ackers]
        self.ackers = {index: acker() for index, worker in enumerate(self._acker_worker) if worker == peers.me}
        self._to_tell: list[tuple[int, Acks]] = []
        self.watches: Sequence[SeesAcks] = ()
        """See which messages are processed (`engine.core.watch`)."""
        self._all_ackers_here = len(self.ackers) == len(self._acker_worker)

    def settle(self) -> bool:
        """Bring acks, fails and resets to their ackers, and answers to their spouts; return True if there were any.
        Raises TaskCrashed."""
        said = self.say()
        return self.answer() or said

    def say(self) -> bool:
        """Bring acks, fails and resets to their ackers here; return True if there were any. Those for other workers
        wait in parcels, or for `take_to_tell`."""
        outbox = self.outbox
        if outbox.is_silent:
            return False
        acks = outbox.take_acks()
        if self._all_ackers_here:
            self.take_acks(acks)
        else:
            self._share_out(acks)
        for root, failure in outbox.take_fails().items():
            self._fail(root, failure)
        for root in outbox.take_resets():
            self._reset(root)
        return True

    def answer(self) -> bool:
        """Bring answers to their spouts; return True if there were any. Raises TaskCrashed."""
        some = False
        for acker in self.ackers.values():
            if acker.answers:
                some = True
                answers, acker.answers = acker.answers, []
                self._deliver(answers)
        self._tell_spouts()
        return some

    def _tell_spouts(self) -> None:
        for task in self.spout_tasks.values():
            task.tell()

    def init_tree(self, root: int, xor: int, spout_task: int, mask: int) -> None:
        """Tell a tree's acker that a spout of this worker has emitted it."""
        acker = self.ackers.get(root & ACKER_MASK)
        if acker is not None:
            acker.init(root, xor, spout_task, mask)
        else:
            self._parcel_of(root).inits.append((root, xor, spout_task, mask | self.peers.own_bit))

    def _parcel_of(self, root: int) -> Parcel:
        """The parcel for a tree's acker in another worker."""
        return self._parcel_for(self._acker_worker[root & ACKER_MASK])

    def forget_tree(self, root: int) -> int:
        """Tell a tree's acker that its spout gave it up; returns the mask of workers that hold a part of it, -1 if the
        acker is elsewhere."""
        acker = self.ackers.get(root & ACKER_MASK)
        if acker is not None:
            return acker.forget(root)
        # The answer will find nothing; but the acker must not keep the tree for ever.
        self._fail(root, Failure(TIMEOUT))
        return -1

    def take_acks(self, acks: Acks) -> None:
        """Take in acks for ackers here; the next `settle` brings the answers."""
        if len(self.ackers) == 1:
            (acker,) = self.ackers.values()
            acker.ack(acks)
        else:
            self._share_out(acks)

    def _share_out(self, acks: Acks) -> None:
        """Bring acks to their ackers, or keep them for `take_to_tell`."""
        shares: dict[int, Acks] = defaultdict(Acks)
        for root, value in acks.xors.items():
            shares[root & ACKER_MASK].xors[root] = value
        for root, mask in acks.masks.items():
            shares[root & ACKER_MASK].masks[root] = mask
        for base, its in acks.blocks.items():
            shares[base & ACKER_MASK].blocks[base] = its
        for index, share in shares.items():
            acker = self.ackers.get(index)
            if acker is not None:
                acker.ack(share)
            else:
                self._to_tell.append((self._acker_worker[index], share))

    def take_to_tell(self) -> list[tuple[int, Acks]]:
        """Take the acks for ackers of other workers, to tell these: they may have a shorter way than by parcel."""
        to_tell, self._to_tell = self._to_tell, []
        return to_tell

    @property
    def has_to_tell(self) -> bool:
        """Return True if there are acks for other workers that were not taken yet."""
        return bool(self._to_tell)

    def put_in_parcel(self, worker: int, acks: Acks) -> None:
        """Put acks in a parcel, because they have no shorter way."""
        self._parcel_for(worker).acks.merge(acks)

    def _fail(self, root: int, failure: Failure) -> None:
        acker = self.ackers.get(root & ACKER_MASK)
        if acker is not None:
            acker.fail(root, failure)
        else:
            self._parcel_of(root).fails.append((root, failure))

    def _reset(self, root: int) -> None:
        acker = self.ackers.get(root & ACKER_MASK)
        if acker is None:
            self._parcel_of(root).resets.append((root, 0))
            return
        spout_task = acker.reset(root)
        if spout_task is not None:
            self._reset_spout(spout_task, root)

    def _reset_spout(self, spout_task: int, root: int) -> None:
        here = self.spout_tasks.get(spout_task)
        if here is not None:
            here.pending.reset(root)
        else:
            self._parcel_for(self.plan.task_worker[spout_task]).resets.append((root, spout_task))

    def _deliver(self, answers: Iterable[Answer]) -> None:
        """Answer messages. Those of other workers' spouts come alone: a block begins where its acker is."""
        spouts = self.spout_tasks
        for spout_task, base, members, failure in answers:
            here = spouts.get(spout_task)
            if here is None:
                self._parcel_for(self.plan.task_worker[spout_task]).answers.append((spout_task, base, failure))
            elif failure is None:
                for watch in self.watches:
                    watch.acked(spout_task, [base + (member << ACKER_BITS) for member in members])
                here.pending.acked(base, members)
            else:
                here.pending.failed(base, failure, members)

    def rotate(self) -> None:
        """Rotate the ackers here. Called once per message timeout."""
        for acker in self.ackers.values():
            acker.rotate()

    def receive(self, parcel: Parcel) -> None:
        """Take in the tracking messages that another worker sent. Raises TaskCrashed."""
        for root, xor, spout_task, mask in parcel.inits:
            self.ackers[root & ACKER_MASK].init(root, xor, spout_task, mask)
        for root, spout_task in parcel.resets:
            if spout_task:
                self._reset_spout(spout_task, root)
            else:
                # With the next `say`: its sender may know of a worker that is still unknown here.
                self.outbox.reset_roots((root,))
        self.take_acks(parcel.acks)
        for root, failure in parcel.fails:
            self.ackers[root & ACKER_MASK].fail(root, failure)
        self._deliver((task, root, ALONE, failure) for task, root, failure in parcel.answers)
        self._tell_spouts()

    def frame_lost(self, worker: int, parcel: Parcel, damaged: bool) -> None:
        """Handle a parcel that was lost for good, after its tuples were let go: fail exactly the trees that lack tuples
        by it, and send its tracking messages again. The next `settle` carries that out. `damaged`: it came, and could
        not be read."""
        names, reason = self.plan.worker_names, FRAME_DAMAGED if damaged else FRAME_LOST
        failure = Failure(reason, worker=names[worker], error=f"on its way from {names[self.peers.me]}")
        for root in parcel.lost_trees():
            self.outbox.fail_roots((root,), failure)
        self._parcel_for(worker).add_tracking(parcel)

    def charge(self) -> None:
        """Charge failures to the messages of this worker's own spouts, before it ends by an error: no one else may hear
        of them any more."""
        for root, failure in self.outbox.fails.items():
            for task in self.spout_tasks.values():
                task.pending.charge(root, failure)

    def last_words(self, failures: Mapping[int, Failure]) -> None:
        """Count the failures that a worker named as its end, which is dead by now."""
        for root, failure in failures.items():
            acker = self.ackers.get(root & ACKER_MASK)
            if acker is not None:
                acker.fail(root, failure)
            for task in self.spout_tasks.values():
                if task.pending.has(root):
                    self._deliver([(task.task, root, ALONE, failure)])
                else:
                    task.pending.charge_late(root, failure)

    def worker_died(self, worker: int, failure: Failure) -> None:
        """Fail exactly the trees that the dead worker held a part of, and those whose acker died with it."""
        lost = self.peers.dead_mask_of(worker)
        if failure.accuses:
            for task in self.spout_tasks.values():
                task.pending.fate.worker_died(self.peers.dead_bit(worker), failure)
        dead = self.peers.dead_mask
        for acker in self.ackers.values():
            acker.workers_died(dead, lost, failure)
        its = {index for index, home in enumerate(self._acker_worker) if home == worker}
        if its:
            for task in self.spout_tasks.values():
                task.pending.acker_died(lambda root: root & ACKER_MASK in its, failure)
        self.settle()
