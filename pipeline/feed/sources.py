"""Finds the parts of a feed on disk, and opens them: the edge of `FeedSpout` towards its files.

::

    FEED/_feed.json        `squall prepare` wrote it; the manifest names the parts of each partition
    FEED/_spark_metadata/  a Structured Streaming query writes it (file sink, Parquet); its log names the parts
    FEED/*.parquet         any other directory; files come by an atomic rename; a part is a partition

Guarantees that `find` gives each complete file once, in the same order to every process, and a UsageError that names
the file if it is damaged, lacks a column or has one of another type than the part before. Relies on files never
changing. Thread: the task's.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from squall.engine.errors import UsageError
from squall.engine.foreign.text import text_of_error
from squall.pipeline.feed.manifest import MANIFEST_NAME, load_manifest
from squall.pipeline.feed.part_reader import PartReader
from squall.pipeline.feed.shares import Part

SPARK_LOG_NAME = "_spark_metadata"


class Listed(NamedTuple):
    """A part as the feed's own list has it. `rows`, `bytes`: None if only the file knows."""

    name: str
    partition: int | str
    first: int = 0
    rows: int | None = None
    bytes: int | None = None


class ParquetSource(ABC):
    """A feed of Parquet files; the kinds differ in where their list is."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = list(columns)
        self._known: set[str] = set()
        self._types: dict[str, str] = {}
        self._typed_by = ""
        """The part that `_types` are from."""

    @abstractmethod
    def _list(self) -> Iterable[Listed]:
        """The complete files, with or without those listed before."""

    def find(self) -> list[Part]:
        """The parts that were not there at the last call."""
        parts = []
        for name, partition, first, listed_rows, listed_bytes in self._list():
            if name not in self._known:
                rows = self._check(name)
                if listed_rows is not None and rows != listed_rows:
                    raise UsageError(f"feed {self.path} is damaged: {name} has {rows} rows instead of {listed_rows}")
                if listed_bytes is not None and (size := os.stat(self.path / name).st_size) != listed_bytes:
                    raise UsageError(f"feed {self.path} is damaged: {name} has {size} bytes instead of {listed_bytes}")
                parts.append(Part(name, partition, first, rows))
                self._known.add(name)
        return parts

    def open(self, part: Part) -> PartReader:
        return PartReader(self.path, part.name, self.columns)

    def _check(self, name: str) -> int:
        """Compare a file with the columns that are wanted. Its number of rows."""
        reader = PartReader(self.path, name, self.columns)
        try:
            there, rows = reader.types, reader.rows
        finally:
            reader.close()
        for column in self.columns:
            if column not in there:
                has = ", ".join(there)
                raise UsageError(f"feed {self.path} has no column {column!r} in {name}; allowed: {has}")
            if there[column] != self._types.setdefault(column, there[column]):
                raise UsageError(
                    f"feed {self.path} changed its schema: column {column!r} is {there[column]} in {name}, but "
                    f"{self._types[column]} in {self._typed_by}"
                )
        self._typed_by = self._typed_by or name
        return rows


class PreparedFeed(ParquetSource):
    """What `squall prepare` wrote; a manifest that is replaced may name more files."""

    _read_at: tuple[int, ...] = ()
    """The identity of the manifest that was read last."""

    def _list(self) -> Iterable[Listed]:
        try:
            now = os.stat(self.path / MANIFEST_NAME)
        except OSError as error:
            raise UsageError(f"feed {self.path} was replaced while it was read: {MANIFEST_NAME} is gone") from error
        identity = now.st_dev, now.st_ino, now.st_mtime_ns, now.st_size
        if identity == self._read_at:
            return
        for partition in load_manifest(self.path).partitions:
            first = 0
            for file in partition.files:
                yield Listed(file.name, partition.partition, first, file.rows, file.bytes or None)
                first += file.rows
        self._read_at = identity


class StreamedFeed(ParquetSource):
    """What a Structured Streaming query writes: only files in the log of the sink are complete, and count once."""

    _batch = -1
    """The last batch that was read."""

    def _list(self) -> Iterable[Listed]:
        log = self.path / SPARK_LOG_NAME
        found: dict[int, Path] = {}
        # In this order, the compact file of a batch replaces the plain one: it holds all batches up to its own.
        for path in sorted(log.iterdir()):
            match = re.fullmatch(r"(\d+)(\.compact)?", path.name)
            if match and int(match[1]) > self._batch:
                found[int(match[1])] = path
        begin = max((batch for batch, path in found.items() if path.suffix), default=-1)
        names: dict[str, None] = {}
        for batch in sorted(batch for batch in found if batch >= begin):
            self._read(found[batch], names)
            self._batch = batch
        return [Listed(name, name) for name in names]

    def _read(self, path: Path, names: dict[str, None]) -> None:
        try:
            version, *lines = path.read_text(encoding="utf-8").splitlines()
            if version != "v1":
                raise UsageError(f"{path} has version {version!r}; this version of Squall reads v1")
            for line in lines:
                entry = json.loads(line)
                name = self._relative(entry["path"])
                if entry["action"] == "delete":
                    names.pop(name, None)
                else:
                    names[name] = None
        except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"{path} is not the log of a streaming query: {text_of_error(error)}") from error

    def _relative(self, uri: str) -> str:
        """The feed may have been moved since it was written."""
        path = PurePosixPath(unquote(urlsplit(uri).path))
        return str(path.relative_to(self.path)) if path.is_relative_to(self.path) else path.name


class ParquetDirectory(ParquetSource):
    """Any directory of Parquet files; names that begin with a dot or an underscore are not looked at."""

    def _list(self) -> Iterable[Listed]:
        found: list[str] = []
        for folder, folders, files in os.walk(self.path):
            folders[:] = [name for name in folders if name[0] not in "._"]
            inside = os.path.relpath(folder, self.path)
            found += [os.path.normpath(f"{inside}/{name}") for name in files if _is_part(name)]
        return [Listed(name, name) for name in sorted(found)]


def _is_part(name: str) -> bool:
    return name.endswith(".parquet") and name[0] not in "._"


def declared_fields(feed: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The columns that a spout emits of a feed unless told otherwise."""
    if isinstance(feed, str | os.PathLike) and (Path(feed) / MANIFEST_NAME).exists():
        return load_manifest(Path(feed).absolute()).fields
    return ("text",)


def open_feed(path: Path, columns: Sequence[str], follow: bool) -> ParquetSource:
    """Open the feed in a directory; UsageError if it is not a feed. `follow`: it may be empty still."""
    if not path.is_dir():
        what = "is a file, not a feed" if path.exists() else "is not a feed: it does not exist"
        raise UsageError(f"{path} {what}; squall prepare makes one")
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError(f'reading feed {path} needs pyarrow: pip install "squall[spark]"')
    for name, kind in ((MANIFEST_NAME, PreparedFeed), (SPARK_LOG_NAME, StreamedFeed)):
        if (path / name).exists():
            return kind(path, columns)
    if not follow and not any(_is_part(name) for _, _, names in os.walk(path) for name in names):
        raise UsageError(
            f"{path} is not a feed: it has no {MANIFEST_NAME}, no {SPARK_LOG_NAME} and no Parquet file; squall prepare "
            "makes one"
        )
    return ParquetDirectory(path, columns)
