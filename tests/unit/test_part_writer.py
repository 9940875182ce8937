"""A part of a feed is written with offsets without gaps, in small row groups, and damage in it is noticed."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from squall.engine.errors import UsageError
from squall.pipeline.feed.manifest import PartPlace
from squall.pipeline.feed.part_reader import PartReader

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from squall.pipeline.feed.part_writer import ROW_GROUP_BYTES, PartWriter  # noqa: E402


def test_row_groups_are_small_and_each_flipped_bit_is_noticed(tmp_path: Path) -> None:
    writer = PartWriter(PartPlace(str(tmp_path), 3, 100, "stem"), {"text": pyarrow.string()})
    for first in range(0, 12_000, 1000):
        writer.add([pyarrow.array([f"{row} " + "x" * 1000 for row in range(first, first + 1000)])])
    written = writer.close()
    assert written.rows is not None
    path = tmp_path / "rows" / "stem.parquet"
    metadata = parquet.read_metadata(path)
    assert metadata.num_row_groups >= 3
    assert all(metadata.row_group(group).total_byte_size < 2 * ROW_GROUP_BYTES for group in range(3))
    whole = path.read_bytes()
    assert len(whole) == written.rows.bytes
    for place in range(20_000, len(whole) - 20_000, len(whole) // 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with (
            contextlib.closing(PartReader(tmp_path, "rows/stem.parquet", ["offset", "text"])) as reader,
            pytest.raises(UsageError, match=r"is damaged: rows/stem\.parquet: "),
        ):
            list(reader.read(0, 12_000))
