"""Values read in place: how long their blocks are kept, and for whom; checks of what blocks hold; blocks with several
readers."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from squall.engine.errors import ClusterError, ProtocolError
from squall.engine.flow.batch import Batch
from squall.engine.flow.parcel import Parcel
from squall.ipc import checksum, codec
from squall.ipc.arena import GRAIN_BYTES, Arena, BlockRef
from squall.ipc.arena_reader import ArenaReader
from squall.ipc.codec import OUT_OF_BAND_BYTES
from squall.ipc.loans import FIRST_WORD, SLOTS, Loans
from squall.ipc.payloads import Payloads

MIB = 1 << 20
BIG = 4 * OUT_OF_BAND_BYTES
VIEWER, COPIER = 7, 8
"""Tasks."""


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena.create(4 * MIB)
    yield arena
    arena.close()


@pytest.fixture
def loans(arena: Arena) -> Iterator[Loans]:
    loans = Loans(arena)
    yield loans
    loans.close()


@pytest.fixture
def reader() -> Iterator[ArenaReader]:
    reader = ArenaReader()
    yield reader
    reader.close()


def lent(arena: Arena, loans: Loans, data: bytes, worker: int = 1, frame: int = 1) -> tuple[BlockRef, tuple[int, int]]:
    ref = arena.put(data)
    assert ref is not None
    loan = loans.lend(ref, worker, frame)
    assert loan is not None
    return ref, loan


def test_a_block_is_kept_until_everything_made_of_its_view_is_gone(
    arena: Arena, loans: Loans, reader: ArenaReader
) -> None:
    ref, loan = lent(arena, loans, bytes(range(256)) * 16)
    view = reader.view(ref, checksum.digest(bytes(range(256)) * 16), *loan)
    part = view[16:32][::2]
    view.release()
    del view
    gc.collect()
    loans.settle()
    assert arena.is_live(ref)
    assert part.tolist() == list(range(16, 32, 2))
    del part
    loans.settle()
    assert not arena.is_live(ref)
    assert len(loans) == 0


def test_nobody_can_write_through_a_view(arena: Arena, loans: Loans, reader: ArenaReader) -> None:
    ref, loan = lent(arena, loans, b"x" * 100)
    view = reader.view(ref, checksum.UNCHECKED, *loan)
    assert view.readonly
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 1
    assert memoryview(view.obj).readonly  # type: ignore[arg-type]


def test_a_view_goes_in_any_thread_and_outlives_its_reader(arena: Arena, loans: Loans, reader: ArenaReader) -> None:
    ref, loan = lent(arena, loans, b"kept" * 1000)
    held = [reader.view(ref, checksum.UNCHECKED, *loan)]
    reader.detach(ref.pid)
    assert held[0][:4] == b"kept"
    loans.settle()
    assert arena.is_live(ref)
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    # Its arena is mapped no more, so that nobody listens: the loan ends with the receiver.
    loans.forget(1)
    assert not arena.is_live(ref)


def test_loans_of_a_dead_receiver_and_of_lost_frames_end_and_no_others(arena: Arena, loans: Loans) -> None:
    refs = {
        (worker, frame): lent(arena, loans, b"x", worker, frame)[0] for worker in (1, 2) for frame in (1, 2, 3, 4)
    }
    loans.lost(1, 2, 3)
    loans.forget(2)
    assert {key for key, ref in refs.items() if arena.is_live(ref)} == {(1, 1), (1, 4)}


def test_a_word_of_an_earlier_loan_ends_no_later_one_in_its_slot(
    arena: Arena, loans: Loans, reader: ArenaReader
) -> None:
    first, first_loan = lent(arena, loans, b"first")
    view = reader.view(first, checksum.UNCHECKED, *first_loan)
    loans.forget(1)
    second, second_loan = lent(arena, loans, b"second")
    assert second_loan[0] == first_loan[0]
    del view
    loans.settle()
    assert arena.is_live(second)


def test_slots_are_used_again_and_none_left_is_no_loan(arena: Arena, loans: Loans, reader: ArenaReader) -> None:
    ref = arena.put(b"x")
    assert ref is not None
    for _ in range(SLOTS):
        arena.share(ref)
        assert loans.lend(ref, 1, 1) is not None
    assert loans.lend(ref, 1, 1) is None
    loans.forget(1)
    assert arena.is_live(ref)
    assert loans.lend(ref, 1, 1) is not None


@pytest.mark.parametrize("slot", [0, 1, FIRST_WORD - 1, FIRST_WORD + SLOTS, -1])
def test_a_loan_outside_the_table_is_refused(arena: Arena, loans: Loans, reader: ArenaReader, slot: int) -> None:
    ref, (_, serial) = lent(arena, loans, b"x")
    with pytest.raises(ProtocolError, match=f"loan in slot {slot}; allowed: {FIRST_WORD} to"):
        reader.view(ref, checksum.UNCHECKED, slot, serial)


def test_an_arena_that_lends_nothing_has_no_table(arena: Arena, reader: ArenaReader) -> None:
    ref = arena.put(b"x")
    assert ref is not None
    with pytest.raises((ProtocolError, ClusterError)):
        reader.view(ref, checksum.UNCHECKED, FIRST_WORD, 1)


@pytest.mark.parametrize("way", ["copy", "copy_to_change", "view"])
def test_a_damaged_block_is_an_error_and_given_back(
    arena: Arena, loans: Loans, reader: ArenaReader, way: str
) -> None:
    ref, loan = lent(arena, loans, bytes(10_000))
    wrong = checksum.digest(bytes(9_999) + b"\1")
    arguments = (ref, wrong, *loan) if way == "view" else (ref, wrong)
    with pytest.raises(ProtocolError, match="is damaged: its 10000 bytes are not those that were put in"):
        getattr(reader, way)(*arguments)
    gc.collect()
    loans.settle()
    assert arena.is_live(ref) is (way != "view")


def test_a_block_with_several_readers_is_freed_after_the_last(arena: Arena) -> None:
    ref = arena.put(bytes(GRAIN_BYTES))
    assert ref is not None
    arena.share(ref)
    arena.share(ref)
    for _ in range(3):
        assert arena.is_live(ref)
        arena.free(ref)
    with pytest.raises(ProtocolError, match="is not live"):
        arena.free(ref)


# Through the codec


def parcel_for(*targets: int, value: Any) -> Parcel:
    parcel = Parcel()
    for target in targets:
        batch = Batch(1, "default", target)
        batch.rows, batch.starts, batch.roots, batch.edges = [(value,)], [0], [5], [6]
        parcel.add(batch)
    return parcel


class Way:
    """Payloads of a sender and of its receiver."""

    def __init__(self, arena_bytes: int = 4 * MIB) -> None:
        self.counts: Counter[str] = Counter()
        self.sender, self.receiver = Payloads(arena_bytes, self.counts), Payloads(0, Counter())
        self.frame = 0

    def travel(self, parcel: Parcel, receiver: int = 1) -> dict[int, Any]:
        """The value that each task gets."""
        to_view: list[pickle.PickleBuffer] = []
        self.frame += 1
        data, buffers = codec.encode(parcel, {VIEWER}, to_view)
        parts, release = self.sender.attach(buffers, to_view, receiver, self.frame)
        parts = [bytes(part) for part in parts]
        back = codec.decode(data, *self.receiver.collect(0, parts))
        if release is not None:
            release()
        return {batch.target: batch.rows[0][0] for batch in back.batches}

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


@pytest.fixture
def way() -> Iterator[Way]:
    way = Way()
    yield way
    way.close()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_only_those_who_ask_for_it_get_views(way: Way, kind: Any) -> None:
    value = kind(b"v" * BIG)
    got = way.travel(parcel_for(VIEWER, COPIER, value=value))
    assert type(got[VIEWER]) is memoryview
    assert got[VIEWER].readonly
    assert type(got[COPIER]) is (bytearray if kind is bytearray else bytes)
    assert got[VIEWER] == got[COPIER] == value


@pytest.mark.parametrize("arena_bytes", [0, 64 * 1024])
def test_without_room_views_are_of_the_frame(arena_bytes: int) -> None:
    way = Way(arena_bytes)
    got = way.travel(parcel_for(VIEWER, value=b"v" * BIG))
    assert (type(got[VIEWER]), bytes(got[VIEWER])) == (memoryview, b"v" * BIG)
    assert way.counts == {"buffers inline": 1}
    way.close()


def test_short_values_are_what_they_were(way: Way) -> None:
    assert way.travel(parcel_for(VIEWER, value=b"short")) == {VIEWER: b"short"}


def test_a_view_shows_the_same_whatever_is_sent_after_it(way: Way) -> None:
    held = []
    for number in range(100):  # far more than the arena holds
        held += way.travel(parcel_for(VIEWER, value=bytes([number]) * BIG)).values()
        way.sender.forget_sent()
    assert [bytes(view) == bytes([number]) * BIG for number, view in enumerate(held)] == [True] * 100
    assert way.counts["buffers inline"] > way.counts["buffers in arena"] > 0
    del held[:50]
    assert way.travel(parcel_for(VIEWER, value=b"again" * BIG))[VIEWER] == b"again" * BIG
    before = way.counts["buffers in arena"]
    way.travel(parcel_for(VIEWER, value=b"x" * BIG))
    assert way.counts["buffers in arena"] == before + 1


def test_a_value_for_several_workers_is_written_once(way: Way) -> None:
    value = b"v" * (3 * MIB)  # two have no room
    got = [way.travel(parcel_for(VIEWER, value=value), receiver)[VIEWER] for receiver in (1, 2, 3)]
    assert way.counts == {"buffers in arena": 3}
    del got[0]
    assert [bytes(view) == value for view in got] == [True, True]


def test_an_array_that_was_changed_between_two_frames_is_sent_as_it_is_by_then(way: Way) -> None:
    value = bytearray(BIG)
    first = way.travel(parcel_for(VIEWER, value=value))[VIEWER]
    value[0] = 1
    second = way.travel(parcel_for(VIEWER, value=value), receiver=2)[VIEWER]
    assert (first[0], second[0]) == (0, 1)


def test_a_value_for_several_tasks_of_a_worker_is_one(way: Way) -> None:
    got = way.travel(parcel_for(COPIER, COPIER + 1, value=b"v" * BIG))
    assert got[COPIER] is got[COPIER + 1]


def test_arrays_are_mapped_in_place_and_hold_their_block() -> None:
    numpy = pytest.importorskip("numpy")
    way = Way()
    got = way.travel(parcel_for(VIEWER, COPIER, value=numpy.arange(BIG, dtype=numpy.int64)))
    assert not got[VIEWER].flags.writeable
    assert got[COPIER].flags.writeable
    middle = got.pop(VIEWER)[BIG // 2 :][:4]
    for number in range(30):
        way.travel(parcel_for(VIEWER, value=numpy.full(BIG, number)))
        way.sender.forget_sent()
    assert middle.tolist() == list(range(BIG // 2, BIG // 2 + 4))
    way.close()


def test_a_table_of_columns_is_mapped_in_place() -> None:
    arrow = pytest.importorskip("pyarrow")
    way = Way()
    array = arrow.array(range(BIG))
    got = way.travel(parcel_for(VIEWER, value=array))[VIEWER]
    assert got.equals(array)
    way.close()


def test_what_is_kept_of_sent_objects_ends_with_the_turn(way: Way) -> None:
    class Array(bytearray):
        """Can be weakly referred to."""

    value = Array(BIG)
    gone = weakref.ref(value)
    way.sender.attach([pickle.PickleBuffer(value)])
    del value
    way.sender.forget_sent()
    gc.collect()
    assert gone() is None
