"""The contiguous acked prefix: never commit past a hole."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from squall import AckedPrefix, ClusterError, UsageError
from squall.engine.api.acked_prefix import PositionFile


@pytest.mark.parametrize("longest", [0, 20])
def test_any_order_any_repeats_never_passes_a_hole(seed: int, longest: int) -> None:
    """Records that are counted, or taken up again as they were kept; lines that are found by their first byte."""
    rng = random.Random(seed)
    for _ in range(100):
        begins = [0, *itertools.accumulate(1 + rng.randrange(longest + 1) for _ in range(rng.randrange(1, 30)))]
        spans = list(itertools.pairwise(begins))
        prefix, acked = AckedPrefix(), set()
        for begin, end in rng.choices(spans, k=3 * len(spans)):
            before = prefix.committable
            rose = prefix.ack(begin, end) if longest else prefix.ack(begin)
            acked.add(begin)
            assert prefix.is_acked(begin)
            first_hole = next((at for at, _ in spans if at not in acked), begins[-1])
            assert prefix.committable == first_hole
            assert rose == (first_hole > before)
            assert len(prefix.beyond) == sum(at > first_hole for at in acked)
            if not longest and rng.random() < 0.1:
                prefix = AckedPrefix(prefix.committable, prefix.beyond)


def test_positions_of_any_order() -> None:
    """A file's name and an offset in it."""
    prefix = AckedPrefix(("a", 0))
    assert not prefix.ack(("a", 10), ("b", 0))
    assert not prefix.ack(("b", 0), ("b", 7))
    assert prefix.ack(("a", 0), ("a", 10))
    assert prefix.committable == ("b", 7)
    assert not prefix.ack(("a", 10), ("b", 0))


@pytest.mark.parametrize("end", [None, "b", "a"])
def test_a_position_without_an_end_is_refused(end: str | None) -> None:
    prefix = AckedPrefix("a")
    with pytest.raises(UsageError, match=f"^a record at position 'b' was acked with the end {end!r}; allowed: an"):
        prefix.ack("b", end)
    assert prefix.committable == "a"


@pytest.mark.parametrize("data", [b"", bytes(30)], ids=["empty", "zeros"])
def test_a_position_file_that_a_power_loss_has_left_without_content_holds_none(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "position"
    path.write_bytes(data)
    file = PositionFile(str(path))
    assert file.load() == 0
    file.store(7)
    assert file.load() == 7


def test_a_damaged_position_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "position"
    PositionFile(str(path)).store(7)
    path.write_bytes(path.read_bytes().replace(b"7", b"8", 1))
    with pytest.raises(ClusterError, match=f"^{path} holds .* which is no position; without this file, the source is"):
        PositionFile(str(path)).load()
