"""Parcels with values of every kind, made from a seed, and an equality that looks at types too."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import math
import random
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from squall.engine.api.failure import Failure
from squall.engine.flow.anchoring import Acks
from squall.engine.flow.batch import Batch
from squall.engine.flow.parcel import Parcel
from squall.ipc.codec import OUT_OF_BAND_BYTES

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


SCALARS: list[Any] = [
    None, True, False, 0, -1, (1 << 63) - 1, -(1 << 63), 1 << 64, -(1 << 200), 0.0, -0.0, 1e308, math.inf, math.nan,
    1 + 2j, "", "a", "\x00", "a\x00b", "\x00\x00", "\n", "\r\n", "żółw 🐢", "\ud800", "x\udfffy", "\U0010ffff",
    "\x00\ud800", b"", b"\x00", bytearray(), bytearray(b"ab"), Word("sub"), Word(""), Word("a\x00b"), Blob(b"sub"),
    Level.HIGH, Colour.RED, Point(1.0, -0.0), decimal.Decimal("1.10"), uuid.UUID(int=5),
    datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC), frozenset({1, 2}),
    range(3), Ellipsis, len, int, collections.OrderedDict(b=1, a=2),
]  # fmt: skip
NESTED: list[Any] = [
    (), [], {}, [[]], ((),), {"a": [1, {"b": (None, "c\x00")}]}, [1, "a", None], (1, (2, (3, (4,)))), {(1, 2): {3}},
    [bytearray(b"x"), b"y"], {"deep": [[[[[[["bottom"]]]]]]]},
]  # fmt: skip


def batch_of(rows: list[Row], source: int = 1, stream: str = "default", target: int = 2) -> Batch:
    batch = Batch(source, stream, target)
    batch.rows = rows
    batch.starts, batch.roots, batch.edges = [0], [11], [12]
    return batch


def parcel_of(*batches: Batch) -> Parcel:
    parcel = Parcel()
    parcel.batches = collections.deque(batches)
    parcel.rows = sum(len(batch.rows) for batch in batches)
    return parcel


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type, all the way down; NaN is itself here."""
    return bool(_typed(left) == _typed(right))


def _typed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype, value.shape, value.tobytes(), value.flags.writeable
    if isinstance(value, dict):
        return type(value), [*map(_typed, value.items())]
    if isinstance(value, list | tuple):
        return type(value), [*map(_typed, value)]
    return type(value), repr(value) if isinstance(value, float) else value


def content(parcel: Parcel) -> dict[str, Any]:
    """Everything a parcel holds, for comparison."""
    fields = {name: getattr(parcel, name) for name in Parcel.__slots__}
    fields["batches"] = [{name: getattr(batch, name) for name in Batch.__slots__} for batch in parcel.batches]
    return fields


def random_text(dice: random.Random) -> str:
    alphabet = "ab \x00é🐢\ud800\udfff\n"
    return "".join(dice.choices(alphabet, k=dice.choice((0, 1, 1, 2, 5, 30))))


def random_value(dice: random.Random, depth: int = 3) -> Any:
    kinds: list[Callable[[], Any]] = [
        lambda: dice.choice(SCALARS),
        lambda: random_text(dice),
        lambda: dice.randrange(-(1 << 70), 1 << 70),
        dice.random,
        lambda: dice.choice((bytes, bytearray))(dice.randbytes(dice.choice((0, 1, 50)))),
        lambda: np.frombuffer(dice.randbytes(24), dice.choice(("u1", "<i4", "<f8"))).copy(),
    ]
    if depth:
        holders: list[Any] = [list, tuple, lambda values: {random_text(dice): value for value in values}]
        kinds += 3 * [
            lambda: dice.choice(holders)(random_value(dice, depth - 1) for _ in range(dice.randrange(4)))
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
    xors = {random_id(dice): random_id(dice) for _ in few}
    parcel.acks = Acks(xors, {root: dice.getrandbits(dice.choice((1, 64, 300))) for root in xors})
    parcel.inits = [(random_id(dice), random_id(dice), dice.getrandbits(20), dice.getrandbits(300)) for _ in few]
    parcel.fails = [(random_id(dice), random_failure(dice)) for _ in few]
    parcel.resets = [(random_id(dice), dice.getrandbits(20)) for _ in few]
    parcel.answers = [(dice.getrandbits(20), random_id(dice), dice.choice((None, random_failure(dice)))) for _ in few]
    return parcel
