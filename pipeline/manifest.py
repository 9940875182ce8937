"""The manifest of a feed: what the feed holds, what it was made from and how.

::

    FEED/_feed.json            the manifest, replaced as a whole: a file that it does not name is no part of the feed
    FEED/rows/*.parquet        partition, offset and the columns of the rows; a partition's files one after the other
    FEED/quarantine/*.parquet  partition, path, line_no, reason, raw
    FEED/sources/*.jsonl       the files that each increment was made from

Guarantees that what it reads is consistent in itself, or a UsageError that names the file. Relies on files of a feed
never changing: an increment adds files, and the next manifest names them too. Imports nothing of Spark nor pyarrow.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of, text_of_error

FORMAT = 2
MANIFEST_NAME = "_feed.json"
ROWS_NAME = "rows"
QUARANTINE_NAME = "quarantine"
SOURCES_NAME = "sources"
#: Columns that every feed has before its own.
PLACE_COLUMNS = ("partition", "offset")


@dataclass(frozen=True)
class PartFile:
    """One file of a feed: its name relative to the feed, and its rows, bytes and checksum ("" if not known)."""

    name: str
    rows: int
    bytes: int = 0
    sha256: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "rows": self.rows, "bytes": self.bytes, "sha256": self.sha256}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PartFile:
        return cls(str(data["name"]), int(data["rows"]), int(data["bytes"]), str(data["sha256"]))


@dataclass(frozen=True)
class Partition:
    """One partition: offsets 0..rows-1, in `files` one after the other."""

    partition: int
    rows: int
    files: tuple[PartFile, ...] = ()


@dataclass(frozen=True)
class Increment:
    """What one run of prepare added: the file that lists its sources, and how many they are."""

    sources: PartFile
    rows: int
    quarantined: int


@dataclass(frozen=True)
class Manifest:
    """The content of a feed."""

    input: str
    partitions: tuple[Partition, ...]
    words: int | None
    """Sum of len(text.split()) over the rows of a feed of plain lines; None for other feeds."""
    quarantined: int
    skipped_binary: int
    bytes: int | None
    """UTF-8 bytes of the texts of a feed of plain lines; None for other feeds."""
    files: int = 0
    """Source files."""
    quarantine_reasons: dict[str, int] = field(default_factory=dict)
    fields: tuple[str, ...] = ("text",)
    """The columns that a spout emits unless told otherwise."""
    schema: dict[str, str] = field(default_factory=dict)
    """Type by column, as Spark writes it, of the rows' own columns; empty if not known."""
    source_schema: str = ""
    """Of the files that the feed was made from, as Spark writes it in JSON; empty for text."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """How sources become rows: all increments of a feed have the same."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Rows that rules dropped, by rule."""
    increments: tuple[Increment, ...] = ()
    quarantine: tuple[PartFile, ...] = ()

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions)

    @property
    def all_files(self) -> list[PartFile]:
        """The files of the feed but the manifest: rows, quarantine, sources."""
        rows = [file for partition in self.partitions for file in partition.files]
        return [*rows, *self.quarantine, *(increment.sources for increment in self.increments)]

    @property
    def file_names(self) -> set[str]:
        """Their names, relative to the feed."""
        return {file.name for file in self.all_files}

    def to_dict(self) -> dict[str, Any]:
        """The manifest in the form of the file."""
        return {
            "format": FORMAT,
            "input": self.input,
            "recipe": self.recipe,
            "fields": list(self.fields),
            "schema": self.schema,
            "source_schema": self.source_schema,
            "rows": self.rows,
            "words": self.words,
            "bytes": self.bytes,
            "files": self.files,
            "skipped_binary": self.skipped_binary,
            "quarantined": self.quarantined,
            "quarantine_reasons": self.quarantine_reasons,
            "dropped": self.dropped,
            "partitions": [
                {
                    "partition": partition.partition,
                    "rows": partition.rows,
                    "files": [file.to_dict() for file in partition.files],
                }
                for partition in self.partitions
            ],
            "quarantine": [file.to_dict() for file in self.quarantine],
            "increments": [
                {"sources": one.sources.to_dict(), "rows": one.rows, "quarantined": one.quarantined}
                for one in self.increments
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Manifest:
        """Inverse of to_dict; KeyError, TypeError or ValueError if `data` is no manifest."""
        partitions = tuple(
            Partition(
                int(entry["partition"]),
                int(entry["rows"]),
                tuple(PartFile.from_dict(file) for file in entry["files"]),
            )
            for entry in data["partitions"]
        )
        for entry in partitions:
            if sum(file.rows for file in entry.files) != entry.rows:
                raise ValueError(f"the files of partition {entry.partition} do not hold its {entry.rows} rows")
        if (held := sum(entry.rows for entry in partitions)) != int(data["rows"]):
            raise ValueError(f"its partitions hold {held} rows, and not its {data['rows']}")
        seen: set[str] = set()
        for name in (file.name for entry in partitions for file in entry.files):
            if name in seen:
                raise ValueError(f"it names {name!r} twice")
            seen.add(name)
        if not isinstance(data["fields"], list):
            raise TypeError(f"its fields are {data['fields']!r:.80}, and no list")
        return cls(
            input=str(data["input"]),
            partitions=partitions,
            words=_count(data["words"]),
            quarantined=int(data["quarantined"]),
            skipped_binary=int(data["skipped_binary"]),
            bytes=_count(data["bytes"]),
            files=int(data["files"]),
            quarantine_reasons=dict(data["quarantine_reasons"]),
            fields=tuple(str(name) for name in data["fields"]),
            schema={str(name): str(kind) for name, kind in data["schema"].items()},
            source_schema=str(data["source_schema"]),
            recipe=dict(data["recipe"]),
            dropped=dict(data["dropped"]),
            increments=tuple(
                Increment(PartFile.from_dict(one["sources"]), int(one["rows"]), int(one["quarantined"]))
                for one in data["increments"]
            ),
            quarantine=tuple(PartFile.from_dict(file) for file in data["quarantine"]),
        )


def _count(value: Any) -> int | None:
    return None if value is None else int(value)


def load_manifest(path: Path) -> Manifest:
    """Read the manifest of the feed `path`; UsageError if there is no complete feed of a format that is read."""
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
            raise UsageError(
                f"feed {path} has format {repr_of(data.get('format'), 40)}; this version of Squall reads format "
                f"{FORMAT}; squall prepare --overwrite makes it anew"
            )
        return Manifest.from_dict(data)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path / MANIFEST_NAME} is not a manifest of a feed: {text_of_error(error)}") from error


def check_sizes(feed: Path, manifest: Manifest) -> None:
    """Compare the sizes of all files with the manifest. UsageError that names the first that is missing or differs."""
    for file in manifest.all_files:
        try:
            size = os.stat(feed / file.name).st_size
        except FileNotFoundError:
            raise damaged(feed, f"{file.name} is missing") from None
        except OSError as error:
            raise damaged(feed, f"{file.name} cannot be read: {error.strerror}") from error
        if file.bytes and size != file.bytes:
            raise damaged(feed, f"{file.name} has {size} bytes instead of {file.bytes}")


def check_content(feed: Path, manifest: Manifest) -> None:
    """Read all files, and compare them with the manifest. UsageError that names the first that differs."""
    for file in manifest.all_files:
        if not file.sha256:
            continue
        try:
            with open(feed / file.name, "rb") as opened:
                found = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            raise damaged(feed, f"{file.name} cannot be read: {error.strerror}") from error
        if found != file.sha256:
            raise damaged(feed, f"{file.name} was changed after squall prepare wrote it: its SHA-256 is another")


def damaged(feed: Path, what: str) -> UsageError:
    """The error about a feed that is not as it was written."""
    return UsageError(f"feed {feed} is damaged: {what}; squall prepare --overwrite makes it anew")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
