"""Counts a feed and a result by pieces, and puts what belongs together in buckets: the first half of `squall verify`.

::

    pieces of all files ─► tallied, in Spark's Python workers ─► pairs of bucket and data ─► judged, bucket by bucket

A bucket has the numbers of words of neighbouring lines of a partition, or the counts of some words: from the feed as
from the result. So Spark carries a few rows with much in each, and numpy and Arrow compare what is inside.

Guarantees that every row of every piece is in the bucket of its line or word, or that what is wrong with the piece is
in the bucket FILES; memory for a piece and HELD_WORDS words, whatever the feed. Reads Parquet by pyarrow alone, and not
as `FeedSpout` does: an error there cannot hide itself. Relies on files that do not change meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import numpy
import pyarrow
from pyarrow import parquet

from squall.engine.errors import UsageError
from squall.pipeline.feed import Feed
from squall.pipeline.feed.part_reader import named_errors
from squall.pipeline.read.files import InputFile
from squall.pipeline.results import read_rows

#: The bucket of what is wrong with files.
FILES = -1
#: Neighbouring lines of a partition that are compared together.
LINES_OF_BUCKET = 1 << 16
#: Bytes of files for each bucket of words, and of lines that the feed has not: bounds the memory of comparing one.
BYTES_OF_BUCKET = 32 << 20
#: Distinct words that a task counts before it passes the totals on: bounds its memory.
HELD_WORDS = 1_000_000
#: Rows of a feed that are split at a time.
BATCH_ROWS = 16_384

UNREAD, TORN, DAMAGED = "unread", "torn", "damaged"
#: The bucket, and what it gets: whether of the feed, and arrays of numbers; or what is wrong with a file, and where.
Tallied: TypeAlias = tuple[int, tuple[Any, Any]]
Numbers: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.int64]]"


class FeedPiece(NamedTuple):
    """A row group of a file of a feed."""

    feed: str
    name: str
    group: int
    bytes: int


class ResultPiece(NamedTuple):
    """A piece of a file of a result."""

    kind: str
    piece: InputFile

    @property
    def bytes(self) -> int:
        return self.piece.size_bytes - self.piece.start_bytes


Piece: TypeAlias = FeedPiece | ResultPiece


def feed_pieces(feed: Feed) -> list[FeedPiece]:
    """The row groups of all files. UsageError if a file is damaged at its end, or has other columns."""
    pieces = []
    for name in (file.name for partition in feed.manifest.partitions for file in partition.files):
        with named_errors(feed.path, name), parquet.ParquetFile(feed.path / name) as file:
            lacking = {"partition", "offset", "text"} - set(file.schema_arrow.names)
            if lacking:
                raise UsageError(
                    f"feed {feed.path} has no column {min(lacking)!r}: its words cannot be counted; to compare other "
                    "results, name their key with --by"
                )
            for group in range(file.num_row_groups):
                size_bytes = file.metadata.row_group(group).total_byte_size
                pieces.append(FeedPiece(str(feed.path), name, group, size_bytes))
    return pieces


@dataclass(frozen=True)
class Buckets:
    """The numbers of the buckets: first those of words, then those of each partition, then those of strange lines."""

    words: int
    rows: Mapping[int, int]
    """The lines of each partition of the feed."""
    firsts: Mapping[int, int]
    """The first bucket of each partition."""
    strange: int
    """The first bucket of lines that the feed has not."""
    end: int

    @classmethod
    def of(cls, rows: Mapping[int, int], size_bytes: int) -> Buckets:
        """`size_bytes`: of all pieces."""
        words = first = 1 + size_bytes // BYTES_OF_BUCKET
        firsts = {}
        for partition, count in rows.items():
            firsts[partition] = first
            first += -(-count // LINES_OF_BUCKET)
        return cls(words, dict(rows), firsts, first, first + words)

    def of_word(self, word: str) -> int:
        return crc32(word.encode()) % self.words

    def of_lines(self, partitions: Numbers, offsets: Numbers) -> Numbers:
        """The bucket of each line."""
        strange = (partitions ^ offsets ^ offsets >> 16) % (self.end - self.strange) + self.strange
        for partition in numpy.unique(partitions).tolist():
            if partition in self.rows:
                inside = (partitions == partition) & (offsets >= 0) & (offsets < self.rows[partition])
                strange[inside] = self.firsts[partition] + offsets[inside] // LINES_OF_BUCKET
        return strange


class Tally:
    """What one task counts."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._counts: Counter[str] = Counter()
        """Of the feed."""
        self._totals: dict[str, int] = {}
        """Of the result: of each word, the largest."""

    def rows(self, pieces: Iterable[Piece]) -> Iterator[Tallied]:
        for piece in pieces:
            yield from self._of_feed(piece) if isinstance(piece, FeedPiece) else self._of_result(piece)
            if len(self._counts) + len(self._totals) >= HELD_WORDS:
                yield from self._words()
        yield from self._words()

    def _of_feed(self, piece: FeedPiece) -> Iterator[Tallied]:
        try:
            with named_errors(Path(piece.feed), piece.name):
                yield from self._of_group(piece)
        except UsageError as error:
            yield FILES, (DAMAGED, str(error))

    def _of_group(self, piece: FeedPiece) -> Iterator[Tallied]:
        lines: list[tuple[Numbers, Numbers, Numbers]] = []
        with parquet.ParquetFile(Path(piece.feed, piece.name), page_checksum_verification=True) as file:
            batches = file.iter_batches(
                BATCH_ROWS, [piece.group], columns=["partition", "offset", "text"], use_threads=False
            )
            for batch in batches:
                # Only Python's str.split separates words exactly as a topology does.
                split = [text.split() for text in batch.column("text").to_pylist()]
                lengths = numpy.fromiter(map(len, split), numpy.int64, len(split))
                for words in split:
                    self._counts.update(words)
                places = (batch.column(name).to_numpy().astype(numpy.int64) for name in ("partition", "offset"))
                lines.append((*places, lengths))
        yield from self._lines(lines, of_feed=True)

    def _of_result(self, piece: ResultPiece) -> Iterator[Tallied]:
        lines: list[tuple[Numbers, Numbers, Numbers]] = []
        totals = self._totals
        for rows, problem, torn in read_rows(piece.kind, piece.piece):
            if piece.kind == "ledger":
                lines.append((
                    numpy.array([row.partition for row in rows], numpy.int64),
                    numpy.array([row.offset for row in rows], numpy.int64),
                    numpy.array([row.words for row in rows], numpy.int64),
                ))
            else:
                for row in rows:
                    known = totals.get(row.word)
                    if known is None or known < row.count:
                        totals[row.word] = row.count
            if problem or torn:
                yield FILES, (UNREAD, problem) if problem else (TORN, torn)
        yield from self._lines(lines, of_feed=False)

    def _lines(self, lines: list[tuple[Numbers, Numbers, Numbers]], of_feed: bool) -> Iterator[Tallied]:
        """Of lines, partition, offset and number of words: to their buckets."""
        if not lines:
            return
        partitions, offsets, words = map(numpy.concatenate, zip(*lines, strict=True))
        buckets = self._buckets.of_lines(partitions, offsets)
        for bucket in numpy.unique(buckets).tolist():
            inside = buckets == bucket
            yield bucket, (of_feed, (partitions[inside], offsets[inside], words[inside]))

    def _words(self) -> Iterator[Tallied]:
        for of_feed, counts in ((True, self._counts), (False, self._totals)):
            dealt: dict[int, list[str]] = {}
            for word in counts:
                dealt.setdefault(self._buckets.of_word(word), []).append(word)
            for bucket, words in dealt.items():
                numbers = pyarrow.array([counts[word] for word in words], pyarrow.int64())
                yield bucket, (of_feed, (pyarrow.array(words, pyarrow.string()), numbers))
            counts.clear()

