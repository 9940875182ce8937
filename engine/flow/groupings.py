"""Groupings at run time: which of a bolt's tasks receive a tuple.

A chooser is made per sending task and subscription. It picks among *choices*, one for each target task (sorted by id);
on the tuple path a choice is the batch open to the task. `one` choosers return one of them, the case that the tuple
path is optimised for; `many` choosers any number.

Thread: the sending task's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from operator import itemgetter
from typing import Any, Generic, TypeVar

from squall.engine.api.component import CustomGrouping
from squall.engine.api.stream import Stream
from squall.engine.api.topology import (
    ALL,
    CUSTOM,
    FIELDS,
    GLOBAL,
    LOCAL_OR_SHUFFLE,
    NONE,
    PARTIAL_KEY,
    SHUFFLE,
    Subscription,
)
from squall.engine.errors import ComponentError
from squall.engine.foreign.stable_hash import stable_hash
from squall.engine.foreign.text import repr_of

Values = tuple[Any, ...]

# Keys remembered per sending task, because a stable hash costs ten times a dictionary look-up. About 16 MiB; when full,
# the memo is cleared, at the price of one more hash for each key.
_MEMO_KEYS = 131_072


T = TypeVar("T")
ChooseOne = Callable[[Values], T]
ChooseMany = Callable[[Values], Sequence[T]]
TextHash = Callable[[str], int]
"""`stable_hash`; or `hash`, at a tenth of its cost, if all processes that route the stream were started with one
PYTHONHASHSEED."""


class Keys(Generic[T]):
    """The one of `targets` for each key. The same for equal keys, whichever method is asked."""

    def __init__(
        self, targets: Sequence[T], hash_of: Callable[[Any], int] = stable_hash, text_hash: TextHash = stable_hash
    ) -> None:
        """`hash_of`: `stable_hash`, or a `KeyHash`, whose errors say more of a key without a hash. `text_hash`: for
        keys that are text."""
        self.targets = targets
        self.text_hash = text_hash
        """Text -> a number; its remainder by the number of targets is the target's index."""
        self.only = targets[0] if len(targets) == 1 else None
        """The target, if there is one only."""
        self.memo: KeyMemo[T] = KeyMemo(self._compute)
        """key -> its target, for keys that are not text."""
        self._hash_of = hash_of

    def of(self, key: Any) -> T:
        """The target of any key that has a stable hash. Raises ComponentError."""
        if key.__class__ is str:
            return self.only or self.targets[self.text_hash(key) % len(self.targets)]
        try:
            return self.memo[key]
        except TypeError:
            # Not to be remembered: a list, a dict, a set.
            return self._compute(key)

    def hash_of(self, key: Any) -> int:
        """The number whose remainder decides. Raises ComponentError."""
        if key.__class__ is str:
            return self.text_hash(key)
        try:
            hashed = stable_hash(key)
        except ComponentError:
            hashed = self._hash_of(key)
        # Text of a class of its own equals plain text.
        return self.text_hash(str.__str__(key)) if isinstance(key, str) else hashed

    def _compute(self, key: Any) -> T:
        return self.targets[self.hash_of(key) % len(self.targets)]


class KeyMemo(dict[Any, T]):
    """key -> its target, computed once per key; bounded."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, key: Any) -> T:
        target = self._compute(key)
        if len(self) >= _MEMO_KEYS:
            self.clear()
        self[key] = target
        return target


class KeyHash:
    """`stable_hash` of the keys of one subscription; its errors name the key's origin."""

    def __init__(self, who: str, fields: Sequence[str]) -> None:
        """`who`: the sending task and its stream."""
        self._who = who
        self._fields = fields

    def __call__(self, key: Any) -> int:
        try:
            return stable_hash(key)
        except ComponentError as error:
            values = key if len(self._fields) > 1 else (key,)
            name = next(name for name, value in zip(self._fields, values, strict=True) if not _has_hash(value))
            raise ComponentError(f"{self._who} field {name!r}: {error}") from None


