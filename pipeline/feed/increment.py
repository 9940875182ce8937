"""What an increment does to a manifest: which partition a task writes, and what the feed holds afterwards.

Decides only: no file, no Spark.

`PartPlace` and `Written` are all that passes between a task of prepare and the driver.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from squall.engine.errors import UsageError
from squall.pipeline.feed.manifest import Increment, Manifest, PartFile, Partition
from squall.pipeline.read.inputs import SourceFile

#: Bytes of a row group, the unit that a spout starting in the middle can skip; Parquet's default of 128 MiB is coarse.
ROW_GROUP_BYTES = 4 << 20


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
