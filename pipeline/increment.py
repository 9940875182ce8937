"""What an increment does to a manifest: which partition a task writes, and what the feed holds afterwards.

Decides only: no file, no Spark.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from squall.engine.errors import UsageError
from squall.pipeline.manifest import Increment, Manifest, PartFile, Partition
from squall.pipeline.written import Place, Written


@dataclass(frozen=True)
class Numbered:
    """An increment that is being made. Its files have names that no other feed at this place ever had, because a reader
    keeps its position by them."""

    number: int
    token: str

    @classmethod
    def after(cls, former: Manifest | None) -> Numbered:
        return cls(len(former.increments) + 1 if former else 1, secrets.token_hex(4))

    def stem(self, partition: int | None = None) -> str:
        """The name of its files, without suffix."""
        middle = "" if partition is None else f"-{partition:04d}"
        return f"{self.number:05d}{middle}-{self.token}"


def places(former: Manifest | None, partitions: int, increment: Numbered, directory: str) -> list[Place]:
    """A place for each task. The first, which may be the only one, gets the partition with the fewest rows."""
    rows = {entry.partition: entry.rows for entry in former.partitions} if former else {}
    by_rows = sorted(range(partitions), key=lambda partition: (rows.get(partition, 0), partition))
    return [Place(directory, number, rows.get(number, 0), increment.stem(number)) for number in by_rows]


def first_manifest(input_: str, partitions: int, recipe: Mapping[str, Any], *, is_plain: bool) -> Manifest:
    """The manifest of a feed without rows. `is_plain`: it will be lines as they are, so words and bytes are counted."""
    empty = tuple(Partition(number, 0) for number in range(partitions))
    count = 0 if is_plain else None
    return Manifest(input_, empty, count, 0, 0, count, recipe=dict(recipe))


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
    former: Manifest, written: Iterable[Written], sources: PartFile, new_files: int, skipped_binary: int
) -> Manifest:
    """The manifest with an increment. `sources`: the list of its source files; `new_files`: those among them of which
    the feed had nothing."""
    written = list(written)
    by_partition = {one.partition: one.rows for one in written if one.rows}
    reasons = Counter(former.quarantine_reasons)
    dropped = Counter(former.dropped)
    for one in written:
        reasons.update(one.reasons)
        dropped.update(one.dropped)
    refused = sum(sum(one.reasons.values()) for one in written)
    partitions = tuple(
        replace(entry, rows=entry.rows + more.rows, files=(*entry.files, more))
        if (more := by_partition.get(entry.partition)) else entry
        for entry in former.partitions
    )
    return replace(
        former,
        partitions=partitions,
        words=None if former.words is None else former.words + sum(one.words for one in written),
        bytes=None if former.bytes is None else former.bytes + sum(one.bytes for one in written),
        quarantined=former.quarantined + refused,
        quarantine_reasons=dict(sorted(reasons.items())),
        dropped=dict(sorted(dropped.items())),
        skipped_binary=skipped_binary,
        files=former.files + new_files,
        increments=(*former.increments, Increment(sources, sum(more.rows for more in by_partition.values()), refused)),
        quarantine=(*former.quarantine, *(one.quarantine for one in written if one.quarantine)),
    )
