"""Grouping keys that say themselves what they are equal to: equal keys go to one task, or are refused by name."""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter, OrderedDict, UserString, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pytest

from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import ComponentError
from squall.engine.foreign.stable_hash import stable_hash
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, chain


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


class Derived(Own):
    """Has the equality of its parent."""


class Either(enum.Enum):
    A = 1
    B = 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Either)

    __hash__ = None  # type: ignore[assignment]


class Money(Decimal):
    def __eq__(self, other: object) -> bool:
        return round(self, 2) == other

    __hash__ = Decimal.__hash__


@pytest.mark.parametrize(
    ("value", "owner"),
    [(Own("a", 1), "Own"), (Derived("a", 1), "Own"), (Loose("A"), "Loose"), (Either.A, "Either"), (Money(1), "Money"),
     (UserString("a"), "UserString"), (Counter("a"), "Counter"), (("x", [Own("a", 1)]), "Own")],
    ids=lambda value: type(value).__name__,
)
def test_a_class_that_defines_equality_is_refused(value: Any, owner: str) -> None:
    with pytest.raises(ComponentError, match=rf"{owner} defines __eq__ itself, so values that it calls equal may"):
        stable_hash(value)


@dataclasses.dataclass
class Plain:
    key: str
    note: int = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass(eq=False)
class Silent(Plain):
    """Has the equality of its parent, which knows nothing of `more`."""

    more: int = 0


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Frozen:
    a: int
    b: tuple[int, ...] = ()


class Point(NamedTuple):
    x: int
    y: int


Pair = namedtuple("Pair", "x y")


class Color(str, enum.Enum):  # noqa: UP042
    RED = "red"


@pytest.mark.parametrize(
    ("one", "other"),
    [(Plain("a", 1), Plain("a", 2)), (Silent("a", 1, 2), Silent("a", 3, 4)), (Frozen(1, (2,)), Frozen(1, (2,))),
     (Point(1, 2), (1, 2)), (Pair(1, 2), Point(1, 2)), (Color.RED, "red"), (1, 1.0), (1, True),
     (Decimal(1), Fraction(1)), (OrderedDict(a=1, b=2), {"b": 2, "a": 1})],
    ids=lambda value: type(value).__name__,
)
def test_equal_keys_of_all_others_have_one_hash(one: Any, other: Any) -> None:
    assert one == other
    assert stable_hash(one) == stable_hash(other)


@pytest.mark.parametrize("bolt", ["spout", "basic"])
@pytest.mark.parametrize("grouping", ["fields_grouping", "partial_key_grouping"])
def test_the_error_names_component_stream_field_and_type(bolt: str, grouping: str) -> None:
    spout, streams = Feeder({"keys": ("id", "key")}), {"keys": ("id", "key")}
    builder = chain(spout)
    source = "spout"
    if bolt == "basic":
        emits = DoesBasic(lambda bolt, tup, collector: collector.emit(tup.values, stream="keys"), streams)
        builder.set_bolt("middle", emits).shuffle_grouping("spout", stream="keys")
        source = "middle"
    getattr(builder.set_bolt("sink", Does(acks), 4), grouping)(source, "id", "key", stream="keys")
    spout.feed(1, Own("a", 1), id=1, stream="keys")
    says = rf"{source}\[\d\] stream 'keys' field 'key': fields grouping cannot use a value of type Own as a key: Own"
    with pytest.raises(TaskCrashed, match=says):
        Rig(builder).settle()
