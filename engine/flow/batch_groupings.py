"""Spreads the rows of a batch over the tasks of one subscription: the groupings, a column at a time.

Guarantees: each row goes to a task that the grouping of `engine.flow.groupings` allows for it; equal keys to the same
task as from a sender of rows. Groupings without a key (shuffle, local or shuffle, none) keep rows together: a batch
goes to one task, or in a series of at least `SERIES_ROWS` rows to each of several.

Thread: the sending task's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise, repeat

from squall.engine.api.columns import Columns
from squall.engine.api.stream import Stream
from squall.engine.api.topology import ALL, FIELDS, GLOBAL, LOCAL_OR_SHUFFLE, NONE, SHUFFLE, Subscription
from squall.engine.flow.groupings import ChooseMany, ChooseOne, Keys
from squall.engine.foreign.given_columns import distinct, is_text, values_of

SERIES_ROWS = 256
"""Rows that one task gets at least, if there are so many: dividing a batch costs more than executing a few rows."""
_BYTE_TASKS = 256
"""Targets whose numbers fit a byte each."""

Share = tuple[int, bytes | None]
"""(number of the target, 1 for each row that it gets and 0 for the others), None for all rows."""
Spread = Callable[[Columns], list[Share]]


def make_spread(
    subscription: Subscription, shape: Stream, one: ChooseOne[int] | None, many: ChooseMany[int] | None,
    keys: Keys[int],
) -> Spread:
    """Make the function that spreads the rows of one subscription. `one`, `many`, `keys`: choosers among the numbers of
    its targets."""
    grouping, n_targets = subscription.grouping, keys.n_targets
    if grouping == ALL:
        everyone: list[Share] = [(target, None) for target in range(n_targets)]
        return lambda rows: everyone
    if grouping == GLOBAL or (n_targets == 1 and one is not None):
        return lambda rows: [(0, None)]
    if grouping in (SHUFFLE, LOCAL_OR_SHUFFLE, NONE) and one is not None:
        return _in_series(one, n_targets)
    if grouping == FIELDS and n_targets <= _BYTE_TASKS:
        return _by_key(keys, [shape.index[name] for name in subscription.fields])
    if one is not None:
        return _row_by_row(lambda row: (one(row),))
    return _row_by_row(many) if many is not None else lambda rows: []


def _in_series(one: ChooseOne[int], n_targets: int) -> Spread:
    def spread(rows: Columns) -> list[Share]:
        count = len(rows)
        pieces = min(n_targets, count // SERIES_ROWS)
        if pieces < 2:
            return [(one(()), None)]
        ends = [count * piece // pieces for piece in range(pieces + 1)]
        shares: dict[int, bytearray] = {}
        for begin, end in pairwise(ends):
            wanted = shares.setdefault(one(()), bytearray(count))
            wanted[begin:end] = b"\1" * (end - begin)
        return [(target, bytes(wanted)) for target, wanted in shares.items()]

    return spread


def _by_key(keys: Keys[int], positions: list[int]) -> Spread:
    of_all, text_hash = keys.of_all, keys.text_hash
    by_text = _by_text(keys.n_targets)
    tables = _tables(keys.n_targets)

    def spread(rows: Columns) -> list[Share]:
        if len(positions) > 1:
            columns = [values_of(rows.columns[position]) for position in positions]
            return _shares(bytes(of_all(list(zip(*columns, strict=True)))), tables)
        column = rows.columns[positions[0]]
        if text_hash is hash and rows.is_text(positions[0]):
            return _shares(by_text(column), tables)
        encoded = distinct(column)
        if encoded is not None:
            values = encoded.values
            quick = text_hash is hash and is_text(values)
            return _shares(encoded.spell_out(by_text(values) if quick else bytes(of_all(values))), tables)
        return _shares(bytes(of_all(values_of(column))), tables)

    return spread


@cache
def _tables(n_targets: int) -> list[bytes]:
    """For each target: the bytes that turn its number into 1, and others into 0. One for all tasks that send: for 256
    targets they have 64 KiB, and take as long to make as thousands of rows to spread."""
    return [bytes(target) + b"\1" + bytes(255 - target) for target in range(n_targets)]


def _by_text(n_targets: int) -> Callable[[Sequence[str]], bytes]:
    """The function that computes the target of each of many texts: of its `hash`, as `Keys` does."""
    if n_targets & n_targets - 1:
        return lambda column: bytes([hashed % n_targets for hashed in map(hash, column)])
    # The lowest byte tells the remainder. A fifth faster.
    of_byte = bytes(byte % n_targets for byte in range(256))
    return lambda column: struct.pack(f"<{len(column)}q", *map(hash, column))[::8].translate(of_byte)


def _shares(targets: bytes, tables: list[bytes]) -> list[Share]:
    found = []
    for target, table in enumerate(tables):
        if target in targets:
            wanted = targets.translate(table)
            found.append((target, None if all(wanted) else wanted))
    return found


def _row_by_row(choose: ChooseMany[int]) -> Spread:
    def spread(rows: Columns) -> list[Share]:
        count = len(rows)
        shares: dict[int, bytearray] = {}
        twice: list[Share] = []
        for index, row in enumerate(rows):
            chosen = choose(row)
            for number, target in enumerate(chosen):
                if target in chosen[:number]:
                    # A grouping may name a task twice: it gets the row twice.
                    twice.append((target, bytes(chain(repeat(0, index), (1,), repeat(0, count - index - 1)))))
                else:
                    shares.setdefault(target, bytearray(count))[index] = 1
        return [*((target, bytes(wanted)) for target, wanted in shares.items()), *twice]

    return spread


def named(target: int) -> list[Share]:
    """All rows go to the target that their sender names."""
    return [(target, None)]


def series_of(owners: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(owner, end) of each series of equal owners."""
    before, end = -1, 0
    for end, owner in enumerate(owners):
        if owner != before and end:
            yield before, end
        before = owner
    if owners:
        yield before, end + 1
