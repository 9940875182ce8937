"""`python -m benchmarks.acker_memory`: bytes that a pending tree costs its acker, and its spout's pending table.

The memory that Python allocates for many trees, by tracemalloc, divided by their number. Root ids count for the acker,
as if it were in another worker than the spout. The user's message ids and values do not count. A dict grows in steps,
so each figure is taken just before an enlargement and just after.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import islice

from squall.engine.flow.anchoring import Acks
from squall.engine.flow.ids import EdgeIds, root_ids
from squall.engine.report.metrics import SpoutStats
from squall.engine.tracking.acker import Acker
from squall.engine.tracking.fate import Fate
from squall.engine.tracking.open_messages import OpenMessages, Ports

# Trees: a dict of 2**16 slots is enlarged at two thirds, so it is at its best just before and at its worst just after.
_BEST, _WORST = 43_680, 43_700
GOAL_BYTES = 150
_TASK = 7


def allocated(fill: Callable[[], object]) -> int:
    """Bytes that are still allocated after `fill`, while its result is alive."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = fill()
        after = tracemalloc.get_traced_memory()[0]
        del kept
        return after - before
    finally:
        tracemalloc.stop()


def acker_bytes(trees: int, mask: int, tuples: int = 1) -> float:
    """Bytes per tree of `tuples` tuples sent to the workers of `mask`."""
    source = EdgeIds()
    edges = [source.next() for _ in range(trees * tuples)]
    following = iter(edges).__next__

    def fill() -> Acker:
        acker = Acker()
        for root in islice(root_ids(0), trees):
            edge = following()
            acker.init(root, edge, _TASK, mask)
            for _ in range(tuples - 1):
                child = following()
                acker.ack(Acks({root: edge ^ child}, {root: mask}))
                edge = child
        return acker

    return allocated(fill) / trees


def pending_bytes(trees: int) -> float:
    """Bytes per tree in the spout's table, without the root id, which counts for the acker."""
    roots = list(islice(root_ids(0), trees))

    def fill() -> OpenMessages:
        clock = iter(range(10**15, 10**15 + trees)).__next__
        table = OpenMessages(
            _TASK, SpoutStats(), 10**9, Fate(),
            Ports(clock, lambda *init: None, lambda root: 0, lambda *letter: None),
        )
        for root in roots:
            table.add(root, None, None, 1, 0)
        return table

    return allocated(fill) / trees


def rows() -> list[str]:
    """The table's rows, in the form of the other benchmarks."""
    masks = {"in its spout's worker": 0, "sent to one other worker": 1 << 3, "sent to three other workers": 0b111 << 24}
    found = []
    for label, mask in masks.items():
        best, worst = (acker_bytes(trees, mask) for trees in (_BEST, _WORST))
        verdict = "within" if worst <= GOAL_BYTES else "over"
        found.append(f"| acker, per tree {label} | {best:.0f} to {worst:.0f} bytes | {verdict} {GOAL_BYTES} |")
    one, many = (acker_bytes(100, 1 << 3, tuples) for tuples in (1, 1000))
    found.append(f"| acker, per tree of 1 tuple and of 1,000 | {one:.0f} and {many:.0f} bytes | |")
    best, worst = (pending_bytes(trees) for trees in (_BEST, _WORST))
    found.append(f"| spout's pending table, per tree | {best:.0f} to {worst:.0f} bytes | |")
    return found


if __name__ == "__main__":
    print("\n".join(("| what | figure | goal |", "| --- | --- | --- |", *rows())))
