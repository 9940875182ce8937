"""Estimates of how much memory tuples hold: about right, bounded in what they look at, and never an exception."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from squall.engine.flow.batch import Batch
from squall.engine.foreign.sizes import estimate, row_bytes, value_bytes

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


@pytest.mark.parametrize("value", [Raises(), [Raises()], Endless(), {1: Endless([1])}])
def test_objects_that_misbehave_do_no_harm(value: Any) -> None:
    assert 0 < value_bytes(value) < MIB


def test_what_refers_to_itself_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert value_bytes(loop) < 2000


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
