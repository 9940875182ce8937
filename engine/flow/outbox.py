"""The outbox: emits, acks and failures of one thread's executors since the last flush.

Guarantees: all acks and emits of one tree between two flushes are merged into one XOR; batches leave in the order in
which they were opened, so tuples stay in order per sending and receiving task.

Thread: its owner's. The worker's loop has one outbox, each executor with a thread of its own has another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

from squall.engine.api.failure import Failure
from squall.engine.api.tuple import Run
from squall.engine.flow.anchoring import Acks, Anchoring, BlockAcks, BlockAnchoring
from squall.engine.flow.batch import Batch, BlockBatch, OpenBatch
from squall.engine.flow.ids import EdgeIds


class Outbox:
    """Filled by emitters and executors, emptied by the worker core. No other code touches its content."""

    __slots__ = ("_acks", "_fails", "_here", "_reset", "_resets", "_there", "edges")

    def __init__(self, edges: EdgeIds | None = None) -> None:
        self.edges = EdgeIds() if edges is None else edges
        self._here: list[Batch] = []
        """Batches for tasks of this worker."""
        self._there: list[Batch] = []
        """Batches for other workers; they stay open until a parcel is made, so that they fill."""
        self._acks = Acks()
        self._fails: dict[int, Failure] = {}
        self._resets: set[int] = set()
        self._reset: Callable[[Iterable[int]], None] = self._resets.update

    # ---- filled by emitters and executors ----

    @staticmethod
    def _empty(batch: OpenBatch, values: tuple[Any, ...]) -> None:
        if batch.check is not None:
            batch.check.look(values)
        batch.rows, batch.starts, batch.roots, batch.edges = [], [], [], []
        batch.mask = batch.bits[batch.target]

    def note(self, batch: OpenBatch, key: int, values: tuple[Any, ...], noted: list[OpenBatch]) -> None:
        """Begin a run in `batch` for emits made from run `key` of what is at hand; `anchor` draws its edge later, with
        those of all batches in `noted`. `values` are about to be appended. Raises ComponentError, and changes nothing,
        if they cannot be pickled."""
        if not batch.owners:
            if not batch.starts:
                self._empty(batch, values)
            batch.owners = []
            noted.append(batch)
        batch.last = key
        batch.starts.append(len(batch.rows))
        batch.owners.append(key)

    def anchor(self, noted: list[OpenBatch], anchoring: Anchoring) -> None:
        """Give the runs that were noted their edges."""
        for batch in noted:
            begun = len(batch.starts) > len(batch.owners)
            made = anchoring.settle(batch, self.edges)
            batch.owners, batch.last = (), None
            if made is not None:
                self.put(batch, made)
            elif not begun:
                (self._there if batch.mask else self._here).append(batch)
        noted.clear()

    def start_run(self, batch: OpenBatch, key: object, runs: list[Run], values: tuple[Any, ...] = ()) -> None:
        """Open a new run in `batch` at once, anchored to a run that is not at hand, or to several: it belongs to all
        their trees. `key` identifies further tuples of it. `values`, and what is raised: as of `note`."""
        if not batch.starts:
            self._empty(batch, values)
            (self._there if batch.mask else self._here).append(batch)
        edges: dict[int, int] = {}
        for run in runs:
            if not run.root:
                continue
            edge = self.edges.next()
            run.children ^= edge
            run.mask |= batch.mask
            for root in run.trees():
                edges[root] = edges.get(root, 0) ^ edge
        batch.starts.append(len(batch.rows))
        batch.last = key
        (first, edge), *others = edges.items() or [(0, 0)]
        batch.roots.append(first)
        batch.edges.append(edge)
        if others:
            batch.others = batch.others or {}
            batch.others[len(batch.roots) - 1] = tuple(others)

    def put(self, instead_of: OpenBatch, batch: Batch) -> None:
        """Put a batch that was made as a whole, for the task of an open batch, after what that one holds."""
        batches = self._there if instead_of.bits[instead_of.target] else self._here
        if instead_of.starts:
            batches[:] = [each.take() if each is instead_of else each for each in batches]
        batches.append(batch)

    def ack_run(self, run: Run) -> None:
        """Ack a run whose last tuple is done: its edge goes to the acker together with its children's."""
        if run.root and not run.failed:
            self._acks.add(run.root, run.edge ^ run.children, run.mask)
            for other, edge in run.others:
                self._acks.add(other, edge ^ run.children, run.mask)

    def ack_batch(self, batch: Batch, anchoring: Anchoring, but: Collection[int] = ()) -> None:
        """Ack the tracked runs of a batch, those in `but` excepted."""
        if isinstance(anchoring, BlockAnchoring) and isinstance(batch, BlockBatch):
            block = anchoring.block
            acked = self._acks.blocks.setdefault(block.base, BlockAcks(block.members))
            acked.merge(anchoring.acks_of(batch, but), anchoring.flags())
            return
        others, add = batch.others or {}, self._acks.add
        runs = zip(batch.roots, batch.edges, *anchoring.of_runs(), strict=True)
        for run, (root, edge, xor, mask) in enumerate(runs):
            if root and run not in but:
                add(root, edge ^ xor, mask)
                for other, shared_edge in others.get(run, ()):
                    add(other, shared_edge ^ xor, mask)

    def fail_run(self, run: Run, failure: Failure) -> None:
        """Fail every tree this run belongs to."""
        if not run.root:
            return
        run.failed = True
        for root in run.trees():
            self._fails.setdefault(root, failure)

    def fail_roots(self, roots: Iterable[int], failure: Failure) -> None:
        """Fail the trees of tuples; 0 stands for none. The first failure of a tree counts."""
        for root in roots:
            if root:
                self._fails.setdefault(root, failure)

    def reset_roots(self, roots: Iterable[int]) -> None:
        """Start the message timeout of these trees afresh; 0 stands for none."""
        self._reset(filter(None, roots))

    def pass_resets_to(self, reset: Callable[[Iterable[int]], None]) -> None:
        """Pass resets to `reset` at once: a thread hands over only when a call of `execute` has returned, which may be
        too late for them."""
        self._reset = reset

    # ---- emptied by the worker core ----

    def merge(self, acks: Acks, fails: Mapping[int, Failure]) -> None:
        """Add the acks and failures of another outbox."""
        self._acks.merge(acks)
        for root, failure in fails.items():
            self._fails.setdefault(root, failure)

    @property
    def is_silent(self) -> bool:
        """True if nothing was acked, failed or reset since it was taken."""
        return not (self._acks or self._fails or self._resets)

    def take_acks(self) -> Acks:
        """Take the acks."""
        acks, self._acks = self._acks, Acks()
        return acks

    def take_fails(self) -> dict[int, Failure]:
        """Take the failures: root -> failure."""
        fails, self._fails = self._fails, {}
        return fails

    def take_resets(self) -> list[int]:
        """Take the roots of the trees whose timeout is to start afresh."""
        if not self._resets:
            return []
        resets = list(self._resets)
        self._resets.clear()
        return resets

    def take_here(self) -> list[Batch]:
        """Take the batches for tasks of this worker, in the order in which they were opened."""
        here = self._here
        if not here:
            return []
        taken = [batch.take() for batch in here]
        here.clear()
        return taken

    def take_there(self, wanted: Callable[[int], bool] | None = None) -> list[Batch]:
        """Take the batches for tasks of other workers: all, or those for wanted tasks."""
        there, taken = self._there, []
        if wanted is None:
            taken = [batch.take() for batch in there]
            there.clear()
        elif there:
            left = [batch for batch in there if not wanted(batch.target)]
            taken = [batch.take() for batch in there if wanted(batch.target)]
            there[:] = left
        return taken

    # ---- looked at ----

    @property
    def fails(self) -> Mapping[int, Failure]:
        """The failures that no acker has been told yet."""
        return MappingProxyType(self._fails)

    @property
    def bytes(self) -> int:
        """Estimated memory of the batches in it."""
        return sum(batch.weigh() for batch in chain(self._here, self._there))

    @property
    def rows_there(self) -> int:
        """Tuples that wait to be sent to other workers."""
        return sum(len(batch.rows) for batch in self._there)

    def __bool__(self) -> bool:
        """Return True if anything is in it."""
        return bool(self._acks or self._fails or self._resets or self._here or self._there)
