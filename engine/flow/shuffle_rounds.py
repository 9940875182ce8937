"""The order in which a shuffle takes its targets: in rounds, in which slow targets get fewer turns.

Guarantees: while no target would keep tuples waiting longer than the others, each comes once in each round, in an order
that is shuffled at the start (as Storm does). Else each gets a share that falls with its wait, and the one with the
shortest wait the largest; one that is `HORIZON_NS` behind it gets nothing until it has caught up.

A choice costs no call of ours: it is the next item of a list of many rounds, or of a part of a long one (`next` of an
iterator over lists). A list that is cut ends at once, and the next one has the new shares. A sender that never chooses
makes neither list nor order: there may be as many senders as targets.

Decides only. Thread: the sender's; `balance` may be called by the worker's loop.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, Generic, TypeVar

T = TypeVar("T")

TOLERANCE_NS = 5_000_000
"""Difference of waits that is ignored: turns take as long, and so do news of other workers."""
HORIZON_NS = 20_000_000
_PARTS = 16
"""Shares are sixteenths of the largest."""
_FIRST_CHOICES, _LIST_CHOICES = 8, 256
"""Choices in a list, about: one call of ours for so many tuples. Of a long round, the first list is short and each is
twice as long as the one before: a sender of few tuples makes few choices in vain."""

Shares = tuple[int, ...]


def shares_of(waits_ns: Sequence[int]) -> Shares | None:
    """The shares of targets with these waits; None if they are even."""
    least_ns = min(waits_ns)
    if max(waits_ns) - least_ns <= TOLERANCE_NS:
        return None
    return tuple(max(0, _PARTS - _PARTS * (wait_ns - least_ns) // HORIZON_NS) for wait_ns in waits_ns)


class Rounds(Generic[T]):
    """One sender's choices among the targets of one subscription."""

    def __init__(
        self, targets: Sequence[int], choice_of: Callable[[int], T], new_rng: Callable[[], random.Random]
    ) -> None:
        """`targets`: the tasks, a sequence that senders share; `choice_of(number)`: what is chosen for one of them."""
        self.targets = targets
        self._choice_of = choice_of
        self._new_rng = new_rng
        self._order: Sequence[int] = ()
        """The numbers of the targets, shuffled at the first choice."""
        self._shares: Shares | None = None
        self._list: list[T] = []
        self._most = _FIRST_CHOICES
        self._rest: Iterator[int] | None = None
        """What comes of a round after the list; None if the list holds whole rounds."""
        self._made_for: Shares | None = None
        """The shares by which the list was made: its maker may be a thread that had not seen the newest ones."""

    def chooser(self) -> Callable[[Any], T]:
        """Make the function that takes the next target, whatever it is given."""
        # The values are given to `next` as its default, which it never comes to: no call of a function of ours.
        if len(self.targets) == 1:
            return partial(next, repeat(self._choice_of(0)))
        return partial(next, chain.from_iterable(iter(self._next_list, None)))

    def balance(self, shares: Shares | None) -> None:
        """Choose by these shares from now on; None: all the same."""
        if shares != self._shares or shares != self._made_for:
            self._shares = shares
            self._list.clear()

    def _next_list(self) -> list[T]:
        # Where it is not the same, it is a new object: an iterator may still stand at the end of one that was cut.
        if self._list and self._rest is not None:
            self._list = self._part(self._rest)
        if not self._list:
            shares = self._shares
            round_ = self._round(shares)
            self._made_for = shares
            if len(self.targets) > _LIST_CHOICES:
                self._rest = round_
                self._list = self._part(round_)
            else:
                chosen = [self._choice_of(number) for number in round_]
                self._list = chosen * (_LIST_CHOICES // len(chosen) or 1)
        return self._list

    def _part(self, rest: Iterator[int]) -> list[T]:
        most = self._most
        self._most = min(2 * most, _LIST_CHOICES)
        return [self._choice_of(number) for number in islice(rest, most)]

    def _round(self, shares: Shares | None) -> Iterator[int]:
        """The numbers of the targets, each as often as it comes in a round."""
        if shares is None:
            return self._in_order()
        # Evenly spread: a target with half the share of another comes after every second one of its turns.
        return (
            number for turn in range(_PARTS) for number in self._in_order()
            if (turn + 1) * shares[number] // _PARTS > turn * shares[number] // _PARTS
        )

    def _in_order(self) -> Iterator[int]:
        """All targets, once."""
        if not self._order:
            # Two bytes for each: of thousands of tasks, all may shuffle their tuples among thousands.
            order = array("H", range(len(self.targets)))
            self._new_rng().shuffle(order)
            self._order = order
        return iter(self._order)
