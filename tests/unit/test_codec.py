"""Parcels to bytes and back: equal in value and in type, or refused with the name of the value that cannot travel."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import math
import random
import threading
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.batch import Batch
from engine.errors import ComponentError
from engine.failure import Failure
from engine.parcel import Parcel
from ipc import codec
from ipc.codec import OUT_OF_BAND_BYTES, decode, encode

Row = tuple[Any, ...]


class Colour(enum.Enum):
    RED = "red"


class Word(str):
    __slots__ = ()


class Blob(bytes):
    __slots__ = ()


class Level(enum.StrEnum):
    HIGH = "high"


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    y: float


class Refusing:
    """Cannot be pickled, and says why."""

    def __reduce__(self) -> str:
        raise RuntimeError("not this one")


class Moody:
    """Cannot be pickled the first time."""

    asked = False

    def __reduce__(self) -> tuple[type, tuple[()]]:
        if not self.asked:
            self.asked = True
            raise RuntimeError("not now")
        return Moody, ()


def batch_of(rows: list[Row], source: int = 1, stream: str = "default", target: int = 2) -> Batch:
    batch = Batch(source, stream, target)
    batch.rows = rows
    batch.starts, batch.roots, batch.edges = [0], [11], [12]
    return batch


def parcel_of(*batches: Batch) -> Parcel:
    parcel = Parcel()
    parcel.batches = list(batches)
    parcel.rows = sum(len(batch.rows) for batch in batches)
    return parcel


def travel(parcel: Parcel) -> Parcel:
    """Through bytes, the way the data plane does it: nothing of the sender's memory is shared with the receiver's."""
    data, buffers = encode(parcel)
    raws = [buffer.raw() for buffer in buffers]
    assert all(raw.nbytes >= OUT_OF_BAND_BYTES for raw in raws)
    return decode(memoryview(data), [bytes(raw) if raw.readonly else bytearray(raw) for raw in raws])


def rows_back(rows: list[Row]) -> list[Row]:
    [batch] = travel(parcel_of(batch_of(rows))).batches
    return batch.rows


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type, all the way down; NaN is itself here."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        equal = left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
        return bool(equal and left.flags.writeable == right.flags.writeable)
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right) or math.isnan(left) and math.isnan(right)
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            same(a, b) for pair in zip(left.items(), right.items(), strict=True) for a, b in zip(*pair, strict=True)
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def content(parcel: Parcel) -> dict[str, Any]:
    """Everything a parcel holds, for comparison."""
    fields = {name: getattr(parcel, name) for name in Parcel.__slots__}
    fields["batches"] = [{name: getattr(batch, name) for name in Batch.__slots__} for batch in parcel.batches]
    return fields


# Values


SCALARS: list[Any] = [
    None, True, False, 0, -1, (1 << 63) - 1, -(1 << 63), 1 << 64, -(1 << 200), 0.0, -0.0, 1e308, math.inf, math.nan,
    1 + 2j, "", "a", "\x00", "a\x00b", "\x00\x00", "\n", "\r\n", "żółw 🐢", "\ud800", "x\udfffy", "\U0010ffff", "\x00\ud800",
    b"", b"\x00", bytearray(), bytearray(b"ab"), Word("sub"), Word(""), Word("a\x00b"), Blob(b"sub"), Level.HIGH, Colour.RED,
    Point(1.0, -0.0), decimal.Decimal("1.10"), datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC), uuid.UUID(int=5),
    frozenset({1, 2}), range(3), Ellipsis, len, int, collections.OrderedDict(b=1, a=2),
]  # fmt: skip
NESTED: list[Any] = [
    (), [], {}, [[]], ((),), {"a": [1, {"b": (None, "c\x00")}]}, [1, "a", None], (1, (2, (3, (4,)))), {(1, 2): {3}},
    [bytearray(b"x"), b"y"], {"deep": [[[[[[["bottom"]]]]]]]},
]  # fmt: skip


@pytest.mark.parametrize("value", SCALARS + NESTED, ids=lambda value: ascii(value)[:40])
def test_value_alone_among_its_like_and_among_text(value: Any) -> None:
    for rows in ([(value,)], [(value,)] * 3, [("text",), (value,), ("text",)], [(value, "text"), ("", value)]):
        assert same(rows_back(rows), rows)


def random_text(dice: random.Random) -> str:
    alphabet = "ab \x00é🐢\ud800\udfff\n"
    return "".join(dice.choices(alphabet, k=dice.choice((0, 1, 1, 2, 5, 30))))


def random_value(dice: random.Random, depth: int = 3) -> Any:
    kinds: list[Callable[[], Any]] = [
        lambda: dice.choice(SCALARS),
        lambda: random_text(dice),
        lambda: dice.randrange(-(1 << 70), 1 << 70),
        dice.random,
        lambda: dice.randbytes(dice.choice((0, 1, 50))),
        lambda: bytearray(dice.randbytes(dice.choice((0, 1, 50)))),
        lambda: np.frombuffer(dice.randbytes(24), dice.choice((np.uint8, np.int32, np.float64))).copy(),
    ]
    if depth:
        kinds += [
            lambda: [random_value(dice, depth - 1) for _ in range(dice.randrange(4))],
            lambda: tuple(random_value(dice, depth - 1) for _ in range(dice.randrange(4))),
            lambda: {random_text(dice): random_value(dice, depth - 1) for _ in range(dice.randrange(4))},
        ]
    return dice.choice(kinds)()


def random_column(dice: random.Random, n_rows: int) -> list[Any]:
    """Of one kind, as most are, or of mixed types."""
    if dice.random() < 0.4:
        return [random_text(dice) for _ in range(n_rows)]
    if dice.random() < 0.1:
        lengths = (OUT_OF_BAND_BYTES - 1, OUT_OF_BAND_BYTES, OUT_OF_BAND_BYTES + 1)
        kinds: tuple[Callable[[bytes], Any], ...] = (bytes, bytearray, Blob)
        return [dice.choice(kinds)(dice.randbytes(dice.choice(lengths))) for _ in range(n_rows)]
    return [random_value(dice) for _ in range(n_rows)]


def random_id(dice: random.Random) -> int:
    return dice.choice((0, 1, (1 << 64) - 1, dice.getrandbits(64), dice.getrandbits(64)))


def random_failure(dice: random.Random) -> Failure:
    return Failure(
        dice.choice(("failed", "exception", "timeout", "worker died")), random_text(dice), dice.getrandbits(20),
        random_text(dice), random_text(dice), dice.randrange(1, 9),
    )


def random_batch(dice: random.Random) -> Batch:
    batch = Batch(dice.randrange(-1, 1 << 31), random_text(dice), dice.randrange(1 << 31))
    n_rows, n_columns = dice.choice((0, 1, 2, 7)), dice.randrange(4)
    if n_columns:
        batch.rows = list(zip(*(random_column(dice, n_rows) for _ in range(n_columns)), strict=True))
    else:
        batch.rows = [()] * n_rows
    batch.starts = sorted(dice.sample(range(n_rows), dice.randrange(n_rows + 1)))
    batch.roots = [random_id(dice) for _ in batch.starts]
    batch.edges = [random_id(dice) for _ in batch.starts]
    if dice.random() < 0.3:
        batch.others = {
            run: tuple((random_id(dice), random_id(dice)) for _ in range(dice.randrange(1, 4)))
            for run in range(len(batch.roots))
        }
    return batch


def random_parcel(dice: random.Random) -> Parcel:
    parcel = parcel_of(*(random_batch(dice) for _ in range(dice.randrange(4))))
    few = range(dice.choice((0, 0, 1, 5)))
    parcel.acks = {random_id(dice): random_id(dice) for _ in few}
    parcel.workers = {random_id(dice): dice.getrandbits(dice.choice((1, 64, 300))) for _ in few}
    parcel.inits = [(random_id(dice), random_id(dice), dice.getrandbits(20), dice.getrandbits(300)) for _ in few]
    parcel.fails = [(random_id(dice), random_failure(dice)) for _ in few]
    parcel.resets = [(random_id(dice), dice.getrandbits(20)) for _ in few]
    parcel.answers = [(dice.getrandbits(20), random_id(dice), dice.choice((None, random_failure(dice)))) for _ in few]
    return parcel


def test_random_parcels(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(300):
        parcel = random_parcel(dice)
        assert same(content(travel(parcel)), content(parcel))


# Corners


def test_empty_parcel() -> None:
    back = travel(Parcel())
    assert not back
    assert content(back) == content(Parcel())


@pytest.mark.parametrize("n_rows", [0, 1, 1000])
def test_rows_without_values(n_rows: int) -> None:
    back = travel(parcel_of(batch_of([()] * n_rows)))
    assert back.batches[0].rows == [()] * n_rows
    assert back.rows == n_rows


@pytest.mark.parametrize("texts", [[""], ["", ""], ["", "", ""], ["\x00"], ["", "\x00"], ["\x00", ""], ["a\x00", "b"]])
def test_empty_texts_and_separators(texts: list[str]) -> None:
    rows = [(text,) for text in texts]
    assert rows_back(rows) == rows


def test_column_of_text_is_not_pickled_value_by_value() -> None:
    rows = [(f"word {n}",) for n in range(1000)]
    data, buffers = encode(parcel_of(batch_of(rows)))
    assert b"word 0\x00word 1\x00word 2" in data
    assert not buffers


def test_order_of_rows_batches_and_acks_is_kept() -> None:
    parcel = parcel_of(*(batch_of([(n, str(n)) for n in range(5)], source=source) for source in range(9)))
    parcel.acks = {root: root ^ 5 for root in (9, 3, 7, 1)}
    back = travel(parcel)
    assert [batch.source for batch in back.batches] == list(range(9))
    assert list(back.acks) == [9, 3, 7, 1]
    assert back.rows == 45


def test_run_that_belongs_to_several_trees() -> None:
    batch = batch_of([("a",), ("b",)])
    batch.starts, batch.roots, batch.edges = [0, 1], [1, (1 << 64) - 1], [3, 4]
    batch.others = {1: ((7, 8), ((1 << 64) - 1, 1))}
    [back] = travel(parcel_of(batch)).batches
    assert back.others == batch.others
    assert (back.starts, back.roots, back.edges) == (batch.starts, batch.roots, batch.edges)


def test_masks_of_many_workers() -> None:
    parcel = Parcel()
    parcel.workers = {1: 1 << 65, 2: (1 << 4096) - 1}
    parcel.inits = [(1, 2, 3, 1 << 100)]
    back = travel(parcel)
    assert (back.workers, back.inits) == (parcel.workers, parcel.inits)


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_bytes_around_the_threshold(kind: Callable[[bytes], Any], extra: int, seed: int) -> None:
    value = kind(random.Random(seed).randbytes(OUT_OF_BAND_BYTES + extra))
    data, buffers = encode(parcel_of(batch_of([("before", value), ("after", value)])))
    assert len(buffers) == (2 if extra >= 0 else 0)
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


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(0,), (10, 10), (300, 100), (64, 1024)])
def test_arrays(order: Any, shape: tuple[int, ...]) -> None:
    array = np.asarray(np.arange(math.prod(shape), dtype=np.float64).reshape(shape), order=order)
    [(back, _)] = rows_back([(array, "x")])
    assert same(back, array)
    assert back.flags.f_contiguous == array.flags.f_contiguous
    _, buffers = encode(parcel_of(batch_of([(array,)])))
    assert len(buffers) == (array.nbytes >= OUT_OF_BAND_BYTES)


def test_array_that_is_read_only_stays_so() -> None:
    for length in (10, OUT_OF_BAND_BYTES):
        array = np.zeros(length, dtype=np.uint8)
        array.flags.writeable = False
        [(back,)] = rows_back([(array,)])
        assert same(back, array)


def test_array_with_strides_and_array_of_objects() -> None:
    strided = np.arange(200_000, dtype=np.int64)[::3]
    objects = np.array([None, "a", {"b": 1}], dtype=object)
    [(back, other)] = rows_back([(strided, objects)])
    assert back.tolist() == strided.tolist()
    assert other.tolist() == objects.tolist()


def test_arrays_inside_other_values_travel_beside_the_stream() -> None:
    array = np.ones(OUT_OF_BAND_BYTES, dtype=np.uint8)
    _, buffers = encode(parcel_of(batch_of([({"image": [array]},)])))
    assert len(buffers) == 1
    [(value,)] = rows_back([({"image": [array]},)])
    assert same(value["image"][0], array)


# What cannot travel


def refusal(rows: list[Row], **names: Any) -> ComponentError:
    fine = batch_of([("fine", 1)], source=8)
    with pytest.raises(ComponentError) as caught:
        encode(parcel_of(fine, batch_of(rows, **names)))
    return caught.value


@pytest.mark.parametrize(
    ("value", "kind", "why"),
    [
        (threading.Lock(), "lock", "cannot pickle '_thread.lock' object"),
        ((n for n in ()), "generator", "cannot pickle 'generator' object"),
        (lambda: 1, "function", "lambda"),
        (memoryview(b"abc"), "memoryview", "cannot pickle memoryview objects"),
        (Refusing(), "Refusing", "RuntimeError: not this one"),
        ([1, {"inner": threading.Lock()}], "list", "cannot pickle '_thread.lock' object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_value_that_cannot_be_pickled_is_named(value: Any, kind: str, why: str) -> None:
    error = refusal([("word", 1, 5), ("word", 2, value)], source=7, stream="numbers")
    text = str(error)
    expected = f"task 7 emitted to stream 'numbers' a tuple whose value 2 ({kind}) cannot be sent to another worker: "
    assert text.startswith(expected)
    assert why in text
    assert "\n" not in text
    assert error.__cause__ is not None


def test_class_that_no_other_process_can_find_is_named() -> None:
    class Local:
        pass

    assert "value 0 (test_class_that_no_other_process_can_find_is_named.<locals>.Local)" in str(refusal([(Local(),)]))


def test_value_that_is_refused_only_now_and_then() -> None:
    """Nobody's value in particular can be named any more, yet the error is clear and of the right kind."""
    error = refusal([(Moody(),)])
    assert str(error) == "a parcel with tuples of tasks 1, 8 cannot be sent to another worker: RuntimeError: not now"
    assert error.__cause__ is not None
    assert error.__cause__ is not error


def test_unpicklable_says_why_or_nothing() -> None:
    assert codec.unpicklable([1, "a"]) is None
    assert codec.unpicklable(threading.Lock()) == "TypeError: cannot pickle '_thread.lock' object"
