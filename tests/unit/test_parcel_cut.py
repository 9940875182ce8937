"""Parcels are cut by bytes, by what their tuples are estimated to hold."""

from __future__ import annotations

from array import array
from itertools import count
from typing import Any

import pytest

from squall import Failure
from squall.engine.api.failure import FAILED
from squall.engine.flow.anchoring import Acks
from squall.engine.flow.batch import Batch
from squall.engine.flow.groupings import number_in
from squall.engine.flow.parcel import Parcel
from squall.engine.foreign.sizes import estimate, row_bytes, value_bytes
from squall.ipc.codec import decode, encode
from tests.parcels import batch_of

KIB = 1024


def waiting(*batches: Batch) -> Parcel:
    parcel = Parcel()
    for batch in batches:
        batch.weigh()
        parcel.add(batch)
    return parcel


def cut_up(parcel: Parcel, most_bytes: int) -> list[Parcel]:
    edges = count(1 << 40)
    pieces = []
    while parcel:
        rest = parcel.cut(most_bytes, lambda: next(edges))
        assert parcel.rows > 0
        pieces.append(parcel)
        parcel = rest
    assert (parcel.rows, parcel.bytes) == (0, 0)
    return pieces


def values_of(parcels: list[Parcel]) -> list[Any]:
    return [row[0] for parcel in parcels for batch in parcel.batches for row in batch.rows]


@pytest.mark.parametrize("size", [100, 10 * KIB, 100 * KIB])
def test_no_piece_is_bigger_than_it_may_be_unless_one_tuple_is(size: int) -> None:
    rows = [(bytes([n]) * size,) for n in range(200)]
    pieces = cut_up(waiting(batch_of(rows[:150]), batch_of(rows[150:])), 64 * KIB)
    assert values_of(pieces) == [row[0] for row in rows]
    for piece in pieces:
        assert piece.bytes <= 64 * KIB or piece.rows == 1
    assert len(pieces) <= 2 + 200 * (size + 400) // (64 * KIB) * 2


def test_tracking_leaves_with_the_first_piece() -> None:
    parcel = waiting(batch_of([(bytes(KIB),)] * 100))
    parcel.acks = Acks({1: 2})
    parcel.inits.append((1, 2, 3, 4))
    parcel.fails.append((1, Failure(FAILED)))
    first, *rest = cut_up(parcel, 10 * KIB)
    assert (first.acks, len(first.inits), len(first.fails)) == (Acks({1: 2}), 1, 1)
    assert rest
    assert not any(piece.acks or piece.inits or piece.fails for piece in rest)


def test_what_is_bigger_than_it_looked_is_put_back_and_cut_by_its_true_size() -> None:
    """Two rows of 100 KiB among 256 tiny ones, none of them looked at: only the encoder knows."""
    rows = [(n, b"x" * (100 * KIB if n in (77, 99) else 1)) for n in range(256)]
    parcel = waiting(batch_of(rows))
    most, sent, edges = 8 * KIB, [], count(1 << 40)
    while parcel:
        piece, parcel = parcel, parcel.cut(most, lambda: next(edges))
        data, buffers = encode(piece)
        size = len(data) + sum(buffer.raw().nbytes for buffer in buffers)
        if size > 2 * most and piece.rows > 1:
            parcel.put_back(piece.batches, size, piece.rows)
            continue
        sent.append((size, decode(data, [buffer.raw().tobytes() for buffer in buffers])))
    assert values_of([parcel for _, parcel in sent]) == list(range(256))
    assert all(size <= 2 * most or parcel.rows == 1 for size, parcel in sent)
    assert len(sent) < 60


TARGETS = 300


@pytest.mark.parametrize("task", [0, -1, 10**9, "x", None, (1,), 1.5])
def test_a_task_that_is_none_of_many_is_refused(task: Any) -> None:
    with pytest.raises((KeyError, TypeError)):
        number_in(range(1, TARGETS), task)
    assert number_in(range(1, TARGETS), TARGETS - 1) == TARGETS - 2


# ---- estimates of how much memory tuples hold: about right, bounded in what they look at, and never an exception ----


MIB = 1 << 20


class Raises:
    """Every way of asking for its size raises."""

    def __sizeof__(self) -> int:
        raise RuntimeError("no")

    @property
    def nbytes(self) -> int:
        raise RuntimeError("no")


class Endless(list[Any]):
    """Says that it is endless, and is."""

    def __iter__(self) -> Any:
        while True:
            yield b"x"


class Plain:
    def __init__(self, data: bytes) -> None:
        self.data = data


class Slotted:
    __slots__ = ("data", "unset")

    def __init__(self, data: bytes) -> None:
        self.data = data


@pytest.mark.parametrize("value", [
    b"x" * MIB, "x" * MIB, bytearray(MIB), memoryview(bytes(MIB)), array("b", bytes(MIB)), [b"x" * MIB],
    {"k": (b"x" * MIB,)}, {b"x" * MIB}, Plain(b"x" * MIB), Slotted(b"x" * MIB), [{"deep": [Plain(b"x" * MIB)]}],
    [bytes(1024)] * 1024,
], ids=lambda value: type(value).__name__)
def test_a_mebibyte_is_about_a_mebibyte(value: Any) -> None:
    assert MIB <= value_bytes(value) <= MIB * 1.2


def test_numpy_arrays_and_views_of_them_count_what_they_would_send() -> None:
    numpy = pytest.importorskip("numpy")
    assert MIB <= value_bytes(numpy.zeros(MIB // 8)) <= MIB + 1000
    assert MIB // 2 <= value_bytes(numpy.zeros(MIB // 8)[::2]) <= MIB // 2 + 1000


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize("value", [Raises(), [Raises()], Endless(), {1: Endless([1])}, LOOP])
def test_objects_that_misbehave_do_no_harm(value: Any) -> None:
    assert 0 < value_bytes(value) < MIB


def test_a_batch_is_about_as_big_as_its_rows() -> None:
    rows: list[tuple[Any, ...]] = [(n, "x" * (n % 100)) for n in range(1000)]
    assert estimate(rows, 10) == pytest.approx(sum(map(row_bytes, rows)), rel=0.3)
    assert estimate([(b"x" * MIB,)], 1) > MIB
    assert estimate([], 0) == 0


def test_one_big_row_among_many_is_found_when_the_batch_is_measured() -> None:
    batch = Batch(1, "default", 2)
    batch.rows, batch.starts = [(b"",)] * 100 + [(b"x" * MIB,)] + [(b"",)] * 100, [0]
    batch.weigh()
    before = batch.bytes
    assert batch.measure() == batch.bytes - before
    assert MIB < batch.bytes < 2 * MIB
    assert batch.measure() == 0
