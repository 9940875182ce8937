"""The arena within one process: payloads in and out, allocation against a model, frees, seals, clean-up."""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.engine.errors import ProtocolError, UsageError
from squall.ipc.arena import GRAIN_BYTES, MEMFD_NAME, MIN_SIZE_BYTES, Arena, BlockRef, table_bytes
from squall.ipc.arena_reader import ArenaReader

SIZE_BYTES = 1 << 20
CAPACITY_BYTES = SIZE_BYTES - table_bytes(SIZE_BYTES)


def open_files() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def arena_mappings() -> int:
    return Path("/proc/self/maps").read_text().count(MEMFD_NAME)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = open_files()
    yield
    assert open_files() == before
    assert arena_mappings() == 0


@pytest.fixture
def arena(nothing_left: None) -> Iterator[Arena]:
    arena = Arena.create(SIZE_BYTES)
    yield arena
    arena.close()


@pytest.fixture
def reader(nothing_left: None) -> Iterator[ArenaReader]:
    reader = ArenaReader()
    yield reader
    reader.close()


def stored(arena: Arena, payload: bytes | bytearray | memoryview, owner: str = "reader") -> BlockRef:
    ref = arena.put(payload, owner)
    assert ref is not None
    return ref


# Putting and copying


@pytest.mark.parametrize("length", [0, 1, GRAIN_BYTES - 1, GRAIN_BYTES, GRAIN_BYTES + 1, 65536, CAPACITY_BYTES])
def test_payload_comes_back_whole(arena: Arena, reader: ArenaReader, length: int) -> None:
    payload = os.urandom(length)
    ref = stored(arena, payload)
    assert reader.copy(ref) == payload
    with reader.view(ref) as view:
        assert view.readonly
        assert view == payload


@pytest.mark.parametrize(
    "buffer",
    [bytearray(b"abcd"), memoryview(b"xabcdx")[1:5], memoryview(array.array("I", b"abcd"))],
    ids=["bytearray", "slice", "integers"],
)
def test_any_contiguous_buffer_is_a_payload(arena: Arena, reader: ArenaReader, buffer: bytearray | memoryview) -> None:
    assert reader.copy(stored(arena, buffer)) == b"abcd"


def test_payload_with_gaps_is_refused(arena: Arena) -> None:
    with pytest.raises(UsageError, match=r"shape \(2,\) is not contiguous"):
        arena.put(memoryview(b"abcd")[::2], "reader")
    assert arena.used_bytes == 0


@pytest.mark.parametrize("size", [0, MIN_SIZE_BYTES - 1, 8 << 30])
def test_impossible_sizes_are_refused(size: int) -> None:
    with pytest.raises(UsageError, match=f"arena size {size} bytes: allowed are 65536 to 4294967296"):
        Arena.create(size)


def test_odd_sizes_are_rounded_up_to_whole_grains(reader: ArenaReader) -> None:
    arena = Arena.create(SIZE_BYTES - GRAIN_BYTES + 1)
    assert reader.copy(stored(arena, bytes(CAPACITY_BYTES))) == bytes(CAPACITY_BYTES)
    arena.close()


# Room


def test_memory_is_reserved_on_need_and_in_steps() -> None:
    arena = Arena.create(16 << 20)
    ref = stored(arena, b"x")
    reserved = table_bytes(16 << 20) + (2 << 20)
    assert arena.reserved_bytes == reserved
    assert os.stat(f"/proc/self/fd/{ref.fd}").st_blocks * 512 == reserved
    stored(arena, bytes(9 << 20))
    assert arena.reserved_bytes == table_bytes(16 << 20) + GRAIN_BYTES + (9 << 20)
    assert arena.put(bytes(8 << 20), "reader") is None
    arena.close()


