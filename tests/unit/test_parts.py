"""Long parts of frames are cut into pieces and joined to what they were."""

from __future__ import annotations

import random

import pytest

from squall.engine.errors import ProtocolError
from squall.ipc import parts
from squall.ipc.parts import cut, join

MOST = 8


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", MOST)


@pytest.mark.parametrize("size", range(4 * MOST + 2))
@pytest.mark.parametrize("wrap", [bytes, memoryview])
def test_a_part_of_any_size_comes_back(size: int, wrap: type) -> None:
    part = bytes(range(size))
    pieces = [bytes(piece) for piece in cut([b"before", wrap(part), b"", b"after"])]
    assert all(len(piece) <= MOST for piece in pieces)
    assert join(pieces) == [b"before", part, b"", b"after"]


def test_frames_of_parts_of_all_sizes_come_back(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(300):
        frame = [dice.randbytes(dice.randrange(5 * MOST)) for _ in range(dice.randrange(1, 6))]
        assert join([bytes(piece) for piece in cut(frame)]) == frame


def test_a_short_part_is_not_copied() -> None:
    part = b"x" * (MOST - 1)
    assert cut([part])[0] is part
    assert join([part])[0] is part


def test_a_frame_that_ends_in_the_middle_of_a_part_is_refused() -> None:
    with pytest.raises(ProtocolError, match="frame that ends in the middle of a part, after 16 bytes of it"):
        join([b"head", b"x" * MOST, b"y" * MOST])
