"""The hash of fields groupings: the same in every interpreter, in step with `==`; what cannot be is refused."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import enum
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy
import pytest

from squall import ComponentError
from squall.engine.core.executor import TaskCrashed
from squall.engine.foreign.stable_hash import stable_hash
from tests.unit.rig import Does, Feeder, Rig, acks, chain
from tests.unit.test_state_keys import EAST, UTC, Colour, Name, Pair, Point

NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=UTC)
BACK = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
"""In the hour that comes twice."""
SPANS = ("W", "D", "h", "m", "s", "ms", "us", "ns")


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass(eq=False)
class Thing:
    x: int


@dataclasses.dataclass(eq=False, frozen=True)
class Nearer(Point):
    """Has the equality of its parent, which knows nothing of `more`."""

    more: int = 0


def test_the_hash_is_pinned() -> None:
    # State that a former release partitioned must be found again by the next: a change here is a breaking change.
    assert [stable_hash(value) for value in ("word", 1, b"x", None, ("a", 1))] == [
        6782113004776352940, 2092789425003139053, 11710986180355751879, 7958955049054603978, 7731401667819695190
    ]


@pytest.mark.parametrize(
    "equal",
    [
        (1, 1.0, True, Decimal("1.00"), Fraction(1), 1 + 0j, numpy.float32(1), numpy.bool_(True)),
        (2**61 - 1, Fraction(2**61 - 1), Decimal(2**61 - 1)),
        (3, Level.HIGH),
        ("a", Name.A, numpy.str_("a")),
        (array.array("i", [1, 2]), array.array("q", [1, 2])),
        (b"key", bytearray(b"key"), memoryview(b"key")),
        ((1, 2), (1.0, 2.0), Pair(1, 2)),
        ({1, 2, 3}, frozenset([3, 2, 1.0])),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": True}, collections.OrderedDict(b=2, a=1)),
        (Point(1, "a", "note"), Point(1.0, "a", "other note")),
        (Nearer(1, 2, more=3), Nearer(1, 2, more=4)),
        (NOON, NOON.astimezone(EAST)),
        (datetime.time(12, tzinfo=UTC), datetime.time(13, tzinfo=EAST)),
        (BACK, BACK.replace(fold=1)),
        (BACK.replace(tzinfo=None), numpy.datetime64(BACK.replace(tzinfo=None), "us")),
        tuple(numpy.datetime64("2024-03-03", unit) for unit in SPANS[1:]),
        tuple(numpy.timedelta64(1, "W").astype(f"m8[{unit}]") for unit in SPANS),
        (numpy.datetime64(6, ("s", 10)), numpy.datetime64(1, "m")),
    ],
)
def test_equal_values_hash_alike(equal: tuple[Any, ...]) -> None:
    for value in equal[1:]:
        assert value == equal[0]
    assert len({stable_hash(value) for value in equal}) == 1
    # ... inside other values, too
    assert len({stable_hash(("key", [value])) for value in equal}) == 1


def test_a_time_at_the_end_of_the_calendar_has_a_hash() -> None:
    late = datetime.datetime.max.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))
    early = datetime.datetime.min.replace(tzinfo=EAST)
    assert stable_hash(late) != stable_hash(early)


def test_nan_has_one_hash() -> None:
    assert stable_hash(float("nan")) == stable_hash(float("-nan")) == stable_hash(Decimal("nan"))
    assert stable_hash(Decimal("snan")) == stable_hash(Decimal("nan"))


@pytest.mark.parametrize("unit", [*SPANS, "ps", "M"])
@pytest.mark.parametrize("kind", ["M8", "m8"])
def test_a_time_of_numpy_has_one_hash_in_rows_and_batches(kind: str, unit: str) -> None:
    column = numpy.array([0, 1, 40_000, "NaT"], f"{kind}[{unit}]")
    assert [stable_hash(value) for value in column] == [stable_hash(value) for value in column.tolist()]


def test_a_time_of_pandas_is_that_of_python_and_none_is_none() -> None:
    pandas = pytest.importorskip("pandas")
    assert stable_hash(pandas.Timestamp("2024-03-03")) == stable_hash(datetime.date(2024, 3, 3))
    assert stable_hash(pandas.Timedelta(5, "s")) == stable_hash(datetime.timedelta(seconds=5))
    assert stable_hash(pandas.NaT) == stable_hash(numpy.datetime64("NaT")) == stable_hash(None)


def test_arrays_hash_by_content() -> None:
    assert stable_hash(numpy.array([1, 2])) == stable_hash(numpy.array([1.0, 2.0]))
    assert stable_hash(numpy.array([[1, 2], [3, 4]])) != stable_hash(numpy.array([1, 2, 3, 4]))


def test_different_values_differ() -> None:
    values = [
        "", "0", "1", b"", b"1", 0, 1, 2, -1, 0.1, None, (), [[]], ("a", "b"), ("ab",), ("b", "a"), {}, set(), {1},
        {"a": 1}, {"a": 2}, {"b": 1}, Colour.RED, Colour.BLUE, Point(1, 2), Point(2, 1), datetime.date(2024, 1, 1),
        datetime.datetime(2024, 1, 1, 12), datetime.time(1), datetime.timedelta(1), uuid.UUID(int=1),
    ]
    assert len({stable_hash(value) for value in values}) == len(values)


@pytest.mark.parametrize("value", [object(), Thing(1), Point, range(3), (1, object())])
def test_what_has_no_stable_hash_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ComponentError, match="fields grouping cannot use a value of type"):
        stable_hash(value)


# ---- keys that say themselves what they are equal to ----


@dataclasses.dataclass(frozen=True)
class Own:
    """Equal by `key` alone, whatever `note` is."""

    key: str
    note: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class Loose(str):
    """Text of which case does not matter."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class Either(enum.Enum):
    A = 1
    B = 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Either)

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("value", "owner"),
    [(Own("a", 1), "Own"), (Loose("A"), "Loose"), (Either.A, "Either"),
     (collections.UserString("a"), "UserString"), (collections.Counter("a"), "Counter"), (("x", [Own("a", 1)]), "Own")],
    ids=lambda value: type(value).__name__,
)
def test_a_class_that_defines_equality_is_refused(value: Any, owner: str) -> None:
    with pytest.raises(ComponentError, match=rf"{owner} defines __eq__ itself, so values that it calls equal may"):
        stable_hash(value)


def test_the_error_names_component_stream_and_field() -> None:
    spout = Feeder({"keys": ("id", "key")})
    builder = chain(spout)
    builder.set_bolt("sink", Does(acks), 4).fields_grouping("spout", "id", "key", stream="keys")
    spout.feed(1, Own("a", 1), id=1, stream="keys")
    with pytest.raises(TaskCrashed, match=r"spout\[\d\] stream 'keys' field 'key': fields grouping cannot use"):
        Rig(builder).settle()
