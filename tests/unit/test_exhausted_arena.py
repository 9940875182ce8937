"""An arena that takes nothing, on purpose: big buffers travel in the frame."""

from __future__ import annotations

import pickle
from collections import Counter

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
