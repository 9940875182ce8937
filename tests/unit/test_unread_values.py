"""A value whose class raises where it is rebuilt spoils its own tuple; every other value of the frame arrives."""

from __future__ import annotations

import pickle
import random
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from squall import Failure
from squall.engine.flow.parcel import Acks, Parcel
from squall.ipc.codec import OUT_OF_BAND_BYTES, decode, encode
from squall.ipc.partial_decode import rescue
from tests.parcels import batch_of, content, parcel_of, random_parcel, same

BIG = OUT_OF_BAND_BYTES + 1


class Base(BaseException):
    """Nobody's child but BaseException's."""


def throw(kind: type[BaseException]) -> Any:
    raise kind("not here")


class Calls:
    def __init__(self, *raises: Any) -> None:
        self.raises = raises

    def __reduce__(self) -> Any:
        return throw, self.raises


class SetsState:
    def __reduce__(self) -> Any:
        return SetsState, (), {"some": "state"}

    def __setstate__(self, state: Any) -> None:
        raise ValueError("not here")


class News:
    armed = False

    def __new__(cls, *args: Any) -> News:
        if args and cls.armed:
            raise ValueError("not here")
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[int]:
        return (1,)


class Key:
    armed = False

    def __hash__(self) -> int:
        if Key.armed:
            raise ValueError("not here")
        return 1


class NoAppend(list[Any]):
    armed = False

    def append(self, value: Any) -> None:
        raise ValueError("not here")

    extend = append


class NoState:
    """What is called gives an object that all share, and that takes no state."""

    def __reduce__(self) -> Any:
        return nothing, (), {"x": 1}


def nothing() -> None:
    return None


def gone() -> Any:
    module = types.ModuleType("squall_test_gone")
    exec("class Gone: pass", module.__dict__)
    sys.modules["squall_test_gone"] = module
    return module.Gone()


MAKERS: dict[str, Callable[[], Any]] = {
    "reduction": lambda: Calls(ValueError),
    "base": lambda: Calls(Base),
    "setstate": SetsState,
    "new": News,
    "key": lambda: {Key(): 1},
    "frozenset": lambda: frozenset({Key()}),
    "extend": lambda: NoAppend([1, 2]),
    "shared": NoState,
    "module": gone,
    "deep": lambda: [{"a": (1, [Calls(ValueError)])}],
    "beside a buffer": lambda: [bytearray(BIG), Calls(ValueError)],
}


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def now() -> None:
        monkeypatch.setattr(News, "armed", True)
        monkeypatch.setattr(Key, "armed", True)
        monkeypatch.delitem(sys.modules, "squall_test_gone", raising=False)

    monkeypatch.setitem(sys.modules, "squall_test_gone", types.ModuleType("squall_test_gone"))
    return now


def travel(parcel: Parcel, arm: Callable[[], None]) -> Parcel:
    data, buffers = encode(parcel)
    raws = [buffer.raw() for buffer in buffers]
    arm()
    return decode(memoryview(data), [bytes(raw) if raw.readonly else bytearray(raw) for raw in raws])


@pytest.mark.parametrize("how", MAKERS)
def test_the_rows_around_it_arrive(how: str, arm: Callable[[], None]) -> None:
    big, shared = bytes(BIG), ["of", "two", "rows"]
    rows = [
        (1, "one", None, big), (2, "two", shared, bytearray(BIG)), (3, "three", MAKERS[how](), b"short"),
        (4, "four", shared, big), (5, "five", None, []), (6, "six", {1: {2}, "a": frozenset("b")}, 1.5),
    ]
    parcel = parcel_of(batch_of(rows), batch_of([("other", [1])], stream="second"))
    parcel.acks, parcel.fails = Acks({7: 8}), [(9, Failure("failed"))]
    back = travel(parcel, arm)
    *pieces, second = back.batches
    assert same([row for row in rows if row[0] != 3], [row for piece in pieces for row in piece.rows])
    assert second.rows == [("other", [1])]
    assert (back.rows, back.acks, back.fails) == (6, Acks({7: 8}), parcel.fails)
    [(one, position, why)] = back.unread
    assert (position, one.source, one.stream, one.target, one.roots) == (2, 1, "default", 2, [11])
    assert "not here" in why or how in {"module", "shared"}


def test_a_batch_of_which_nothing_is_left_is_gone(arm: Callable[[], None]) -> None:
    back = travel(parcel_of(batch_of([(SetsState(),)])), arm)
    assert (list(back.batches), back.rows, len(back.unread)) == ([], 0, 1)


@pytest.mark.parametrize("seed", range(30))
def test_it_reads_whatever_pickle_reads(seed: int) -> None:
    parcel = random_parcel(random.Random(seed))
    data, buffers = encode(parcel)
    raws = [bytes(buffer.raw()) for buffer in buffers]
    assert same(rescue(data, raws), list(pickle.loads(data, buffers=raws)))
    assert content(decode(data, raws))["unread"] == []


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_stream_that_is_damaged_is_refused_with_the_first_error(cut: int) -> None:
    data, _ = encode(parcel_of(batch_of([(SetsState(),)])))
    with pytest.raises(Exception, match=r".") as caught:
        decode(data[:-cut])
    with pytest.raises(type(caught.value)):
        pickle.loads(data[:-cut])


def test_the_trees_beside_it_close(arm: Callable[[], None]) -> None:
    """A joined run loses a row: both its trees fail, and what is left of it, acked, disturbs none of the others."""
    batch = batch_of([(SetsState() if n == 1 else n,) for n in range(6)])
    batch.starts, batch.roots, batch.edges, batch.others = [0, 3, 4], [11, 12, 0], [21, 22, 0], {0: ((13, 23),)}
    back = travel(parcel_of(batch), arm)
    assert [row for part in back.batches for row in part.rows] == [(0,), (2,), (3,), (4,), (5,)]
    [(lost, _, _)] = back.unread
    assert {lost.roots[0], *dict((lost.others or {})[0])} == {11, 13}
    acked = Counter[int]()
    for part in back.batches:
        for runs in (zip(part.roots, part.edges, strict=True), *(part.others or {}).values()):
            for root, edge in runs:
                acked[root] ^= edge
    assert acked.keys() <= {0, 11, 12, 13}
    assert acked[12] == 22
