"""The arena between real processes: death of the creator, a machine without memory."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

import pytest

from squall.engine.errors import ClusterError
from squall.ipc.arena import MEMFD_NAME, Arena, BlockRef
from squall.ipc.arena_reader import ArenaReader

DEADLINE_SECS = 100.0
PAYLOAD_BYTES = 1 << 20
T = TypeVar("T")
Body = Callable[[Connection], None]


def resources() -> tuple[list[str], int]:
    maps = Path("/proc/self/maps").read_text()
    return sorted(os.listdir("/proc/self/fd")), maps.count(MEMFD_NAME)


@pytest.fixture
def start() -> Iterator[Callable[[Body], tuple[BaseProcess, Connection]]]:
    """Starts a process with a pipe to it; afterwards checks that it left nothing in this process."""
    before = resources()
    started: list[tuple[BaseProcess, Connection]] = []

    def start(body: Body) -> tuple[BaseProcess, Connection]:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=body, args=(theirs,))
        process.start()
        theirs.close()
        started.append((process, ours))
        return process, ours

    yield start
    for process, pipe in started:
        process.kill()
        process.join()
        process.close()
        pipe.close()
    assert resources() == before


@pytest.fixture
def reader(start: object) -> Iterator[ArenaReader]:
    reader = ArenaReader()
    yield reader
    reader.close()


def receive(pipe: Connection, kind: type[T]) -> T:
    assert pipe.poll(DEADLINE_SECS), f"no message within {DEADLINE_SECS} s"
    message = pipe.recv()
    assert isinstance(message, kind)
    return message


def put_one_and_wait(pipe: Connection) -> None:
    arena = Arena.create()
    pipe.send(arena.put(b"a" * PAYLOAD_BYTES))
    pipe.send(arena.put(b"b" * PAYLOAD_BYTES))
    pipe.recv()
    arena.close()


def test_reader_reads_on_after_the_creator_was_killed(
    start: Callable[[Body], tuple[BaseProcess, Connection]], reader: ArenaReader
) -> None:
    process, pipe = start(put_one_and_wait)
    first, second = receive(pipe, BlockRef), receive(pipe, BlockRef)
    assert first.pid == process.pid
    assert reader.copy(first) == b"a" * PAYLOAD_BYTES
    process.kill()
    process.join(DEADLINE_SECS)
    assert process.exitcode == -signal.SIGKILL
    # The second block was never read before: that pages of it were touched is not what keeps it.
    assert reader.copy(second) == b"b" * PAYLOAD_BYTES
    reader.detach(first.pid)
    with pytest.raises(ClusterError, match=f"cannot attach the arena of process {first.pid}, .*: No such file"):
        reader.copy(first)


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
