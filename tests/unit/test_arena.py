"""The arena within one process: payloads in and out, allocation against a model, frees, seals, clean-up; and
its reader: stale and wrong descriptors, files that are no arena, limits."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from squall import ClusterError, ProtocolError
from squall.ipc.arena import GRAIN_BYTES, MEMFD_NAME, MIN_SIZE_BYTES, Arena, BlockRef, table_bytes
from squall.ipc.payloads import MAX_ARENAS, ArenaReader, Payloads

SIZE_BYTES = 1 << 20
CAPACITY_BYTES = SIZE_BYTES - table_bytes(SIZE_BYTES)


@pytest.fixture(autouse=True)
def nothing_mapped() -> Iterator[None]:
    yield
    assert MEMFD_NAME not in Path("/proc/self/maps").read_text()


@pytest.fixture
def arena(nothing_mapped: None) -> Iterator[Arena]:
    with closing(Arena.create(SIZE_BYTES)) as arena:
        yield arena


@pytest.fixture
def reader(nothing_mapped: None) -> Iterator[ArenaReader]:
    with closing(ArenaReader()) as reader:
        yield reader


def stored(arena: Arena, payload: bytes | bytearray | memoryview) -> BlockRef:
    ref = arena.put(payload)
    assert ref is not None
    return ref


# Room


class Model:
    """What the arena must hold: a map of its grains and the payload of each live block."""

    def __init__(self) -> None:
        self.grains: list[BlockRef | None] = [None] * (CAPACITY_BYTES // GRAIN_BYTES)
        self.payloads: dict[BlockRef, bytes] = {}
        self.stale: list[BlockRef] = []

    def span(self, ref: BlockRef) -> range:
        first = (ref.offset - table_bytes(SIZE_BYTES)) // GRAIN_BYTES
        return range(first, first + max(1, -(-ref.length // GRAIN_BYTES)))

    def fits(self, length: int) -> bool:
        wanted = max(1, -(-length // GRAIN_BYTES))
        return "." * wanted in "".join("." if ref is None else "#" for ref in self.grains)

    def add(self, ref: BlockRef, payload: bytes) -> None:
        for grain in self.span(ref):
            assert self.grains[grain] is None
            self.grains[grain] = ref
        self.payloads[ref] = payload

    def remove(self, ref: BlockRef) -> None:
        for grain in self.span(ref):
            self.grains[grain] = None
        del self.payloads[ref]
        self.stale = [*self.stale[-20:], ref]


@pytest.mark.parametrize("seed", range(6))
def test_random_use_agrees_with_a_model(arena: Arena, reader: ArenaReader, seed: int) -> None:
    print("seed", seed)
    dice = random.Random(seed)
    model = Model()
    refused = 0
    for step in range(3000):
        if dice.random() < (0.6 if step % 400 < 200 else 0.4):
            payload = dice.randbytes(dice.choice((0, 100, 5000, dice.randrange(70000), dice.randrange(300000))))
            ref = arena.put(payload)
            assert (ref is not None) == model.fits(len(payload))
            if ref is None:
                refused += 1
            else:
                model.add(ref, payload)
        elif model.payloads:
            ref = dice.choice(list(model.payloads))
            arena.free(ref)
            model.remove(ref)
        check_against(model, arena, reader, dice)
    assert refused > 50


def check_against(model: Model, arena: Arena, reader: ArenaReader, dice: random.Random) -> None:
    for ref in dice.sample(list(model.payloads), min(3, len(model.payloads))):
        assert reader.copy(ref) == model.payloads[ref]
    for ref in model.stale[-3:]:
        with pytest.raises(ProtocolError):
            reader.copy(ref)
        with pytest.raises(ProtocolError):
            arena.free(ref)


# The file


def test_arena_can_be_neither_resized_nor_written_by_others(arena: Arena) -> None:
    ref = stored(arena, b"payload")
    fd = os.open(f"/proc/self/fd/{ref.fd}", os.O_RDWR | os.O_CLOEXEC)
    for attack, *given in (
        (os.ftruncate, 0), (os.ftruncate, GRAIN_BYTES), (os.ftruncate, 2 * SIZE_BYTES), (os.pwrite, b"x", ref.offset),
        (mmap.mmap, SIZE_BYTES), (fcntl.fcntl, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
    ):
        with pytest.raises(PermissionError):
            attack(fd, *given)
    os.close(fd)


# Descriptors


FIRST = table_bytes(SIZE_BYTES)
"""Where the first block is."""
WRONG: list[dict[str, int]] = [
    # The last, counted from the end of the table, would be the word of the block itself.
    *({"offset": offset} for offset in (
        0, -GRAIN_BYTES, FIRST - GRAIN_BYTES, FIRST + 64, FIRST + GRAIN_BYTES, SIZE_BYTES - GRAIN_BYTES, 1 << 63,
        FIRST - FIRST // 16 * GRAIN_BYTES,
    )),
    *({"length": length} for length in (SIZE_BYTES, 8, 6, -1)),
    {"offset": SIZE_BYTES, "length": 0},
    {"offset": FIRST + GRAIN_BYTES, "length": 0, "generation": 0},
    *({"generation": generation} for generation in (-1, 99)),
    {"pid": os.getpid() + 1}, {"nonce": 0}, {"digest": 0},
]


@pytest.mark.parametrize("change", WRONG)
def test_wrong_descriptor_is_refused(arena: Arena, reader: ArenaReader, change: dict[str, int]) -> None:
    ref = stored(arena, b"payload")
    assert (reader.copy(ref), ref.offset) == (b"payload", FIRST)
    with pytest.raises(ProtocolError):
        reader.copy(ref._replace(**change))
    assert reader.copy(ref) == b"payload"


def test_descriptor_number_that_is_something_else_by_now_is_refused(reader: ArenaReader) -> None:
    read_end, write_end = os.pipe()  # opening a pipe for reading would wait for ever
    with pytest.raises(ProtocolError, match=rf"descriptor {read_end} of process \d+ is pipe:.*, not an arena"):
        reader.copy(BlockRef(os.getpid(), read_end, 1, GRAIN_BYTES, 1, 1, 0))
    os.close(read_end)
    os.close(write_end)
    with pytest.raises(ClusterError, match="No such file or directory"):
        reader.copy(BlockRef(os.getpid(), read_end, 1, GRAIN_BYTES, 1, 1, 0))


@pytest.mark.parametrize(
    ("seals", "size", "reason"),
    [
        (0, SIZE_BYTES, "not sealed"),
        (fcntl.F_SEAL_SHRINK, 0, "wrong size"),
        (fcntl.F_SEAL_SHRINK, SIZE_BYTES, "header"),
    ],
)
def test_memfd_that_is_no_proper_arena_is_refused(reader: ArenaReader, seals: int, size: int, reason: str) -> None:
    fd = os.memfd_create(MEMFD_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    with pytest.raises(ProtocolError, match=reason):
        reader.copy(BlockRef(os.getpid(), fd, 1, GRAIN_BYTES, 1, 1, 0))
    os.close(fd)


def test_a_block_that_is_reused_while_it_is_copied_is_refused(arena: Arena, reader: ArenaReader) -> None:
    ref = stored(arena, bytes(1000))

    class Slow(bytes):
        def __new__(cls, block: memoryview) -> Slow:
            first = bytes(block[:500])
            arena.free(ref)
            stored(arena, b"x" * 1000)
            assert bytes(block[500:]) != first, "torn: what the error is good for"
            return super().__new__(cls, first)

    with pytest.raises(ProtocolError, match="while it was read"):
        reader.copy(ref, Slow)
    with pytest.raises(ProtocolError, match="before it was read"):
        reader.copy(ref)


# Limits


def test_reader_holds_a_bounded_number_of_arenas(reader: ArenaReader) -> None:
    for _ in range(MAX_ARENAS):
        arena = Arena.create(MIN_SIZE_BYTES)
        assert reader.copy(stored(arena, b"x")) == b"x"
        arena.close()
    arena = Arena.create(MIN_SIZE_BYTES)
    ref = stored(arena, b"y")
    with pytest.raises(ClusterError, match=f"{MAX_ARENAS} arenas are attached"):
        reader.copy(ref)
    reader.detach(os.getpid())
    assert reader.copy(ref) == b"y"
    arena.close()


# ---- big buffers: by the arena where it has room, else in the frame, and always as they were when they were sent ----


class Way:
    """Payloads of a sender and of its receivers."""

    def __init__(self, arena_bytes: int) -> None:
        self.counts: Counter[str] = Counter()
        self.sender, self.receiver = Payloads(arena_bytes, self.counts), Payloads(0, Counter())

    def travel(self, *values: Any) -> list[Any]:
        """What a receiver gets of a frame with these values."""
        got, release = self.held(*values)
        release()
        return got

    def held(self, *values: Any) -> tuple[list[Any], Callable[[], None]]:
        """The same, and what says that the receiver is done with it."""
        parts, release = self.sender.attach([pickle.PickleBuffer(value) for value in values])
        return self.receiver.collect(0, [bytes(part) for part in parts]), release or (lambda: None)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


@pytest.fixture
def way() -> Iterator[Way]:
    way = Way(4 << 20)
    yield way
    way.close()


def test_a_value_for_several_workers_is_written_once(way: Way) -> None:
    value = b"v" * (3 << 20)  # two have no room
    assert [way.travel(value) for _ in range(3)] == [[value]] * 3
    assert way.counts == {"buffers in arena": 3}
    way.sender.forget_sent()
    assert way.travel(b"w" * (3 << 20)) == [b"w" * (3 << 20)]
    assert way.counts == {"buffers in arena": 4}, "the first was not freed by its last reader"


def test_an_array_that_was_changed_between_two_frames_is_sent_as_it_is_by_then(way: Way) -> None:
    value = bytearray(100_000)
    [first] = way.travel(value)
    value[0] = 1
    [second] = way.travel(value)
    assert (first[0], second[0]) == (0, 1)
    assert type(first) is type(second) is bytearray


def test_big_buffers_travel_inline_until_there_is_room_again(way: Way) -> None:
    releases = []
    for number in range(6):
        data = bytes([number]) * (1 << 20)
        got, release = way.held(data)
        assert got == [data]
        releases.append(release)
    found = way.counts["buffers in arena"]
    assert 0 < found < 6
    assert way.counts["buffers inline"] == 6 - found
    releases[0]()
    way.travel(bytes(1 << 20))
    assert way.counts["buffers in arena"] == found + 1


def test_what_the_kernel_hides_from_others_is_sent_inline_and_told_once(
    way: Way, capsys: pytest.CaptureFixture[str]
) -> None:
    way.travel(bytes(200_000))
    set_dumpable = partial(ctypes.CDLL(None).prctl, 4)
    set_dumpable(0)
    try:
        assert [way.travel(bytes(200_000)) for _ in range(2)] == [[bytes(200_000)]] * 2
    finally:
        set_dumpable(1)
    assert way.counts == {"buffers in arena": 1, "buffers inline": 2}
    assert capsys.readouterr().err.count("go through sockets") == 1


def test_without_memory_for_an_arena_buffers_arrive_all_the_same(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, flags: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as refused:
        refused.setattr(os, "memfd_create", refuse)
        assert way.travel(bytes(200_000)) == [bytes(200_000)]
    for number in range(200):
        data = bytes([number]) * 200_000
        assert way.travel(data) == [data]
    assert way.counts["buffers in arena"] >= 90
