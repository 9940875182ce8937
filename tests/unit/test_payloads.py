"""Big buffers: by the arena where it has room, else in the frame, and always as they were when they were sent."""

from __future__ import annotations

import errno
import os
import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from squall.engine.errors import ProtocolError
from squall.ipc.arena import Arena
from squall.ipc.arena_reader import ArenaReader
from squall.ipc.payloads import Payloads


def test_big_buffers_travel_inline_until_there_is_room_again() -> None:
    counts: Counter[str] = Counter()
    sender, receiver = Payloads(1 << 20, counts), Payloads(0, Counter())
    releases = []

    def way_of_one() -> str:
        before, data = counts.copy(), bytes(200_000)
        parts, release = sender.attach([pickle.PickleBuffer(data)])
        assert receiver.collect(0, parts) == [data]
        if release is not None:
            releases.append(release)
        [way] = counts - before
        return way

    try:
        ways = [way_of_one() for _ in range(6)]
        assert (ways[0], ways[-1]) == ("buffers in arena", "buffers inline")
        releases.pop()()
        assert way_of_one() == "buffers in arena"
    finally:
        sender.close()
        receiver.close()


def test_without_memory_for_an_arena_buffers_arrive_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    create, is_refused = os.memfd_create, True

    def memfd_create(name: str, flags: int) -> int:
        if is_refused:
            raise OSError(errno.EMFILE, "Too many open files")
        return create(name, flags)

    monkeypatch.setattr(os, "memfd_create", memfd_create)
    counts: Counter[str] = Counter()
    sender, receiver = Payloads(8 << 20, counts), Payloads(0, Counter())

    def passes(number: int) -> None:
        data = bytes([number]) * 200_000
        parts, release = sender.attach([pickle.PickleBuffer(data)])
        assert receiver.collect(0, parts) == [data]
        if release is not None:
            release()

    try:
        passes(1)
        is_refused = False
        for number in range(2, 200):
            passes(number)
        assert counts["buffers in arena"] >= 90
    finally:
        sender.close()
        receiver.close()


class Way:
    """Payloads of a sender and of its receivers."""

    def __init__(self, arena_bytes: int) -> None:
        self.counts: Counter[str] = Counter()
        self.sender, self.receiver = Payloads(arena_bytes, self.counts), Payloads(0, Counter())

    def travel(self, *values: Any) -> list[Any]:
        """What a receiver gets of a frame with these values."""
        parts, release = self.sender.attach([pickle.PickleBuffer(value) for value in values])
        got = self.receiver.collect(0, [bytes(part) for part in parts])
        if release is not None:
            release()
        return got

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


def test_a_damaged_block_is_an_error() -> None:
    arena, reader = Arena.create(), ArenaReader()
    ref = arena.put(bytes(10_000))
    assert ref is not None
    with pytest.raises(ProtocolError, match="is damaged: its 10000 bytes are not those that were put in"):
        reader.copy(ref._replace(digest=ref.digest ^ 1))
    reader.close()
    arena.close()
