"""An arena that takes nothing, on purpose: big buffers travel in the frame."""

from __future__ import annotations

import errno
import os
import pickle
from collections import Counter

import pytest

from squall.ipc import arena, loans
from squall.ipc.payloads import Payloads


def test_big_buffers_travel_inline_until_there_is_room_again() -> None:
    counts: Counter[str] = Counter()
    sender, receiver = Payloads(8 << 20, counts), Payloads(0, Counter())
    try:
        for exhausted, way in ((False, "buffers in arena"), (True, "buffers inline"), (False, "buffers in arena")):
            sender.exhausted = exhausted
            before = counts[way]
            data = bytes(200_000)
            parts, release = sender.attach([pickle.PickleBuffer(data)])
            assert counts[way] == before + 1
            assert receiver.collect(0, parts) == ([data], [])
            assert (release is None) is exhausted
            if release is not None:
                release()
    finally:
        sender.close()
        receiver.close()


@pytest.mark.parametrize("refused", [arena.MEMFD_NAME, loans.MEMFD_NAME])
def test_without_memory_for_an_arena_or_loans_buffers_arrive_all_the_same(
    refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, is_refused = os.memfd_create, True

    def memfd_create(name: str, flags: int) -> int:
        if is_refused and name == refused:
            raise OSError(errno.EMFILE, "Too many open files")
        return create(name, flags)

    monkeypatch.setattr(os, "memfd_create", memfd_create)
    counts: Counter[str] = Counter()
    sender, receiver = Payloads(8 << 20, counts), Payloads(0, Counter())

    def passes(number: int) -> None:
        data, other = bytes([number]) * 200_000, bytes([number]) * 100_000
        parts, release = sender.attach([pickle.PickleBuffer(data)], [pickle.PickleBuffer(other)], receiver=1)
        buffers, views = receiver.collect(0, parts)
        assert (buffers, [bytes(view) for view in views]) == ([data], [other])
        if release is not None:
            release()

    try:
        passes(1)
        is_refused = False
        for number in range(2, 200):
            passes(number)
        assert counts["buffers in arena"] >= 198
    finally:
        sender.close()
        receiver.close()
