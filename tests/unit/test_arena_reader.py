"""The reader of an arena, within one process: stale and wrong descriptors, files that are no arena, views, limits."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import pickle
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from squall.engine.errors import ClusterError, ProtocolError, UsageError
from squall.ipc.arena import GRAIN_BYTES, MEMFD_NAME, MIN_SIZE_BYTES, Arena, BlockRef, table_bytes
from squall.ipc.arena_reader import MAX_ARENAS, ArenaReader

SIZE_BYTES = 1 << 20


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


# Descriptors


def test_descriptor_survives_encoding_as_a_plain_row(arena: Arena, reader: ArenaReader) -> None:
    ref = stored(arena, b"payload")
    assert reader.copy(BlockRef(*pickle.loads(pickle.dumps(tuple(ref))))) == b"payload"
    assert max(ref) < 1 << 64


def test_stale_descriptor_is_refused_whatever_took_its_place(arena: Arena, reader: ArenaReader) -> None:
    stale = [stored(arena, b"old" * 5000) for _ in range(4)]
    for ref in stale:
        arena.free(ref)
    # Payloads that look like valid table words cannot revive a descriptor: the table is outside the blocks.
    stored(arena, array.array("Q", range(16)).tobytes() * 512)
    for ref in stale:
        with pytest.raises(ProtocolError, match="freed or reused before it was read"):
            reader.copy(ref)
        with pytest.raises(ProtocolError, match="freed or reused before it was read"), reader.view(ref):
            pytest.fail("a stale block was shown")


@pytest.mark.parametrize(
    "change",
    [
        lambda ref: {"offset": 0},
        lambda ref: {"offset": -GRAIN_BYTES},
        lambda ref: {"offset": table_bytes(SIZE_BYTES) - GRAIN_BYTES},
        lambda ref: {"offset": ref.offset + 64},
        lambda ref: {"offset": ref.offset + GRAIN_BYTES},
        lambda ref: {"offset": SIZE_BYTES - GRAIN_BYTES},
        lambda ref: {"offset": SIZE_BYTES, "length": 0},
        lambda ref: {"offset": 1 << 63},
        # Counted from the end of the table, this would be the word of the block itself.
        lambda ref: {"offset": ref.offset - table_bytes(SIZE_BYTES) // 16 * GRAIN_BYTES},
        lambda ref: {"length": SIZE_BYTES},
        lambda ref: {"length": ref.length + 1},
        lambda ref: {"length": ref.length - 1},
        lambda ref: {"length": -1},
        lambda ref: {"generation": ref.generation + 1},
        lambda ref: {"generation": -1},
        lambda ref: {"offset": ref.offset + GRAIN_BYTES, "length": 0, "generation": 0},
        lambda ref: {"pid": ref.pid + 1},
        lambda ref: {"nonce": ref.nonce ^ 1},
    ],
)
def test_wrong_descriptor_is_refused(
    arena: Arena, reader: ArenaReader, change: Callable[[BlockRef], dict[str, int]]
) -> None:
    ref = stored(arena, b"payload")
    assert reader.copy(ref) == b"payload"
    wrong = ref._replace(**change(ref))
    with pytest.raises(ProtocolError):
        reader.copy(wrong)
    with pytest.raises(ProtocolError), reader.view(wrong):
        pytest.fail("a wrong block was shown")
    assert reader.copy(ref) == b"payload"


def test_descriptor_just_past_an_arena_whose_table_has_no_slack_is_refused(reader: ArenaReader) -> None:
    size = 252 * GRAIN_BYTES
    assert table_bytes(size) == (8 + 2 * 252) * 8
    arena = Arena.create(size)
    ref = stored(arena, b"payload")
    with pytest.raises(ProtocolError, match=f"does not fit an arena of {size} bytes"):
        reader.copy(ref._replace(offset=size, length=0))
    arena.close()


def test_descriptor_number_that_is_something_else_by_now_is_refused(reader: ArenaReader) -> None:
    read_end, write_end = os.pipe()  # opening a pipe for reading would wait for ever
    with pytest.raises(ProtocolError, match=rf"descriptor {read_end} of process \d+ is pipe:.*, not an arena"):
        reader.copy(BlockRef(os.getpid(), read_end, 1, GRAIN_BYTES, 1, 1, -1))
    os.close(read_end)
    os.close(write_end)
    with pytest.raises(ClusterError, match="No such file or directory"):
        reader.copy(BlockRef(os.getpid(), read_end, 1, GRAIN_BYTES, 1, 1, -1))


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
        reader.copy(BlockRef(os.getpid(), fd, 1, GRAIN_BYTES, 1, 1, -1))
    os.close(fd)


def test_checksum_is_an_option_that_finds_a_changed_payload() -> None:
    arena, reader = Arena.create(SIZE_BYTES, checksum=True), ArenaReader()
    ref = stored(arena, b"payload")
    assert reader.copy(ref) == b"payload"
    with reader.view(ref) as view:
        assert view.tobytes() == b"payload"
    wrong = ref._replace(crc32=ref.crc32 ^ 1)
    with pytest.raises(ProtocolError, match=r"7 bytes of process \d+ has a wrong checksum"):
        reader.copy(wrong)
    with pytest.raises(ProtocolError, match="wrong checksum"), reader.view(wrong):
        pytest.fail("a changed payload was shown")
    reader.close()
    arena.close()


# Views


def test_block_reused_during_a_view_is_reported_at_its_end(arena: Arena, reader: ArenaReader) -> None:
    ref = stored(arena, b"payload")
    with pytest.raises(ProtocolError, match="freed or reused while it was viewed"), reader.view(ref):
        arena.free(ref)


def test_view_cannot_be_kept(arena: Arena, reader: ArenaReader) -> None:
    ref = stored(arena, b"payload")
    with reader.view(ref) as view:
        pass
    with pytest.raises(ValueError, match="released memoryview"):
        view.tobytes()
    with pytest.raises(UsageError, match="is used after its with-block"), reader.view(ref) as view:
        kept = pickle.PickleBuffer(view)
    kept.release()


def test_exception_inside_a_view_passes_through(arena: Arena, reader: ArenaReader) -> None:
    ref = stored(arena, b"payload")
    with pytest.raises(ZeroDivisionError), reader.view(ref) as view:  # noqa: PT012, the block is what is tested
        kept = pickle.PickleBuffer(view)
        arena.free(ref)
        raise ZeroDivisionError
    kept.release()


def test_view_outlives_detach_and_the_arena(reader: ArenaReader) -> None:
    arena = Arena.create(SIZE_BYTES)
    ref = stored(arena, b"payload")
    with reader.view(ref) as view:
        arena.close()
        reader.detach(os.getpid())
        assert view.tobytes() == b"payload"
        assert arena_mappings() == 1
    assert arena_mappings() == 0


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


def test_no_descriptor_left_is_a_cluster_error(arena: Arena, reader: ArenaReader) -> None:
    ref = stored(arena, b"payload")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_unused = os.dup(ref.fd)
    os.close(lowest_unused)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_unused, limits[1]))
    try:
        with pytest.raises(ClusterError, match=f"cannot create an arena .*: {os.strerror(errno.EMFILE)}"):
            Arena.create(SIZE_BYTES)
        with pytest.raises(ClusterError, match=f"cannot attach the arena .*: {os.strerror(errno.EMFILE)}"):
            reader.copy(ref)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert reader.copy(ref) == b"payload"
