"""The manifest of a feed: what the feed holds, what it was made from and how; and what an increment does to it: which
partition a task of prepare writes, and what the feed holds afterwards.

::

    FEED/_feed.json            the manifest, replaced as a whole: a file that it does not name is no part of the feed
    FEED/rows/*.parquet        partition, offset and the columns of the rows; a partition's files one after the other
    FEED/quarantine/*.parquet  partition, path, line_no, reason, raw
    FEED/sources/*.jsonl       the files that each increment was made from

Guarantees that what is read is a manifest, or a UsageError that names the file. Relies on files of a feed never
changing: an increment adds files, and the next manifest names them too. Imports nothing of Spark nor pyarrow.

`PartPlace` and `Written` are all that passes between a task of prepare and the driver.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of, text_of_error

if TYPE_CHECKING:
    from squall.pipeline.read.inputs import SourceFile

FORMAT = 2
MANIFEST_NAME = "_feed.json"
ROWS_NAME = "rows"
QUARANTINE_NAME = "quarantine"
SOURCES_NAME = "sources"
#: Columns that every feed has before its own.
PLACE_COLUMNS = ("partition", "offset")
#: Bytes of a row group, the unit that a spout starting in the middle can skip; Parquet's default of 128 MiB is coarse.
ROW_GROUP_BYTES = 4 << 20


class PartFile(msgspec.Struct, frozen=True):
    """One file of a feed: its name relative to the feed, and its rows, bytes and checksum ("" if not known)."""

    name: str
    rows: int
    bytes: int = 0
    sha256: str = ""


class Partition(msgspec.Struct, frozen=True):
    """One partition: offsets 0..rows-1, in `files` one after the other."""

    partition: int
    rows: int
    files: tuple[PartFile, ...] = ()


class Increment(msgspec.Struct, frozen=True):
    """What one run of prepare added: the file that lists its sources, and how many they are."""

    sources: PartFile
    rows: int
    quarantined: int


class Manifest(msgspec.Struct, frozen=True):
    """The content of a feed."""

    input: str
    partitions: tuple[Partition, ...]
    quarantined: int = 0
    files: int = 0
    """Source files."""
    quarantine_reasons: dict[str, int] = {}
    fields: tuple[str, ...] = ("text",)
    """The columns that a spout emits unless told otherwise."""
    schema: dict[str, str] = {}
    """Type by column, as Spark writes it, of the rows' own columns; empty if not known."""
    source_schema: str = ""
    """Of the files that the feed was made from, as Spark writes it in JSON; empty for text."""
    recipe: dict[str, Any] = {}
    """How sources become rows: all increments of a feed have the same."""
    increments: tuple[Increment, ...] = ()
    quarantine: tuple[PartFile, ...] = ()
    format: int = FORMAT

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
        return {file.name for file in self.all_files}

    def to_dict(self) -> dict[str, Any]:
        """What is in the file, and in `squall prepare --json`."""
        return {**msgspec.to_builtins(self), "rows": self.rows}


class PartPlace(NamedTuple):
    """Where the rows of a task go: a partition, its first free offset, and the directory and the name of the files."""

    directory: str
    partition: int
    offset: int
    stem: str


class Refused(NamedTuple):
    """A row in the quarantine, as it is shown."""

    path: str
    line_no: int
    """0 if it is not known."""
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line_no}: {self.reason}" if self.line_no else f"{self.path}: {self.reason}"


@dataclass
class Written:
    """The outcome of a task."""

    partition: int
    rows: PartFile | None = None
    quarantine: PartFile | None = None
    reasons: Counter[str] = field(default_factory=Counter)
    shown: list[Refused] = field(default_factory=list)
    """The first refused rows."""
    sources: list[SourceFile] = field(default_factory=list)
    """The files that it has read itself."""
    copied: list[str] = field(default_factory=list)
    """The files of which it has made a copy without refused records."""