def test_full_arena_refuses_until_something_is_freed(arena: Arena, reader: ArenaReader) -> None:
    refs = [stored(arena, bytes([i]) * 65536) for i in range(CAPACITY_BYTES // 65536)]
    assert arena.put(bytes(65536), "reader") is None
    assert arena.refused_puts == 1
    arena.free(refs[3])
    again = stored(arena, b"n" * 65536)
    assert again.offset == refs[3].offset
    assert reader.copy(again) == b"n" * 65536
    assert reader.copy(refs[4]) == b"\4" * 65536


def test_payload_larger_than_the_arena_is_refused(arena: Arena) -> None:
    assert arena.put(bytes(CAPACITY_BYTES + 1), "reader") is None
    assert arena.put(bytes(2 * SIZE_BYTES), "reader") is None
    assert arena.used_bytes == 0


@pytest.mark.parametrize("seed", range(5))
def test_freed_neighbours_become_one_block_again(arena: Arena, seed: int) -> None:
    print("seed", seed)
    refs = [stored(arena, bytes(GRAIN_BYTES)) for _ in range(CAPACITY_BYTES // GRAIN_BYTES)]
    assert arena.used_bytes == CAPACITY_BYTES
    random.Random(seed).shuffle(refs)
    for ref in refs:
        arena.free(ref)
    assert arena.used_bytes == 0
    assert stored(arena, bytes(CAPACITY_BYTES)).offset == table_bytes(SIZE_BYTES)


def test_half_free_in_single_grains_holds_nothing_larger(arena: Arena) -> None:
    refs = [stored(arena, bytes(GRAIN_BYTES)) for _ in range(CAPACITY_BYTES // GRAIN_BYTES)]
    for ref in refs[::2]:
        arena.free(ref)
    assert arena.put(bytes(GRAIN_BYTES + 1), "reader") is None
    arena.free(refs[1])
    assert stored(arena, bytes(3 * GRAIN_BYTES)).offset == refs[0].offset


def test_room_of_a_dead_reader_comes_back(arena: Arena, reader: ArenaReader) -> None:
    dead = [stored(arena, b"d", owner="dead") for _ in range(3)]
    alive = stored(arena, b"a", owner="alive")
    assert arena.free_owner("dead") == 3
    assert arena.free_owner("dead") == 0
    assert arena.used_bytes == GRAIN_BYTES
    assert reader.copy(alive) == b"a"
    for ref in dead:
        with pytest.raises(ProtocolError, match="freed or reused before it was read"):
            reader.copy(ref)
        with pytest.raises(ProtocolError, match="is not live"):
            arena.free(ref)


class Model:
    """What the arena must hold: a map of its grains and the payload of each live block."""

    def __init__(self) -> None:
        self.grains: list[BlockRef | None] = [None] * (CAPACITY_BYTES // GRAIN_BYTES)
        self.payloads: dict[BlockRef, bytes] = {}
        self.owners: dict[BlockRef, int] = {}
        self.stale: list[BlockRef] = []

    def span(self, ref: BlockRef) -> range:
        first = (ref.offset - table_bytes(SIZE_BYTES)) // GRAIN_BYTES
        return range(first, first + max(1, -(-ref.length // GRAIN_BYTES)))

    def fits(self, length: int) -> bool:
        wanted = max(1, -(-length // GRAIN_BYTES))
        return "." * wanted in "".join("." if ref is None else "#" for ref in self.grains)

    def add(self, ref: BlockRef, payload: bytes, owner: int) -> None:
        for grain in self.span(ref):
            assert self.grains[grain] is None
            self.grains[grain] = ref
        self.payloads[ref] = payload
        self.owners[ref] = owner

    def remove(self, ref: BlockRef) -> None:
        for grain in self.span(ref):
            self.grains[grain] = None
        del self.payloads[ref], self.owners[ref]
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
            owner = dice.randrange(5)
            ref = arena.put(payload, owner)
            assert (ref is not None) == model.fits(len(payload))
            if ref is None:
                refused += 1
            else:
                model.add(ref, payload, owner)
        elif model.payloads:
            ref = dice.choice(list(model.payloads))
            arena.free(ref)
            model.remove(ref)
        if step % 100 == 99:
            owner = dice.randrange(5)
            gone = [ref for ref, of in model.owners.items() if of == owner]
            assert arena.free_owner(owner) == len(gone)
            for ref in gone:
                model.remove(ref)
        check_against(model, arena, reader, dice)
    assert refused > 50


def check_against(model: Model, arena: Arena, reader: ArenaReader, dice: random.Random) -> None:
    assert arena.used_bytes == GRAIN_BYTES * sum(ref is not None for ref in model.grains)
    for ref in dice.sample(list(model.payloads), min(3, len(model.payloads))):
        assert reader.copy(ref) == model.payloads[ref]
    for ref in model.stale[-3:]:
        with pytest.raises(ProtocolError):
            reader.copy(ref)
        with pytest.raises(ProtocolError):
            arena.free(ref)


# Freeing what is not there


def test_double_free_is_an_error_and_harmless(arena: Arena, reader: ArenaReader) -> None:
    first = stored(arena, b"first")
    arena.free(first)
    with pytest.raises(ProtocolError, match=rf"arena block at {first.offset}, generation 1 is not live"):
        arena.free(first)
    second = stored(arena, b"second")
    assert second.offset == first.offset
    with pytest.raises(ProtocolError, match="is not live"):
        arena.free(first)
    assert reader.copy(second) == b"second"


def test_block_of_another_arena_is_not_freed(arena: Arena) -> None:
    other = Arena.create(SIZE_BYTES)
    stored(arena, b"mine")
    theirs = stored(other, b"theirs")
    with pytest.raises(ProtocolError, match="another arena"):
        arena.free(theirs)
    other.close()


# The file


def test_arena_can_be_neither_resized_nor_written_by_others(arena: Arena) -> None:
    ref = stored(arena, b"payload")
    fd = os.open(f"/proc/self/fd/{ref.fd}", os.O_RDWR | os.O_CLOEXEC)
    for size in (0, GRAIN_BYTES, 2 * SIZE_BYTES):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", ref.offset)
    with pytest.raises(PermissionError):
        mmap.mmap(fd, SIZE_BYTES)
    with pytest.raises(PermissionError):
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    os.close(fd)


def test_closing_is_final_and_may_be_repeated(arena: Arena, reader: ArenaReader) -> None:
    ref = stored(arena, b"payload")
    assert reader.copy(ref) == b"payload"
    arena.close()
    arena.close()
    assert arena.used_bytes == arena.reserved_bytes == 0
    with pytest.raises(UsageError, match="arena that is closed"):
        arena.put(b"x", "reader")
    assert reader.copy(ref) == b"payload"
    reader.close()
    reader.close()
    with pytest.raises(UsageError, match="reader that is closed"):
        reader.copy(ref)
