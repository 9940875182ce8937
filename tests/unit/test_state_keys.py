"""Keys of state: stored alike exactly if a dict has them as one, and read back as they were set."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import json
import pickle
import subprocess
import sys
import uuid
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from zoneinfo import ZoneInfo

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from squall import ClusterError
from squall.engine.errors import UnstorableError
from squall.engine.state import keyed
from squall.engine.state.keys import check_key, pack_key
from squall.engine.state.reading import import_rows, items_of, rows_of
from squall.engine.state.task_store import STORE_FILE
from tests.unit.test_keyed_state import Kept

UTC, EAST, BERLIN = datetime.UTC, datetime.timezone(datetime.timedelta(hours=1)), ZoneInfo("Europe/Berlin")
TWICE = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
SKIPPED = datetime.datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN)
NAN = float("nan")


class Colour(enum.Enum):
    RED = 1
    CRIMSON = 1
    BLUE = 2


class Shade(enum.Enum):
    RED = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Name(enum.StrEnum):
    A = "a"


class Pair(NamedTuple):
    one: Any
    other: Any


@dataclasses.dataclass(frozen=True)
class Point:
    x: Any
    y: Any = 0
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Place(Point):
    pass


class Text(str):
    __slots__ = ()


class Odd:
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


ATOMS: list[Any] = [
    complex(1), 1j, complex(0.5, -0.0), complex(0.5, 1), complex("inf"),
    None, False, True, 0, 1, 2, -1, 0.0, -0.0, 0.5, 1.0, 1.5, 0.1, 2**53, 2.0**53, 2**70, 2.0**70, 1e300, int(1e300),
    5e-324, float("inf"), -float("inf"), Decimal(1), Decimal("1.00"), Decimal("0.1"), Decimal("1E+2"), 100,
    Decimal("0.1000000000000000055511151231257827021181583404541015625"),
    Decimal("Infinity"), Decimal("-0"), Decimal("1E-400"), Decimal("1E+400"), 10**400, Fraction(1, 2), Fraction(1, 3),
    HTTPStatus.OK, 200, "", "a", "1", "nan", "\ud800", Text("a"), Name.A, b"", b"a", b"\x80", uuid.UUID(int=1),
    uuid.UUID(int=2), Colour.RED, Colour.CRIMSON, Colour.BLUE, Shade.RED, Rights.READ, Rights.READ | Rights.WRITE,
    datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 12, tzinfo=UTC),
    datetime.datetime(2024, 1, 1, 13, tzinfo=EAST), datetime.datetime(2024, 1, 1, 13, tzinfo=BERLIN),
    datetime.datetime.min.replace(tzinfo=EAST), datetime.datetime.max.replace(tzinfo=UTC), datetime.datetime.max,
    TWICE, TWICE.replace(fold=1), TWICE.astimezone(UTC), TWICE.replace(fold=1).astimezone(UTC),
    TWICE.replace(tzinfo=ZoneInfo("Europe/Rome")), SKIPPED, SKIPPED.replace(fold=1), SKIPPED.astimezone(UTC),
    SKIPPED.replace(hour=3), datetime.time(12), datetime.time(12, tzinfo=UTC), datetime.time(13, tzinfo=EAST),
    datetime.time(12, tzinfo=BERLIN), datetime.time(0, tzinfo=EAST), datetime.time(23, tzinfo=UTC),
    datetime.timedelta(1), datetime.timedelta(hours=24), datetime.timedelta(microseconds=-1),
    frozenset(), frozenset("ab"), frozenset("ba"), frozenset({1, "a"}), frozenset({1.0, Text("a")}),
]
SIMPLE = st.one_of(
    st.integers(0, len(ATOMS) - 1).map(ATOMS.__getitem__), st.integers(), st.floats(allow_nan=False),
    st.decimals(allow_nan=False).filter(lambda key: not key.is_finite() or abs(key.adjusted()) < 5_000),
    st.datetimes(), st.datetimes(timezones=st.sampled_from([UTC, EAST, BERLIN])), st.text("ab", max_size=2),
)
KEYS = st.recursive(SIMPLE, lambda inner: st.one_of(
    st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3), st.builds(Pair, inner, inner),
    st.builds(Point, inner, inner, st.sampled_from(["", "note"])), st.builds(Place, inner),
), max_leaves=5)


def test_numbers_of_numpy_and_times_of_pandas_are_those_of_python() -> None:
    naive, aware = datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 12, tzinfo=UTC)
    pandas = pytest.importorskip("pandas")
    for one, other in [
        (numpy.int64(1), 1), (numpy.float64(0.5), 0.5), (numpy.float32(0.5), Decimal("0.5")), (numpy.bool_(True), 1),
        (numpy.str_("a"), "a"), (numpy.uint8(200), HTTPStatus.OK), (pandas.Timestamp(naive), naive),
        (pandas.Timestamp(aware).tz_convert("Asia/Tokyo"), aware),
        (pandas.Timedelta(1, "us"), datetime.timedelta(0, 0, 1)), (numpy.complex64(1j), 1j), (memoryview(b"a"), b"a"),
    ]:
        assert {one: 1} == {other: 1}
        assert pack_key(one) == pack_key(other)
    assert pack_key(numpy.float32(0.1)) != pack_key(0.1)  # the hashes differ
    assert pack_key(pandas.Timestamp("2024-01-01 00:00:00.000000001")) != pack_key(naive)
    for key in (numpy.datetime64(5, "s"), numpy.timedelta64(5, "s"), numpy.longdouble(1), numpy.float64(NAN)):
        with pytest.raises(UnstorableError):
            check_key(key, "count[0]")


def test_atoms_are_stored_alike_exactly_if_they_are_equal() -> None:
    for one in ATOMS:
        for other in ATOMS:
            assert (pack_key(one) == pack_key(other)) == (one == other), (one, other)
            assert (pack_key((1, one)) == pack_key(Pair(True, other))) == (one == other), (one, other)
            assert (pack_key(Point(one)) == pack_key(Point(other, note="n"))) == (one == other), (one, other)
            assert (pack_key(frozenset({2, one})) == pack_key(frozenset({other, 2}))) == (
                frozenset({2, one}) == frozenset({other, 2})
            )


NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)


@given(st.tuples(KEYS, KEYS) | NUMBERS.flatmap(
    lambda number: st.tuples(st.just(number), st.sampled_from([float(number), Fraction(number), Decimal(number)]))
))
@example((Point(1), Place(1)))
@example(((1, 0), Point(1)))
def test_keys_are_stored_alike_exactly_if_they_are_equal(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert (pack_key(one) == pack_key(other)) == (one == other)
    assert pack_key(pickle.loads(pickle.dumps(one))) == pack_key(one)


def commit(its: Kept) -> None:
    """Often enough to have keys in their places, if the log may be short."""
    for number in range(3):
        its.commit(commits=number)


@contextlib.contextmanager
def placed(directory: Path, log: int) -> Iterator[Kept]:
    """`log`: 0 to have keys in their places soon."""
    with mock.patch.multiple(keyed, COMMITS_IN_LOG=log), contextlib.closing(Kept(directory)) as its:
        yield its


@pytest.mark.parametrize("log", [0, 256], ids=["in the table", "in the log"])
def test_keys_are_read_back_as_they_were_set(log: int, tmp_path: Path) -> None:
    expected: dict[Any, Any] = {}
    with placed(tmp_path, log) as its:
        for number, key in enumerate(ATOMS):
            its.state[key] = expected[key] = str(number)
            if number % 5 == 0:
                commit(its)
        its.state[Pair(1, Colour.RED)] = expected[Pair(1, Colour.RED)] = "pair"
        commit(its)
        expected["commits"] = 2
        state = its.reopened()
        assert len(list(its.store.items())) == (log == 0 and len(expected))
        assert dict(state) == expected == dict(items_of(tmp_path / STORE_FILE))
        kinds = {type(key) for key in state}
        assert {Colour, uuid.UUID, Decimal, float, frozenset, Pair, datetime.datetime} <= kinds
        assert {key for key in state if isinstance(key, datetime.datetime) and key.tzinfo == EAST}
        its.commits.undo()
        for key in list(expected):
            del its.state[key]
        commit(its)
        assert dict(its.reopened()) == {"commits": 2}


def test_another_spelling_finds_the_value_that_is_only_in_the_table(tmp_path: Path) -> None:
    with mock.patch.multiple(keyed, LOADED_AT_ONCE=1), placed(tmp_path, 0) as its:
        its.state[1.0], its.state[("a", Decimal("0.5"))], its.state[frozenset("abcdef")] = "one", "half", "set"
        commit(its)
        its.reopened()
        assert its.reads([0]) == 1
        assert its.state.get(True) == its.state.get(1) == "one"
        assert (its.state[("a", 0.5)], its.state[frozenset("fedcba")]) == ("half", "set")
        assert its.state.get(NAN) is its.state.get(object()) is None


def test_plain_keys_are_on_disk_as_ever(tmp_path: Path) -> None:
    """So stores of earlier versions are read."""
    with contextlib.closing(Kept(tmp_path)) as its:
        store = its.store
        store.begin()
        store.put([("a", 1), (2, b"x"), (("a", 1), 2.5), (b"k", "v")])
        store.append(0, {"b": 1, ("a", (2, b"x")): 2})
        store.end()
        assert sorted(store.read("SELECT quote(key), value FROM state")) == sorted([
            ("'a'", 1), ("2", b"x"), ("X'28020000007501000000616901000000'", 2.5), ("X'73010000006B'", "v"),
        ])
        [(_, changes)] = store.read("SELECT number, changes FROM log")
        assert changes == pickle.dumps({"b": 1, ("a", (2, b"x")): 2}, 5)


def test_what_has_no_known_equality_is_refused_by_name() -> None:
    class Local(enum.Enum):
        RED = 1

    for key, why in [
        *((key, r"^count\[0\] set state\[.*\]: nan is no key: it does not equal itself") for key in (
            NAN, Decimal("nan"), (1, NAN), frozenset({NAN}), Point(NAN), Pair("a", (Decimal("nan"),)),
        )),
        (object(), "of type object; expected text, bytes, numbers"), (("a", Odd()), "of type .*Odd; expected text"),
        (int, "of type type"), (Decimal("1E+999999999"), "more than 10,000 digits"),
        (Decimal("1E-999999999"), "more than 10,000 digits"), (Local.RED, "cannot be pickled: "),
        (complex(1, NAN), "nan is no key"), (memoryview(b"a"), "cannot be pickled: "),
        (memoryview(b"\xff").cast("b"), "of type memoryview; expected"),
    ]:
        with pytest.raises(UnstorableError, match=why):
            check_key(key, "count[0]")


COLOURS = """
import dataclasses, enum
class Colour(enum.Enum):
    RED = 1