def load_manifest(path: Path) -> Manifest:
    """Read the manifest of the feed `path`; UsageError if there is no complete feed of a format that is read."""
    try:
        # Not msgspec's JSON: names of files may hold bytes that are not UTF-8, as surrogates.
        data = json.loads((path / MANIFEST_NAME).read_bytes())
        if isinstance(data, dict) and data.get("format") != FORMAT:
            raise UsageError(
                f"feed {path} has format {repr_of(data.get('format'), 40)}; this version of Squall reads format "
                f"{FORMAT}; squall prepare --overwrite makes it anew"
            )
        return msgspec.convert(data, Manifest)
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "does not exist" if not path.exists() else f"has no {MANIFEST_NAME}"
        raise UsageError(f"{path} is not a feed: it {what}; squall prepare makes one") from error
    except OSError as error:
        raise UsageError(f"cannot read {path / MANIFEST_NAME}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path / MANIFEST_NAME} is not a manifest of a feed: {text_of_error(error)}") from error


def check_files(feed: Path, manifest: Manifest, *, whole: bool = False) -> None:
    """Compare the sizes of all files with the manifest; with `whole`, their content. UsageError that names the first
    that is missing or differs."""
    for file in manifest.all_files:
        try:
            with open(feed / file.name, "rb") as opened:
                size = os.fstat(opened.fileno()).st_size
                sha256 = hashlib.file_digest(opened, "sha256").hexdigest() if whole and file.sha256 else file.sha256
        except OSError as error:
            raise damaged(feed, f"{file.name} cannot be read: {error.strerror}") from error
        if file.bytes and size != file.bytes:
            raise damaged(feed, f"{file.name} has {size} bytes instead of {file.bytes}")
        if sha256 != file.sha256:
            raise damaged(feed, f"{file.name} was changed after squall prepare wrote it: its SHA-256 is another")


def damaged(feed: Path, what: str) -> UsageError:
    """The error about a feed that is not as it was written."""
    return UsageError(f"feed {feed} is damaged: {what}; squall prepare --overwrite makes it anew")


def new_stem(former: Manifest, partition: int | None = None) -> str:
    """A name for a file of the next increment, without suffix. No other feed at this place ever had it, because a
    reader keeps its position by names."""
    middle = "" if partition is None else f"-{partition:04d}"
    return f"{len(former.increments) + 1:05d}{middle}-{secrets.token_hex(4)}"


def places(former: Manifest, directory: str) -> list[PartPlace]:
    """A place for each task. The first, which may be the only one, gets the partition with the fewest rows."""
    by_rows = sorted(former.partitions, key=lambda entry: (entry.rows, entry.partition))
    return [PartPlace(directory, one.partition, one.rows, new_stem(former, one.partition)) for one in by_rows]


def first_manifest(input_: str, partitions: int, recipe: Mapping[str, Any]) -> Manifest:
    """The manifest of a feed without rows."""
    return Manifest(input_, tuple(Partition(number, 0) for number in range(partitions)), recipe=dict(recipe))


def with_schema(manifest: Manifest, schema: Mapping[str, str], source_schema: str, fields: Sequence[str]) -> Manifest:
    """The manifest of a feed whose rows have these columns; UsageError if its rows have others."""
    for name in (*manifest.schema, *schema):
        if manifest.increments and manifest.schema.get(name) != schema.get(name):
            raise UsageError(
                f"the rows changed their schema: column {name!r} is {schema.get(name, 'not there')}, and "
                f"{manifest.schema.get(name, 'not there')} in the feed; --overwrite makes the feed anew"
            )
    return replace(manifest, schema=dict(schema), source_schema=source_schema, fields=tuple(fields))


def grown(
    former: Manifest, written: Sequence[Written], sources: PartFile, new_files: int
) -> Manifest:
    """The manifest with an increment. `sources`: the list of its source files; `new_files`: those among them of which
    the feed had nothing."""
    new = {one.partition: one.rows for one in written if one.rows}
    reasons = sum((one.reasons for one in written), Counter[str]())
    partitions = tuple(
        replace(entry, rows=entry.rows + more.rows, files=(*entry.files, more))
        if (more := new.get(entry.partition)) else entry
        for entry in former.partitions
    )
    return replace(
        former,
        partitions=partitions,
        quarantined=former.quarantined + reasons.total(),
        quarantine_reasons=dict(sorted((reasons + Counter(former.quarantine_reasons)).items())),
        files=former.files + new_files,
        increments=(*former.increments, Increment(sources, sum(file.rows for file in new.values()), reasons.total())),
        quarantine=(*former.quarantine, *(one.quarantine for one in written if one.quarantine)),
    )
