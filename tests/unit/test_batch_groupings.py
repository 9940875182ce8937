"""Rows of a batch go where the same rows go one by one, whatever kind of column their key is in."""

from __future__ import annotations

from typing import Any

import pytest

from squall import Stream
from squall.engine.api.columns import Columns
from squall.engine.api.topology import FIELDS, Subscription
from squall.engine.flow.batch_groupings import make_spread
from squall.engine.flow.groupings import Keys, TextHash, fields_chooser
from squall.engine.foreign.stable_hash import stable_hash

SHAPE = Stream("value")
TEXTS: list[Any] = ["", "a", "ä", "\ud800", "b" * 300, *(f"word {number % 70}" for number in range(300))]


def by_batch(column: Any, n_targets: int, text_hash: TextHash) -> list[list[Any]]:
    """The rows that each target gets."""
    keys = Keys(range(n_targets), n_targets, stable_hash, text_hash)
    one = fields_chooser(SHAPE, ("value",), keys)
    rows = Columns((column,), len(column))
    found: list[list[Any]] = [[] for _ in range(n_targets)]
    spread = make_spread(Subscription("spout", "default", FIELDS, ("value",)), SHAPE, one, None, keys)
    for target, wanted in spread(rows):
        found[target] += [value for (value,) in (rows if wanted is None else rows.select(wanted))]
    return found


def by_row(values: list[Any], n_targets: int, text_hash: TextHash) -> list[list[Any]]:
    choose = fields_chooser(SHAPE, ("value",), Keys(range(n_targets), n_targets, stable_hash, text_hash))
    found: list[list[Any]] = [[] for _ in range(n_targets)]
    for value in values:
        found[choose((value,))].append(value)
    return found


@pytest.mark.parametrize("text_hash", [hash, stable_hash], ids=["hash", "stable hash"])
@pytest.mark.parametrize("n_targets", [1, 2, 3, 4, 7, 64, 255, 256, 257])
def test_texts_in_a_list(n_targets: int, text_hash: TextHash) -> None:
    assert by_batch(TEXTS, n_targets, text_hash) == by_row(TEXTS, n_targets, text_hash)


@pytest.mark.parametrize("kind", ["array", "chunked", "sliced", "dictionary", "view"])
@pytest.mark.parametrize("nulls", [False, True], ids=["whole", "with nulls"])
@pytest.mark.parametrize("n_targets", [2, 3])
@pytest.mark.parametrize("what", ["texts", "integers", "floats", "bytes", "lists", "none at all"])
def test_arrow(kind: str, nulls: bool, n_targets: int, what: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    values: list[Any] = {
        "texts": [text for text in TEXTS if text != "\ud800"],
        "integers": [number % 90 - 40 for number in range(300)],
        "floats": [0.0, -0.0, 1.0, 1.5, *(number % 40 / 8 for number in range(300))],
        "bytes": [bytes([number % 50]) * 5 for number in range(300)],
        "lists": [[number % 20] for number in range(100)],
        "none at all": [],
    }[what]
    if nulls and values:
        values[3:3] = [None, None]
    column = arrow.array(values)
    if kind == "chunked":
        column = arrow.chunked_array([column[:50], column[50:70], column[70:]])
    elif kind == "sliced":
        column, values = column[5:90], values[5:90]
    elif kind == "dictionary":
        if what == "lists":
            pytest.skip("Arrow has no dictionaries of lists")
        column = column.dictionary_encode()
    elif kind == "view":
        if what != "texts":
            pytest.skip("of text only")
        column = column.cast(arrow.string_view())
    found = by_batch(column, n_targets, hash)
    assert found == by_row(values, n_targets, hash)
    assert {id(type(value)) for rows in found for value in rows} == {id(type(value)) for value in values}
