"""A feed on disk: `squall prepare` writes it with Spark, a spout reads it without.

::

    partition 0   0 ───── file ─────┼──── file of a later increment ────►   offset

Guarantees that `read` gives every line of a partition from an offset on, once, in order of offset, or raises: it is for
feeds of lines, with the columns path, line_no and text; `FeedSpout` reads others too. Relies on files of a feed never
changing (`feed.manifest`): rows that come later are not seen until it is opened again. A Feed holds no file open and
can be pickled, so it may be opened before a fork and read after it. Thread: of each `read`, the one that iterates.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from squall.engine.errors import UsageError
from squall.pipeline.feed.manifest import Manifest, PartFile, Partition, check_sizes, damaged, load_manifest
from squall.pipeline.feed.part_reader import PartReader

#: (offset, path, line_no, text)
Row = tuple[int, str, int, str]
_COLUMNS = ["offset", "path", "line_no", "text"]


class Feed:
    """A complete feed. Opening reads the manifest only; may be shared by threads, each with its own `read`."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._partitions = {partition.partition: partition for partition in manifest.partitions}

    @classmethod
    def open(cls, path: str | Path) -> Feed:
        """Open a feed; UsageError if there is none, it is incomplete, or pyarrow is not installed."""
        # Relative paths must not change their meaning when the feed is read in another process.
        directory = Path(path).absolute()
        manifest = load_manifest(directory)
        if importlib.util.find_spec("pyarrow") is None:
            raise UsageError(f'reading feed {path} needs pyarrow: pip install "squall[spark]"')
        check_sizes(directory, manifest)
        return cls(directory, manifest)

    @property
    def partitions(self) -> list[int]:
        return sorted(self._partitions)

    @property
    def rows(self) -> int:
        return self.manifest.rows

    def partition_rows(self, partition: int) -> int:
        """Number of rows in a partition: its offsets are 0 up to this, exclusive."""
        return self._partition(partition).rows

    def read(self, partition: int, start_offset: int = 0) -> Iterator[list[Row]]:
        """Read chunks of (offset, path, line_no, text) from `start_offset` on; none if that is the partition's end."""
        rows = self.partition_rows(partition)
        if not 0 <= start_offset <= rows:
            where = f"partition {partition} of feed {self.path}"
            raise UsageError(f"start offset is {start_offset} in {where}; allowed: 0 to {rows}")
        return self._chunks(self._partition(partition), start_offset)

    def _chunks(self, partition: Partition, start_offset: int) -> Iterator[list[Row]]:
        expected = start_offset
        first_of_file = 0
        for file in partition.files:
            if first_of_file + file.rows > start_offset:
                for chunk in self._file_chunks(file, max(start_offset - first_of_file, 0)):
                    if chunk[0][0] != expected:
                        raise damaged(self.path, f"{file.name} has offset {chunk[0][0]} where {expected} belongs")
                    expected += len(chunk)
                    yield chunk
            first_of_file += file.rows

    def _file_chunks(self, file: PartFile, skip_rows: int) -> Iterator[list[Row]]:
        reader = PartReader(self.path, file.name, _COLUMNS)
        try:
            for columns in reader.read(skip_rows, file.rows):
                for why in reader.flaws.values():
                    raise UsageError(why)
                yield list(zip(*columns, strict=True))
        finally:
            reader.close()

    def _partition(self, partition: int) -> Partition:
        try:
            return self._partitions[partition]
        except KeyError:
            raise UsageError(
                f"feed {self.path} has no partition {partition}; allowed: {', '.join(map(str, self.partitions))}"
            ) from None
