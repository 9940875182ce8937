"""Groupings at run time: which of a bolt's tasks receive a tuple.

A chooser is made per sending task and subscription. It picks among *choices*, one for each target task (sorted by id);
on the tuple path a choice is the batch open to the task. `one` choosers return one of them, the case that the tuple
path is optimised for; `many` choosers any number. Nothing here asks for a choice before it is chosen: choices may be
made on demand (`engine.flow.batch`).

Guarantees: equal keys go to the same task from every sender, also after a restart. A shuffle gives each target its
turns, none keeps what it chose. A grouping of the user's that names a task which is no target is an error of its emit.

Relies on: `stable_hash`, or one PYTHONHASHSEED in all processes that route a stream. Thread: the sending task's.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

from squall.engine.api.component import CustomGrouping
from squall.engine.api.stream import Stream
from squall.engine.api.topology import (
    ALL,
    FIELDS,
    GLOBAL,
    LOCAL_OR_SHUFFLE,
    NONE,
    PARTIAL_KEY,
    SHUFFLE,
    Subscription,
)
from squall.engine.errors import ComponentError
from squall.engine.flow.shuffle_rounds import Rounds
from squall.engine.foreign.sizes import value_bytes
from squall.engine.foreign.stable_hash import key_hash, stable_hash
from squall.engine.foreign.text import repr_of

Values = tuple[Any, ...]

# Keys are remembered per sending task, because a stable hash costs ten times a dictionary look-up. When these bytes are
# full, the memo is cleared, at the price of one more hash for each key: 131,072 numbers.
_MEMO_BYTES = 1 << 24
_ENTRY_BYTES = 100
"""Of a key's place in the memo, without the key itself."""
_MEMO_SHARE = 1 << 14
"""Most bytes of a key that is remembered: longer ones would leave no room for others."""


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Choices(Protocol[T_co]):
    """What is chosen among, by number."""

    def __getitem__(self, number: int, /) -> T_co: ...


ChooseOne = Callable[[Values], T]
ChooseMany = Callable[[Values], Sequence[T]]
Chooser = tuple[ChooseOne[T] | None, ChooseMany[T] | None]
"""(one, None) or (None, many)."""
TextHash = Callable[[str], int]
"""`stable_hash`; or `hash`, at a tenth of its cost, if all processes that route the stream were started with one
PYTHONHASHSEED."""


class Keys(Generic[T]):
    """The one of `targets` for each key. The same for equal keys, whichever method is asked."""

    def __init__(
        self, targets: Choices[T], n_targets: int, hash_of: Callable[[Any], int] = stable_hash,
        text_hash: TextHash = stable_hash,
    ) -> None:
        """`hash_of`: `stable_hash`, or a `KeyHash`, whose errors say more of a key without a hash. `text_hash`: for
        keys that are text."""
        self.targets = targets
        self.n_targets = n_targets
        self.text_hash = text_hash
        """Text -> a number; its remainder by the number of targets is the target's index."""
        self.only = targets[0] if n_targets == 1 else None
        """The target, if there is one only."""
        self.memo: KeyMemo[T] = KeyMemo(self._compute)
        """key -> its target, for keys that are not text."""
        self._hash_of = hash_of

    def of(self, key: Any) -> T:
        """The target of any key that has a stable hash. Raises ComponentError."""
        if key.__class__ is str:
            return self.only or self.targets[self.text_hash(key) % self.n_targets]
        try:
            return self.memo[key]
        except TypeError:
            # Not to be remembered: a list, a dict, a set.
            return self._compute(key)

    def of_all(self, keys: Collection[Any]) -> list[T]:
        """The target of each of many keys. Raises ComponentError."""
        if str not in set(map(type, keys)):
            with suppress(TypeError):  # one of them is not to be remembered
                return list(map(self.memo.__getitem__, keys))
        return list(map(self.of, keys))

    def hash_of(self, key: Any) -> int:
        """The number whose remainder decides. Raises ComponentError."""
        try:
            return key_hash(key, self.text_hash)
        except ComponentError:
            return self._hash_of(key)

    def _compute(self, key: Any) -> T:
        return self.targets[self.hash_of(key) % self.n_targets]


class KeyMemo(dict[Any, T]):
    """key -> its target, computed once per key; bounded in bytes."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        super().__init__()
        self._compute = compute
        self._bytes = 0
        """Estimated memory of the keys in it."""

    def __missing__(self, key: Any) -> T:
        target = self._compute(key)
        size = _ENTRY_BYTES + value_bytes(key)
        if size > _MEMO_SHARE:
            return target
        self._bytes += size
        if self._bytes > _MEMO_BYTES:
            self.clear()
            self._bytes = size
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


def partial_key_chooser(shape: Stream, fields: tuple[str, ...], keys: Keys[T]) -> ChooseOne[T]:
    """Choose of a key's two candidates the one with fewer tuples (Nasir et al., "The Power of Both Choices", 2015)."""
    choices, n_targets, hash_of = keys.targets, keys.n_targets, keys.hash_of
    sent: defaultdict[int, int] = defaultdict(int)
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
    targets: Sequence[int],
    local_targets: Sequence[int],
    new_rng: Callable[[], random.Random],
    note: Callable[[Rounds[T]], None],
    keys: Keys[T],
) -> Chooser[T]:
    """Make the chooser of one subscription. Direct grouping has none. `targets`: its tasks, sorted; `keys`: of what is
    chosen for each of them. `note` is told of rounds that may be balanced."""
    grouping, choices, n_targets = subscription.grouping, keys.targets, keys.n_targets
    if grouping == FIELDS:
        return fields_chooser(shape, subscription.fields, keys), None
    if grouping in (SHUFFLE, LOCAL_OR_SHUFFLE):
        rounds = Rounds(targets, choices.__getitem__, new_rng)
        if grouping == LOCAL_OR_SHUFFLE and local_targets:
            rounds = Rounds(
                local_targets, lambda number: choices[number_in(targets, local_targets[number])], new_rng
            )
        if len(rounds.targets) > 1:
            note(rounds)
        return rounds.chooser(), None
    if grouping == PARTIAL_KEY:
        return partial_key_chooser(shape, subscription.fields, keys), None
    if grouping == GLOBAL:
        return (lambda values: choices[0]), None
    if grouping == NONE:
        draw = new_rng().random
        return (lambda values: choices[int(draw() * n_targets)]), None
    if grouping == ALL:
        return None, _all_chooser(choices, n_targets)
    return None, None


def number_in(targets: Sequence[int], task: Any) -> int:
    """The number of a task among targets, which are sorted. KeyError or TypeError if it is none of them."""
    number = bisect_left(targets, task)
    if number == len(targets) or targets[number] != task:
        raise KeyError(task)
    return number


def _all_chooser(choices: Choices[T], n_targets: int) -> ChooseMany[T]:
    everyone: list[T] = []

    def choose(values: Values) -> list[T]:
        if not everyone:
            everyone.extend(choices[number] for number in range(n_targets))
        return everyone

    return choose


def custom_chooser(
    grouping: CustomGrouping, source_task: int, targets: Sequence[int], keys: Keys[T]
) -> Chooser[T]:
    """Make the chooser that asks a user's grouping."""
    choices = keys.targets

    def choose(values: Values) -> list[T]:
        chosen = grouping.choose_tasks(source_task, values)
        try:
            return [choices[number_in(targets, task)] for task in chosen]
        except (KeyError, TypeError):
            raise ComponentError(
                f"{type(grouping).__name__}.choose_tasks returned {repr_of(chosen)}; allowed: a list of {list(targets)}"
            ) from None

    return None, choose
