"""A value that cannot be sent, or whose class raises where it is rebuilt, spoils its own tuple; all others arrive."""

from __future__ import annotations

import pickle
import random
import re
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

from squall import ComponentError, Failure, TopologyBuilder
from squall.engine.core.executor import TaskCrashed
from squall.engine.flow.anchoring import Acks
from squall.engine.flow.batch import Batch
from squall.engine.flow.parcel import Parcel
from squall.ipc.codec import OUT_OF_BAND_BYTES, decode, encode
from squall.ipc.partial_decode import rescue
from tests.parcels import batch_of, content, parcel_of, random_parcel, same
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, chain
from tests.unit.wired import wired

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


# ---- values that cannot be pickled or sent ----

def to_sink(spout: Feeder) -> TopologyBuilder:
    return wired(spout=(spout, 1), sink=(Does(acks), 1, "shuffle spout/out"))


def things() -> tuple[Any, Callable[[Any, Any], Batch]]:
    """A worker core, and what makes a batch with one tuple of `spout`, of which the second field is `thing`."""
    rig = Rig(to_sink(Feeder({"out": ("id", "thing")})))
    (source,), (target,) = rig.plan.tasks_of("spout"), rig.plan.tasks_of("sink")
    return rig.core, lambda number, thing: Batch.untracked(source, "out", target, (number, thing))


@pytest.mark.parametrize("error", [ComponentError("frame of 5 bytes; max_frame_bytes allows 4"), MemoryError("none")])
def test_what_is_no_values_fault_stays_as_it_was(error: BaseException) -> None:
    core, batch_of = things()
    parcel = Parcel()
    parcel.add(batch_of(1, "plain"))
    assert str(error) in str(core.not_sent(0, parcel, error))


@pytest.mark.parametrize("size", [100, 1 << 20, 3 << 20])
@pytest.mark.parametrize("bad", [0, 1, 6])
def test_among_others_of_any_size_it_is_found(size: int, bad: int) -> None:
    core, batch_of = things()
    waiting = Parcel()
    for number in range(7):
        waiting.add(batch_of(bytes(size), (lambda: 1) if number == bad else number))
    outgoing = core.outgoing
    outgoing.put_back(0, waiting, 7 * size)
    sent: list[Any] = []
    crashes: list[str] = []
    for _ in range(100):
        if not outgoing.has(0):
            break
        parcel = outgoing.take(0)
        try:
            encode(parcel)
        except ComponentError as error:
            found = core.not_sent(0, parcel, error)
            crashes += [] if found is None else [str(found)]
        else:
            sent += [row[1] for batch in parcel.batches for row in batch.rows]
    assert sent == [number for number in range(7) if number != bad]
    [crash] = crashes
    assert re.fullmatch(
        r"spout\[\d\] .*stream 'out' field 'thing': a value of type function cannot be pickled, so it could not be sent"
        r".* in an emit to sink", crash,
    )


class Raises:
    """Cannot be pickled, and says so in its own way."""

    def __reduce__(self) -> Any:
        raise ValueError("not me")


class Exits:
    def __reduce__(self) -> Any:
        raise SystemExit(3)


def local_class() -> Any:
    class Local:
        """Of a class that no other process can find."""

    return Local()


def numbers() -> Iterator[int]:
    yield 1


VALUES = [
    (lambda: 1, "function"), (threading.Lock(), "lock"), (numbers(), "generator"), (local_class(), "Local"),
    (Raises(), "Raises"), (Exits(), "Exits"), ([{"deep": lambda: 1}], "list"),
    (memoryview(numpy.array([1, "a"], object)), "memoryview"),
]
EACH_VALUE = pytest.mark.parametrize(("value", "kind"), VALUES, ids=[kind for _, kind in VALUES])


@EACH_VALUE
def test_a_spout_that_emits_it_is_told_component_stream_and_field(value: Any, kind: str) -> None:
    spout = Feeder({"out": ("id", "thing")})
    spout.feed(1, value, id=1, stream="out")
    with pytest.raises(TaskCrashed, match=rf"spout\[\d\] stream .out. field .thing.: a value of type .*{kind} cannot"):
        Rig(to_sink(spout)).settle()


@EACH_VALUE
@pytest.mark.parametrize("sinks", [1, 2])
def test_a_bolt_that_emits_it_fails_its_tuple(value: Any, kind: str, sinks: int) -> None:
    spout, middle = Feeder(), DoesBasic(lambda bolt, tup, collector: collector.emit((value,)), ("thing",))
    builder = chain(spout, middle)
    for number in range(sinks):
        builder.set_bolt(f"sink-{number}", Does(acks)).shuffle_grouping("bolt-1")
    spout.feed(1, id=1)
    rig = Rig(builder, on_error="fail")
    rig.settle()
    assert spout.reasons == [(1, "exception")]
    assert "bolt-1[2] stream 'default' field 'thing': a value of type" in spout.failures[0][1].error
    assert kind in spout.failures[0][1].error
    assert rig.tracked == 0
