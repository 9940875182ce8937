"""What an increment does to a manifest: which partition a task writes, and what the feed holds afterwards.

Decides only: no file, no Spark.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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


def first_manifest(input_: str, partitions: int, recipe: Mapping[str, Any], fields: Sequence[str]) -> Manifest:
    """The manifest of a feed without rows."""
    empty = tuple(Partition(number, 0) for number in range(partitions))
    return Manifest(input_, empty, 0, 0, 0, 0, fields=tuple(fields), recipe=dict(recipe))


def grown(former: Manifest, written: Iterable[Written], sources: PartFile, skipped_binary: int) -> Manifest:
    """The manifest with an increment. `sources`: the list of its source files."""
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
        files=former.files + sources.rows,
        increments=(*former.increments, Increment(sources, sum(more.rows for more in by_partition.values()), refused)),
        quarantine=(*former.quarantine, *(one.quarantine for one in written if one.quarantine)),
    )