class Size(enum.IntEnum):
    SEVEN = 7
@dataclasses.dataclass(frozen=True)
class Dot:
    x: float
"""
# A set of numbers: the hash seed of a process decides in which order it pickles a set of text.
SETS = """
import sys, colours, datetime
from pathlib import Path
from unittest import mock
from squall.engine.state import keyed
from tests.unit.test_keyed_state import Kept
its = Kept(sys.argv[1])
its.state.update({colours.Colour.RED: 1, ("a", colours.Colour.RED): [2], frozenset((0, 8, 16)): 3, 1.5: 4})
its.commit()
with mock.patch.multiple(keyed, COMMITS_IN_LOG=0):
    its.commit(last=1)
    its.state["later"] = 1
    its.commit()
for key in (colours.Dot(1), colours.Dot(1.0), 7, colours.Size.SEVEN):
    its.state[key] = 1
    its.commit()
its.close()
"""


def test_keys_of_classes_that_only_the_topology_can_import_are_exported_and_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "colours.py").write_text(COLOURS)
    (tmp_path / "root" / "count-0").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    path = [str(Path(__file__).parents[2]), str(tmp_path)]
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path}\n{SETS}", str(tmp_path / "root" / "count-0")],
        check=True,
    )
    rows = list(rows_of(tmp_path / "root", None))
    assert import_rows(tmp_path / "other", [json.dumps(row).encode() for row in rows]) == len(rows) == 8
    assert list(rows_of(tmp_path / "other", None)) == rows
    import_rows(tmp_path / "root", [json.dumps(row).encode() for row in rows])
    assert list(rows_of(tmp_path / "root", None)) == rows
    with pytest.raises(ClusterError, match="cannot be read: ModuleNotFoundError"):
        dict(items_of(tmp_path / "other" / "count-0" / STORE_FILE))
    with pytest.raises(ClusterError, match="cannot be read: ModuleNotFoundError"):
        Kept(tmp_path / "other" / "count-0")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "colours", None)
    del sys.modules["colours"]
    import colours  # type: ignore[import-not-found]

    with contextlib.closing(Kept(tmp_path / "other" / "count-0")) as its:
        assert its.state[colours.Colour.RED] == its.state[colours.Dot(1)] == 1
        assert its.state["a", colours.Colour.RED] == [2]
        assert its.state[frozenset((16, 8, 0))] == 3
