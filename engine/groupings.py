"""Groupings at run time: which of a bolt's tasks receive a tuple.

A chooser is made per sending task and subscription. It picks *indexes* into the list of target tasks (sorted by id).
`one` choosers return one index and are what the tuple path is fast for; `many` choosers return any number.

Relies on: being called by the sending task's thread only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import cycle
from operator import itemgetter
from typing import Any, TypeVar

from engine.component import CustomGrouping
from engine.errors import ComponentError
from engine.stable_hash import stable_hash
from engine.stream import Stream
from engine.topology import ALL, CUSTOM, FIELDS, GLOBAL, LOCAL_OR_SHUFFLE, NONE, PARTIAL_KEY, SHUFFLE, Subscription

Values = tuple[Any, ...]
ChooseOne = Callable[[Values], int]
ChooseMany = Callable[[Values], Sequence[int]]

# Remembered keys per sending task: hashing text costs ten times a dictionary look-up. When full the memory starts
# afresh, which costs the same keys one hash each; 131,072 keys are about 16 MiB.
_MEMO_KEYS = 131_072


T = TypeVar("T")


class KeyMemo(dict[Any, T]):
    """key -> the one of `targets` that it belongs to, computed once per key; bounded."""

    def __init__(self, targets: Sequence[T]) -> None:
        super().__init__()
        self._targets = targets

    def of(self, key: Any) -> T:
        """As `memo[key]`, for keys that cannot be remembered (list, dict, set) but have a stable hash all the same."""
        return self._targets[stable_hash(key) % len(self._targets)]

    def __missing__(self, key: Any) -> T:
        target = self.of(key)
        if len(self) >= _MEMO_KEYS:
            self.clear()
        self[key] = target
        return target


def key_of(shape: Stream, fields: tuple[str, ...]) -> Callable[[Values], Any]:
    """Extracts the grouping key: the value of one field, or a tuple of several."""
    return itemgetter(*(shape.index[name] for name in fields))


def fields_chooser(shape: Stream, fields: tuple[str, ...], n_targets: int) -> ChooseOne:
    """Equal keys to the same task."""
    memo = KeyMemo(range(n_targets))
    key = key_of(shape, fields)

    def choose(values: Values) -> int:
        wanted = key(values)
        try:
            return memo[wanted]
        except TypeError:
            return memo.of(wanted)

    return choose


def shuffle_chooser(indexes: Sequence[int], rng: random.Random) -> ChooseOne:
    """Every target once in each round, in an order shuffled at the start (as Storm's)."""
    order = list(indexes)
    rng.shuffle(order)
    turns = cycle(order)

    def choose(values: Values) -> int:
        return next(turns)

    return choose


def partial_key_chooser(shape: Stream, fields: tuple[str, ...], n_targets: int) -> ChooseOne:
    """Two candidates per key, the one sent fewer tuples so far (Nasir et al., "The Power of Both Choices", 2015)."""
    sent = [0] * n_targets
    key = key_of(shape, fields)

    def choose(values: Values) -> int:
        hashed = stable_hash(key(values))
        first = hashed % n_targets
        second = (hashed >> 32) % n_targets
        if second == first and n_targets > 1:
            second = (first + 1) % n_targets
        index = first if sent[first] <= sent[second] else second
        sent[index] += 1
        return index

    return choose


def make_chooser(
    subscription: Subscription,
    shape: Stream,
    source_task: int,
    targets: Sequence[int],
    local_targets: Sequence[int],
    rng: random.Random,
) -> tuple[ChooseOne | None, ChooseMany | None]:
    """The chooser of one subscription: (one, None) or (None, many). Direct grouping has neither."""
    indexes = range(len(targets))
    grouping = subscription.grouping
    if grouping == FIELDS:
        return fields_chooser(shape, subscription.fields, len(targets)), None
    if grouping == SHUFFLE:
        return shuffle_chooser(indexes, rng), None
    if grouping == LOCAL_OR_SHUFFLE:
        local = [index for index in indexes if targets[index] in set(local_targets)]
        return shuffle_chooser(local or indexes, rng), None
    if grouping == PARTIAL_KEY:
        return partial_key_chooser(shape, subscription.fields, len(targets)), None
    if grouping == GLOBAL:
        return (lambda values: 0), None
    if grouping == NONE:
        return (lambda values: rng.randrange(len(targets))), None
    if grouping == ALL:
        return None, (lambda values: indexes)
    if grouping == CUSTOM and subscription.custom is not None:
        return None, _custom_chooser(subscription.custom, source_task, targets)
    return None, None


def _custom_chooser(grouping: CustomGrouping, source_task: int, targets: Sequence[int]) -> ChooseMany:
    position = {task: index for index, task in enumerate(targets)}

    def choose(values: Values) -> list[int]:
        chosen = grouping.choose_tasks(source_task, values)
        try:
            return [position[task] for task in chosen]
        except (KeyError, TypeError):
            raise ComponentError(
                f"{type(grouping).__name__}.choose_tasks returned {chosen!r:.80}; allowed: a list of {list(targets)}"
            ) from None

    return choose
