"""Parcels are cut by bytes: a frame holds no more than its share of the window, unless one tuple alone is bigger."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from squall.engine.api.failure import FAILED, Failure
from squall.engine.flow.batch import Batch
from squall.engine.flow.parcel import Parcel
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
        pieces.append(parcel.cut(most_bytes, lambda: next(edges)))
        assert pieces[-1].rows > 0
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
    parcel.acks = {1: 2}
    parcel.inits.append((1, 2, 3, 4))
    parcel.fails.append((1, Failure(FAILED)))
    first, *rest = cut_up(parcel, 10 * KIB)
    assert (first.acks, len(first.inits), len(first.fails)) == ({1: 2}, 1, 1)
    assert rest
    assert not any(piece.acks or piece.inits or piece.fails for piece in rest)


def test_a_run_that_is_cut_keeps_the_edge_that_its_tree_knows() -> None:
    batch = batch_of([(bytes(KIB),)] * 64)
    batch.starts, batch.roots, batch.edges, batch.others = [0], [7], [12345], None
    pieces = cut_up(waiting(batch), 8 * KIB)
    assert len(pieces) > 4
    told = 0
    for piece in pieces:
        for part in piece.batches:
            assert part.roots == [7]
            told ^= part.edges[0]
    assert told == 12345


def test_what_is_bigger_than_it_looked_is_put_back_and_cut_by_its_true_size() -> None:
    """Two rows of 100 KiB among 256 tiny ones, none of them looked at: only the encoder knows."""
    rows = [(n, b"x" * (100 * KIB if n in (77, 99) else 1)) for n in range(256)]
    parcel = waiting(batch_of(rows))
    most, sent, edges = 8 * KIB, [], count(1 << 40)
    while parcel:
        piece = parcel.cut(most, lambda: next(edges))
        data, buffers = encode(piece)
        size = len(data) + sum(buffer.raw().nbytes for buffer in buffers)
        if size > 2 * most and piece.rows > 1:
            parcel.put_back(piece.batches, size, piece.rows)
            continue
        sent.append((size, decode(data, [buffer.raw().tobytes() for buffer in buffers])))
    assert values_of([parcel for _, parcel in sent]) == list(range(256))
    assert all(size <= 2 * most or parcel.rows == 1 for size, parcel in sent)
    assert len(sent) < 60


def test_what_is_for_one_task_is_taken_out_in_its_order() -> None:
    batches = [batch_of([(n,)]) for n in range(6)]
    for n, batch in enumerate(batches):
        batch.target = n % 2
    parcel = waiting(*batches)
    taken = parcel.take_for(1)
    assert values_of([taken]) == [1, 3, 5]
    assert values_of([parcel]) == [0, 2, 4]
    assert (taken.rows, parcel.rows) == (3, 3)
    assert taken.bytes + parcel.bytes == sum(batch.bytes for batch in batches)


def test_only_long_tuples_with_buffers_are_expected_beside_the_frame() -> None:
    def of(*values: object) -> bool:
        parcel = Parcel()
        for value in values:
            batch = Batch(1, "default", 2)
            batch.rows, batch.starts, batch.roots, batch.edges = [(1, value)], [0], [0], [0]
            batch.weigh()
            parcel.add(batch)
        return parcel.is_of_buffers

    assert of(b"x" * 100_000)
    assert of(memoryview(b"x" * 100_000), bytearray(70_000))
    assert not of("x" * 100_000)
    assert not of(b"x" * 60_000)
    assert not of(b"x" * 100_000, *[b"x"] * 10)
    assert not of()


def test_the_rows_of_a_very_long_batch_are_not_moved_for_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = [0]

    def counted(batch: Batch, rows: int, cut: Callable[[Batch, int], Batch] = Batch.cut_rows) -> Batch:
        moved[0] += len(batch.rows)
        return cut(batch, rows)

    monkeypatch.setattr(Batch, "cut_rows", counted)
    rows = [(number,) for number in range(100_000)]
    pieces = cut_up(waiting(batch_of(rows)), 4 * KIB)
    assert values_of(pieces) == [row[0] for row in rows]
    assert 0 < moved[0] < 200 * len(rows)
