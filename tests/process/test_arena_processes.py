"""The arena between real processes: death of the creator, a machine without memory."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from squall.engine.errors import ClusterError
from squall.ipc.arena import MEMFD_NAME, Arena
from squall.ipc.payloads import ArenaReader

PAYLOAD_BYTES = 1 << 20


def resources() -> tuple[list[str], int]:
    maps = Path("/proc/self/maps").read_text()
    return sorted(os.listdir("/proc/self/fd")), maps.count(MEMFD_NAME)


@pytest.fixture
def reader() -> Iterator[ArenaReader]:
    before = resources()
    reader = ArenaReader()
    yield reader
    reader.close()
    assert resources() == before


def put_two(pipe: Connection) -> None:
    arena = Arena.create()
    for letter in (b"a", b"b"):
        pipe.send(arena.put(letter * PAYLOAD_BYTES))
    signal.pause()


def test_reader_reads_on_after_the_creator_was_killed(reader: ArenaReader) -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=put_two, args=(theirs,))
    process.start()
    first, second = ours.recv(), ours.recv()
    assert first.pid == process.pid
    assert reader.copy(first) == b"a" * PAYLOAD_BYTES
    process.kill()
    process.join()
    process.close()
    # The second block was never read before: that pages of it were touched is not what keeps it.
    assert reader.copy(second) == b"b" * PAYLOAD_BYTES
    reader.detach(first.pid)
    with pytest.raises(ClusterError, match=f"cannot attach the arena of process {first.pid}, .*: No such file"):
        reader.copy(first)
    ours.close()
    theirs.close()


def test_machine_without_memory_makes_put_refuse_instead_of_crash(
    reader: ArenaReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    arena = Arena.create()
    first = arena.put(b"a" * PAYLOAD_BYTES)
    assert first is not None
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    refs = [arena.put(b"b" * PAYLOAD_BYTES) for _ in range(5000)]
    arena.free(first)
    refs.append(arena.put(b"c" * PAYLOAD_BYTES))
    assert [reader.copy(ref)[:1] for ref in refs if ref is not None] == [b"b", b"c"]
    with pytest.raises(ClusterError, match=r"cannot create an arena of 67108864 bytes: No space left on device"):
        Arena.create()
    arena.close()
