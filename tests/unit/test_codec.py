"""Parcels to bytes and back: equal in value and in type, or refused with the name of the value that cannot travel."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from squall.engine.errors import ComponentError
from squall.engine.flow.parcel import Parcel
from squall.ipc.codec import OUT_OF_BAND_BYTES, decode, encode
from tests.parcels import HAS_NUMPY, Row, batch_of, content, parcel_of, random_parcel, same

if HAS_NUMPY:
    import numpy as np

needs_numpy = pytest.mark.skipif(not HAS_NUMPY, reason="numpy is not installed")


class Refusing:
    """Cannot be pickled, and says why."""

    def __reduce__(self) -> str:
        raise RuntimeError("not this one")


def travel(parcel: Parcel) -> Parcel:
    """Through bytes, the way the data plane does it: nothing of the sender's memory is shared with the receiver's."""
    data, buffers = encode(parcel)
    raws = [buffer.raw() for buffer in buffers]
    assert all(raw.nbytes >= OUT_OF_BAND_BYTES for raw in raws)
    return decode(memoryview(data), [bytes(raw) if raw.readonly else bytearray(raw) for raw in raws])


def rows_back(rows: list[Row]) -> list[Row]:
    [batch] = travel(parcel_of(batch_of(rows))).batches
    return batch.rows


# Values


def test_random_parcels(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(300):
        parcel = random_parcel(dice)
        assert same(content(travel(parcel)), content(parcel))


# Corners


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_bytes_around_the_threshold(kind: Callable[[bytes], Any], extra: int, seed: int) -> None:
    value = kind(random.Random(seed).randbytes(OUT_OF_BAND_BYTES + extra))
    data, buffers = encode(parcel_of(batch_of([("before", value), ("after", value)])))
    assert len(buffers) == (1 if extra >= 0 else 0)
    assert (len(data) < 1000) == (extra >= 0)
    back = rows_back([("before", value), ("after", kind(value))])
    assert same(back, [("before", value), ("after", value)])
    if kind is bytearray:
        back[0][1][0] ^= 255
        back[0][1].append(1)  # a buffer of its own that may be changed and resized
        assert back[1][1] == value


def test_sender_may_go_on_using_a_buffer_once_it_is_sent() -> None:
    value = bytearray(OUT_OF_BAND_BYTES)
    data, buffers = encode(parcel_of(batch_of([(value,)])))
    with pytest.raises(BufferError):
        value.append(1)  # until then it must keep its place
    assert data
    del buffers
    value.append(1)


@needs_numpy
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(0,), (10, 10), (300, 100), (64, 1024)])
def test_arrays(order: Any, shape: tuple[int, ...]) -> None:
    array = np.asarray(np.arange(math.prod(shape), dtype=np.float64).reshape(shape), order=order)
    [(back, _)] = rows_back([(array, "x")])
    assert same(back, array)
    assert back.flags.f_contiguous == array.flags.f_contiguous
    _, buffers = encode(parcel_of(batch_of([(array,)])))
    assert len(buffers) == (array.nbytes >= OUT_OF_BAND_BYTES)


# What cannot travel


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (lambda: 1, "lambda"),
        (Refusing(), "RuntimeError: not this one"),
        ([1, {"inner": threading.Lock()}], "cannot pickle '_thread.lock' object"),
        (memoryview(numpy.array([1, "a"], object)), "its memory holds Python objects, not bytes"),
        (memoryview(numpy.array([1, "a"] * 9000, object)), "its memory holds Python objects, not bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_cannot_be_pickled_is_refused(value: Any, why: str) -> None:
    with pytest.raises(ComponentError) as caught:
        encode(parcel_of(batch_of([("fine", 1)]), batch_of([("word", 1), ("word", value)])))
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
