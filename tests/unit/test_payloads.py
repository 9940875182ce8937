"""Big buffers: by the arena where it has room, else in the frame, and always as they were when they were sent."""

from __future__ import annotations

import errno
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from squall.ipc.payloads import Payloads


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
