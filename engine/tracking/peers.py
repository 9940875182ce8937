"""Knows which incarnation of each worker is alive, as bits that tuple trees carry.

A tree's mask has the bit of every worker incarnation that its tuples were sent to. When one dies, exactly the trees
with its bit may have lost tuples.

Guarantees: a bit stands for one incarnation among those that tuples may still be on their way to. An incarnation that
was told dead stays dead.

A bit stands for (worker, incarnation modulo 16), so incarnations share bits: at any time the eight before the present
count as dead and the eight from the present on as not dead. A bit is reused only after eight more deaths of that
worker; a message that late is left to the message timeout.

Relies on: incarnations of a worker rising by one. Thread: the worker's loop.
"""

from __future__ import annotations

_CYCLE = 16
_DEAD_SPAN = 8


class Peers:
    """The workers of one topology, by index, as one of them (`me`) sees them."""

    def __init__(self, n_workers: int, me: int) -> None:
        self.n_workers = n_workers
        self.me = me
        self._incarnation = [0] * n_workers
        self._alive = [False] * n_workers

    def incarnation(self, worker: int) -> int:
        """The newest incarnation known."""
        return self._incarnation[worker]

    def is_alive(self, worker: int) -> bool:
        return self._alive[worker]

    def update(self, worker: int, incarnation: int, alive: bool) -> bool:
        """Learn about a worker; return True if an incarnation is newly dead to which tuples may have been sent.

        The replacement of one whose death was known before is no such news: tuples that wait for it are not lost.
        """
        before = self._newest_dead(worker)
        self._incarnation[worker], self._alive[worker] = incarnation, alive
        return self._newest_dead(worker) > before

    def _newest_dead(self, worker: int) -> int:
        return self._incarnation[worker] - (1 if self._alive[worker] else 0)

    def _bit(self, worker: int, incarnation: int) -> int:
        return 1 << worker + self.n_workers * (incarnation % _CYCLE)

    def bit(self, worker: int) -> int:
        """The bit for tuples sent to a worker now: of the living incarnation, or of the one that will replace it.

        0 for this worker itself: tuples that stay here need no bit, because they die only with this worker.
        """
        if worker == self.me:
            return 0
        return self._bit(worker, self._incarnation[worker] + (0 if self._alive[worker] else 1))

    @property
    def own_bit(self) -> int:
        """The bit of this worker's own incarnation, for trees whose spout is here and whose acker is not."""
        return self._bit(self.me, self._incarnation[self.me])

    def dead_bit(self, worker: int) -> int:
        """The bit of a worker's newest dead incarnation."""
        return self._bit(worker, self._newest_dead(worker))

    @property
    def dead_mask(self) -> int:
        """Bits of all incarnations that are dead."""
        mask = 0
        for worker in range(self.n_workers):
            mask |= self.dead_mask_of(worker)
        return mask

    def dead_mask_of(self, worker: int) -> int:
        """Bits of a worker's dead incarnations."""
        mask = 0
        newest_dead = self._newest_dead(worker)
        for incarnation in range(max(1, newest_dead - _DEAD_SPAN + 1), newest_dead + 1):
            mask |= self._bit(worker, incarnation)
        return mask