def _has_hash(value: Any) -> bool:
    try:
        stable_hash(value)
    except ComponentError:
        return False
    return True


def key_of(shape: Stream, fields: tuple[str, ...]) -> Callable[[Values], Any]:
    """Make the function that extracts the grouping key: the value of one field, or a tuple of several."""
    return itemgetter(*(shape.index[name] for name in fields))


def fields_chooser(shape: Stream, fields: tuple[str, ...], keys: Keys[T]) -> ChooseOne[T]:
    """Send equal keys to the same task."""
    of, key = keys.of, key_of(shape, fields)
    return lambda values: of(key(values))


def shuffle_chooser(choices: Sequence[T], rng: random.Random) -> ChooseOne[T]:
    """Choose every target once in each round, in an order shuffled at the start (as Storm does)."""
    order = list(choices)
    rng.shuffle(order)
    # The values are given to `next` as its default, which a cycle never comes to: no call of a function of ours.
    return partial(next, cycle(order))


def partial_key_chooser(shape: Stream, fields: tuple[str, ...], keys: Keys[T]) -> ChooseOne[T]:
    """Choose of a key's two candidates the one with fewer tuples (Nasir et al., "The Power of Both Choices", 2015)."""
    choices, hash_of = keys.targets, keys.hash_of
    n_targets = len(choices)
    sent = [0] * n_targets
    key = key_of(shape, fields)

    def choose(values: Values) -> T:
        hashed = hash_of(key(values))
        first = hashed % n_targets
        second = (hashed >> 32) % n_targets
        if second == first and n_targets > 1:
            second = (first + 1) % n_targets
        index = first if sent[first] <= sent[second] else second
        sent[index] += 1
        return choices[index]

    return choose


def make_chooser(
    subscription: Subscription,
    shape: Stream,
    source_task: int,
    targets: Sequence[int],
    local_targets: Sequence[int],
    rng: random.Random,
    choices: Sequence[T],
    hash_of: Callable[[Any], int] = stable_hash,
    text_hash: TextHash = stable_hash,
) -> tuple[ChooseOne[T] | None, ChooseMany[T] | None]:
    """Make the chooser of one subscription: (one, None) or (None, many). Direct grouping has neither. `choices`: one
    for each of `targets`. `hash_of` and `text_hash`: see `Keys`."""
    grouping = subscription.grouping
    if grouping == FIELDS:
        return fields_chooser(shape, subscription.fields, Keys(choices, hash_of, text_hash)), None
    if grouping == SHUFFLE:
        return shuffle_chooser(choices, rng), None
    if grouping == LOCAL_OR_SHUFFLE:
        here = set(local_targets)
        local = [choice for target, choice in zip(targets, choices, strict=True) if target in here]
        return shuffle_chooser(local or choices, rng), None
    if grouping == PARTIAL_KEY:
        return partial_key_chooser(shape, subscription.fields, Keys(choices, hash_of, text_hash)), None
    if grouping == GLOBAL:
        return (lambda values: choices[0]), None
    if grouping == NONE:
        return (lambda values: rng.choice(choices)), None
    if grouping == ALL:
        return None, (lambda values: choices)
    if grouping == CUSTOM and subscription.custom is not None:
        return None, _custom_chooser(subscription.custom, source_task, targets, choices)
    return None, None


def _custom_chooser(
    grouping: CustomGrouping, source_task: int, targets: Sequence[int], choices: Sequence[T]
) -> ChooseMany[T]:
    choice_of = dict(zip(targets, choices, strict=True))

    def choose(values: Values) -> list[T]:
        chosen = grouping.choose_tasks(source_task, values)
        try:
            return [choice_of[task] for task in chosen]
        except (KeyError, TypeError):
            raise ComponentError(
                f"{type(grouping).__name__}.choose_tasks returned {repr_of(chosen)}; allowed: a list of {list(targets)}"
            ) from None

    return choose
