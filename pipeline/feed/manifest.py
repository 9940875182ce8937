"""The manifest of a feed: what the feed holds, what it was made from and how.

::

    FEED/_feed.json            the manifest, replaced as a whole: a file that it does not name is no part of the feed
    FEED/rows/*.parquet        partition, offset and the columns of the rows; a partition's files one after the other
    FEED/quarantine/*.parquet  partition, path, line_no, reason, raw
    FEED/sources/*.jsonl       the files that each increment was made from

Guarantees that what is read is a manifest, or a UsageError that names the file. Relies on files of a feed never
changing: an increment adds files, and the next manifest names them too. Imports nothing of Spark nor pyarrow.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import msgspec

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of, text_of_error

FORMAT = 2
MANIFEST_NAME = "_feed.json"
ROWS_NAME = "rows"
QUARANTINE_NAME = "quarantine"
SOURCES_NAME = "sources"
#: Columns that every feed has before its own.
PLACE_COLUMNS = ("partition", "offset")


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
