"""Which incarnation of each worker is alive, as bits that tuple trees carry.

A tree's mask has the bit of every worker incarnation that tuples of it were sent to. When one dies, the trees with its
bit are exactly those that may have lost something.

A bit stands for (slot, incarnation modulo 16). Old incarnations lend their bit to new ones: at any time the eight
before the present count as dead and the eight from the present on as not dead, so a bit is taken up again only after
eight more deaths of that slot. A message that late is left to the message timeout.
"""

from __future__ import annotations

_CYCLE = 16
_DEAD_SPAN = 8


class Peers:
    """The workers of one topology, by slot index, as one of them (`me`) sees them."""

    def __init__(self, n_slots: int, me: int) -> None:
        self.n_slots = n_slots
        self.me = me
        self._incarnation = [0] * n_slots
        self._alive = [False] * n_slots

    def incarnation(self, slot: int) -> int:
        """The newest incarnation known."""
        return self._incarnation[slot]

    def is_alive(self, slot: int) -> bool:
        return self._alive[slot]

    def update(self, slot: int, incarnation: int, alive: bool) -> bool:
        """Learn about a slot; whether an incarnation is dead now that something may have been sent to.

        The replacement of one whose death was known before is no such news: what waits for it is not lost.
        """
        before = self._newest_dead(slot)
        self._incarnation[slot], self._alive[slot] = incarnation, alive
        return self._newest_dead(slot) > before

    def _newest_dead(self, slot: int) -> int:
        return self._incarnation[slot] - (1 if self._alive[slot] else 0)

    def _bit(self, slot: int, incarnation: int) -> int:
        return 1 << slot + self.n_slots * (incarnation % _CYCLE)

    def bit(self, slot: int) -> int:
        """The bit for what is sent to a slot now: of the living incarnation, or of the one that will replace it.

        0 for this worker itself: what stays here dies with the acker's own worker or not at all.
        """
        if slot == self.me:
            return 0
        return self._bit(slot, self._incarnation[slot] + (0 if self._alive[slot] else 1))

    @property
    def own_bit(self) -> int:
        """The bit of this worker's own incarnation, for trees whose spout is here and whose acker is not."""
        return self._bit(self.me, self._incarnation[self.me])

    def dead_bit(self, slot: int) -> int:
        """The bit of a slot's newest dead incarnation."""
        return self._bit(slot, self._newest_dead(slot))

    @property
    def dead_mask(self) -> int:
        """Bits of all incarnations that are dead."""
        mask = 0
        for slot in range(self.n_slots):
            mask |= self.dead_mask_of(slot)
        return mask

    def dead_mask_of(self, slot: int) -> int:
        """Bits of a slot's dead incarnations."""
        mask = 0
        newest_dead = self._newest_dead(slot)
        for incarnation in range(max(1, newest_dead - _DEAD_SPAN + 1), newest_dead + 1):
            mask |= self._bit(slot, incarnation)
        return mask
