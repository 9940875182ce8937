"""What the executors of one thread have emitted, acked and failed since the last flush.

Guarantees: everything said about one tree between two flushes is merged into one XOR; batches leave in the order in
which they were opened, so tuples stay in order per sending and receiving task.

One thread: the worker's loop has one outbox, an executor with a thread of its own has another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from squall.engine.api.failure import Failure
from squall.engine.api.tuple import Run
from squall.engine.flow.batch import OpenBatch
from squall.engine.flow.ids import EdgeIds


class Outbox:
    """Filled by emitters and trackers, emptied by the worker core."""

    __slots__ = ("acks", "edges", "fails", "masks", "opened_here", "opened_there", "pool", "reset", "resets")

    def __init__(self) -> None:
        self.edges = EdgeIds()
        self.pool = self.edges.pool
        self.opened_here: list[OpenBatch] = []
        """Batches for tasks of this worker."""
        self.opened_there: list[OpenBatch] = []
        """Batches for other workers; they stay open until a parcel is made, so that they fill."""
        self.acks: dict[int, int] = {}
        """root -> XOR to tell its acker."""
        self.masks: dict[int, int] = {}
        """root -> mask of the workers its new tuples were sent to."""
        self.fails: dict[int, Failure] = {}
        self.resets: set[int] = set()
        self.reset: Callable[[Iterable[int]], None] = self.resets.update
        """Takes the roots whose timeout is to start afresh. A thread that hands over only when a call of `execute` has
        come back says here how they get to the loop before that."""

    def _begin(self, batch: OpenBatch, values: tuple[Any, ...]) -> None:
        if batch.check is not None:
            batch.check.look(values)
        batch.mask = batch.bits[batch.target]
        (self.opened_there if batch.mask else self.opened_here).append(batch)

    def start_run(self, batch: OpenBatch, key: object, run: Run, values: tuple[Any, ...] = ()) -> None:
        """Open a new run in `batch`, anchored to `run`; `key` is what further tuples of it are recognised by. `values`
        are about to be appended. Raises ComponentError, and nothing is changed, if they cannot be pickled."""
        if not batch.starts:
            self._begin(batch, values)
        batch.starts.append(len(batch.rows))
        batch.last = key
        root = run.root
        batch.roots.append(root)
        if not root:
            batch.edges.append(0)
            batch.loose = True
            return
        pool = self.pool
        if not pool:
            self.edges.refill()
        edge = pool.pop()
        batch.edges.append(edge)
        run.children ^= edge
        mask = batch.mask
        if mask:
            run.mask |= mask
        if run.others:
            if batch.others is None:
                batch.others = {}
            batch.others[len(batch.roots) - 1] = tuple((other, edge) for other, _ in run.others)

    def start_joined_run(self, batch: OpenBatch, runs: list[Run], values: tuple[Any, ...] = ()) -> None:
        """Open a run anchored to several inputs at once: it belongs to all their trees."""
        if not batch.starts:
            self._begin(batch, values)
        edges: dict[int, int] = {}
        for run in runs:
            if not run.root:
                continue
            edge = self.edges.next()
            run.children ^= edge
            run.mask |= batch.mask
            for root in (run.root, *(other for other, _ in run.others)):
                edges[root] = edges.get(root, 0) ^ edge
        batch.starts.append(len(batch.rows))
        batch.last = None
        pairs = list(edges.items()) or [(0, 0)]
        batch.loose = batch.loose or not edges
        batch.roots.append(pairs[0][0])
        batch.edges.append(pairs[0][1])
        if len(pairs) > 1:
            if batch.others is None:
                batch.others = {}
            batch.others[len(batch.roots) - 1] = tuple(pairs[1:])

    def ack_run(self, run: Run) -> None:
        """The last tuple of a run is done: its edge goes to the acker together with its children's."""
        root = run.root
        if not root or run.failed:
            return
        acks = self.acks
        children = run.children
        acks[root] = acks.get(root, 0) ^ run.edge ^ children
        mask = run.mask
        if mask:
            self.masks[root] = self.masks.get(root, 0) | mask
        for other, edge in run.others:
            acks[other] = acks.get(other, 0) ^ edge ^ children
            if mask:
                self.masks[other] = self.masks.get(other, 0) | mask

    def fail_run(self, run: Run, failure: Failure) -> None:
        """Fail every tree this run belongs to."""
        if not run.root:
            return
        run.failed = True
        for root in (run.root, *(other for other, _ in run.others)):
            self.fails.setdefault(root, failure)

    def absorb(
        self, acks: Mapping[int, int], masks: Mapping[int, int], fails: Mapping[int, Failure]
    ) -> None:
        """Merge what another outbox, here or in another worker, had to tell."""
        mine = self.acks
        if not mine:
            mine.update(acks)
        else:
            for root, value in acks.items():
                mine[root] = mine.get(root, 0) ^ value
        for root, mask in masks.items():
            self.masks[root] = self.masks.get(root, 0) | mask
        for root, failure in fails.items():
            self.fails.setdefault(root, failure)

    def reset_run(self, run: Run) -> None:
        """Start the message timeout of the run's trees afresh."""
        if run.root:
            self.reset((run.root, *(other for other, _ in run.others)))
