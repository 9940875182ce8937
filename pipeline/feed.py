"""A feed on disk: `squall prepare` writes it with Spark, a spout reads it without.

::

    FEED/_feed.json            manifest, written last: a directory without it is not a feed
    FEED/lines/*.parquet       partition, offset, path, line_no, text; one partition per file, sorted by offset
    FEED/quarantine/*.parquet  partition, path, line_no, reason, raw

Guarantees that `read` gives every row of a partition from an offset on, once, in order of offset, or raises. Relies on
a feed never changing in place: prepare replaces the whole directory. A Feed holds no file open and can be pickled, so
it may be opened before a fork and read after it. Thread: of each `read`, the one that iterates it.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squall.engine.errors import UsageError
from squall.engine.foreign.text import text_of_error
from squall.pipeline.part_reader import PartReader

FORMAT = 1
MANIFEST_NAME = "_feed.json"
LINES_NAME = "lines"
QUARANTINE_NAME = "quarantine"

#: (offset, path, line_no, text)
Row = tuple[int, str, int, str]
_COLUMNS = ["offset", "path", "line_no", "text"]


@dataclass(frozen=True)
class PartFile:
    """One Parquet file of a partition: its name relative to the feed and its number of rows."""

    name: str
    rows: int


@dataclass(frozen=True)
class Partition:
    """One partition: offsets 0..rows-1, in `files` one after the other."""

    partition: int
    rows: int
    files: tuple[PartFile, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The content of a feed. words = sum of len(text.split()), bytes = UTF-8 bytes of the texts, both over all rows."""

    input: str
    partitions: tuple[Partition, ...]
    words: int
    quarantined: int
    skipped_binary: int
    bytes: int
    files: int = 0
    quarantine_reasons: dict[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions)

    def to_dict(self) -> dict[str, Any]:
        """The manifest in the form of the file."""
        return {
            "format": FORMAT,
            "input": self.input,
            "partitions": [
                {
                    "partition": partition.partition,
                    "rows": partition.rows,
                    "files": [{"name": file.name, "rows": file.rows} for file in partition.files],
                }
                for partition in self.partitions
            ],
            "rows": self.rows,
            "words": self.words,
            "quarantined": self.quarantined,
            "quarantine_reasons": self.quarantine_reasons,
            "skipped_binary": self.skipped_binary,
            "files": self.files,
            "bytes": self.bytes,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Manifest:
        """Inverse of to_dict; KeyError, TypeError or ValueError if `data` is no manifest."""
        partitions = tuple(
            Partition(
                int(entry["partition"]),
                int(entry["rows"]),
                tuple(PartFile(str(file["name"]), int(file["rows"])) for file in entry["files"]),
            )
            for entry in data["partitions"]
        )
        for entry in partitions:
            if sum(file.rows for file in entry.files) != entry.rows:
                raise ValueError(f"the files of partition {entry.partition} do not hold its {entry.rows} rows")
        return cls(
            input=str(data["input"]),
            partitions=partitions,
            words=int(data["words"]),
            quarantined=int(data["quarantined"]),
            skipped_binary=int(data["skipped_binary"]),
            bytes=int(data["bytes"]),
            files=int(data["files"]),
            quarantine_reasons=dict(data["quarantine_reasons"]),
        )


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
        for partition in manifest.partitions:
            for file in partition.files:
                if not (directory / file.name).is_file():
                    raise UsageError(f"feed {path} is damaged: {file.name} is missing; run squall prepare again")
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
                        wrong = f"{file.name} has offset {chunk[0][0]} where {expected} belongs"
                        raise UsageError(f"feed {self.path} is damaged: {wrong}; run squall prepare again")
                    expected += len(chunk)
                    yield chunk
            first_of_file += file.rows

    def _file_chunks(self, file: PartFile, skip_rows: int) -> Iterator[list[Row]]:
        reader = PartReader(self.path, file.name, _COLUMNS)
        try:
            for columns in reader.read(skip_rows, file.rows):
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


def load_manifest(path: Path) -> Manifest:
    """Read the manifest at `path`; UsageError if there is no complete feed of a format that this version reads."""
    try:
        text = (path / MANIFEST_NAME).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "does not exist" if not path.exists() else f"has no {MANIFEST_NAME}"
        raise UsageError(f"{path} is not a feed: it {what}; squall prepare makes one") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path / MANIFEST_NAME}: {_first_line(error)}") from error
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise TypeError(f"a manifest is an object, not {text[:80]!r}")
        if data.get("format") != FORMAT:
            raise UsageError(f"feed {path} has format {data.get('format')!r}; this version reads format {FORMAT}")
        return Manifest.from_dict(data)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path / MANIFEST_NAME} is not a manifest of a feed: {text_of_error(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
