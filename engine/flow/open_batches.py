"""The batches that one task has open to the tasks of one subscription, by the number of the target.

Of few targets, all have theirs from the start, in a list, because that is the fastest to index. Of many, each gets its
batch when it is chosen for the first time: else batches would grow with the square of the tasks, and memory and the
start of workers with them.

Thread: the sending task's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from squall.engine.flow.batch import OpenBatch

AT_ONCE = 32
"""Targets that get their batches from the start: so many take some 5 KiB for each sender."""


class MadeWhenChosen(dict[int, OpenBatch]):
    """number -> batch, of the targets that were chosen so far; a number that is not in it gets its batch."""

    def __init__(self, make: Callable[[int], OpenBatch]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, number: int) -> OpenBatch:
        batch = self[number] = self._make(number)
        return batch


OpenBatches = list[OpenBatch] | MadeWhenChosen


def open_batches(n_targets: int, make: Callable[[int], OpenBatch]) -> OpenBatches:
    """Make the batches, or what makes them; `make(number)` makes that of one target."""
    return [make(number) for number in range(n_targets)] if n_targets <= AT_ONCE else MadeWhenChosen(make)


def made(batches: OpenBatches) -> Iterable[OpenBatch]:
    """The batches that there are."""
    return batches.values() if isinstance(batches, MadeWhenChosen) else batches
