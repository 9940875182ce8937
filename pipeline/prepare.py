"""Turns text files into a feed with Spark: `squall prepare`.

Guarantees that FEED is either what it was before or a complete new feed, whenever this process is killed: everything is
written to FEED.tmp-... beside it, the manifest last, and the directory is renamed when it is complete. The same input
and number of partitions give the same rows. No line is left out silently: one that is not text is in the quarantine
table with the reason. Relies on FEED's parent being one file system that knows rename and flock. One run at a time
writes a FEED; a second one is refused.

::

    find_files ─► balance ─► one Spark task per partition: read_file ─► records ─┬─ text ────► FEED/lines
                                                                                └─ refused ──► FEED/quarantine
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.engine.errors import UsageError
from squall.engine.plural import plural
from squall.pipeline.corpus import Corpus, InputFile, balance, find_files, read_file
from squall.pipeline.feed import LINES_NAME, MANIFEST_NAME, QUARANTINE_NAME, Manifest, PartFile, Partition
from squall.pipeline.session import spark_session
from squall.pipeline.staging import siblings, staged

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, Row, SparkSession

DEFAULT_PARTITIONS = 4
#: Most partitions: each is a task and a file, so more are a mistake on one machine.
MAX_PARTITIONS = 1024
#: Most rows and bytes that a Python worker hands to Spark at a time: they bound its memory, whatever the input.
BATCH_ROWS = 8192
BATCH_BYTES = 4 << 20
#: Bytes of a row group, the unit that a spout starting in the middle can skip; Parquet's default of 128 MiB is coarse.
ROW_GROUP_BYTES = 4 << 20
_PARQUET_OPTIONS = {
    "parquet.block.size": ROW_GROUP_BYTES,
    # Rows until the size is checked; Parquet's default of 100 could be 100 MiB of the longest lines.
    "parquet.block.size.row.check.min": 4,
    "parquet.page.size.row.check.min": 4,
}
#: Quarantined lines and skipped files shown by name: enough for examples.
SHOWN = 10

_RECORD_SCHEMA = (
    "partition int, `offset` bigint, path string, line_no int, text string, words int, reason string, raw binary"
)

#: Called with one line about the present step.
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """The outcome of prepare: the manifest, and the first few lines and files that are not in the feed, by name."""

    feed: Path
    manifest: Manifest
    quarantine_shown: tuple[str, ...]
    skipped_shown: tuple[str, ...]


def prepare(
    source: Path,
    feed: Path,
    *,
    partitions: int = DEFAULT_PARTITIONS,
    pattern: str | None = None,
    overwrite: bool = False,
    progress: Progress = lambda line: None,
) -> Prepared:
    """Make `feed` from the text files in `source`. Wrong use is refused before the JVM starts."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise UsageError(f"partitions is {partitions}; allowed: 1 to {MAX_PARTITIONS}")
    target = feed.resolve()
    if target in (source.resolve(), *source.resolve().parents):
        raise UsageError(f"feed {feed} would replace its own input {source}; choose another directory")
    progress(f"looking for text files in {source}")
    corpus = find_files(source, pattern, exclude=[target, *siblings(target)])
    if not corpus.files:
        matching = f" matching {pattern}" if pattern else ""
        raise UsageError(f"input {source} has no text file{matching}{_skipped_note(len(corpus.skipped_binary))}")
    with staged(target, overwrite) as staging:
        progress(f"found {plural(len(corpus.files), 'file')}, starting Spark")
        with spark_session("squall prepare") as spark:
            manifest, samples = _write(spark, corpus, staging, partitions, progress)
        if manifest.rows == 0:
            raise UsageError(
                f"input {source} has no line of text: {plural(len(corpus.files), 'file')} read, "
                f"{plural(manifest.quarantined, 'line')} quarantined{_skipped_note(len(corpus.skipped_binary))}"
            )
        _write_manifest(staging, manifest)
    return Prepared(feed, manifest, samples, corpus.skipped_binary[:SHOWN])


def _write(
    spark: SparkSession, corpus: Corpus, staging: Path, partitions: int, progress: Progress
) -> tuple[Manifest, tuple[str, ...]]:
    from pyspark import StorageLevel

    plan = balance(corpus.files, partitions)
    progress(f"reading {plural(len(corpus.files), 'file')} in {plural(partitions, 'partition')}")
    # Cached, not recomputed for each table: a file might change meanwhile.
    records = spark.range(0, partitions, 1, partitions).mapInArrow(_reader(plan), _RECORD_SCHEMA)
    records = records.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        lines = records.where("reason is null").select("partition", "offset", "path", "line_no", "text")
        lines.write.options(**_PARQUET_OPTIONS).parquet(str(staging / LINES_NAME))
        refused = records.where("reason is not null").select("partition", "path", "line_no", "reason", "raw")
        progress("writing the quarantine table and counting")
        refused.coalesce(1).write.parquet(str(staging / QUARANTINE_NAME))
        manifest = _summarise(records, refused, corpus, _part_files(staging, partitions))
        samples = refused.orderBy("path", "line_no").limit(SHOWN).collect() if manifest.quarantined else []
    finally:
        records.unpersist()
    return manifest, tuple(_location(row) + row.reason for row in samples)


def _location(refused: Row) -> str:
    return f"{refused.path}:{refused.line_no}: " if refused.line_no else f"{refused.path}: "


def _summarise(records: DataFrame, refused: DataFrame, corpus: Corpus, files: list[tuple[PartFile, ...]]) -> Manifest:
    from pyspark.sql import functions

    total = records.agg(functions.sum("words"), functions.sum(functions.octet_length("text"))).collect()[0]
    reasons = {row["reason"]: int(row["count"]) for row in refused.groupBy("reason").count().collect()}
    return Manifest(
        input=str(Path(corpus.root).absolute()),
        partitions=tuple(
            Partition(partition, sum(file.rows for file in chosen), chosen) for partition, chosen in enumerate(files)
        ),
        words=int(total[0] or 0),
        quarantined=sum(reasons.values()),
        skipped_binary=len(corpus.skipped_binary),
        bytes=int(total[1] or 0),
        files=len(corpus.files),
        quarantine_reasons=dict(sorted(reasons.items())),
    )


def _part_files(staging: Path, partitions: int) -> list[tuple[PartFile, ...]]:
    """The files of each partition, in the order of offset that their footers give."""
    import pyarrow.parquet as parquet

    found: list[list[tuple[int, PartFile]]] = [[] for _ in range(partitions)]
    for path in (staging / LINES_NAME).glob("*.parquet"):
        metadata = parquet.read_metadata(path)
        if metadata.num_rows:
            group = metadata.row_group(0)
            partition, first_offset = (group.column(index).statistics.min for index in (0, 1))
            found[partition].append((first_offset, PartFile(f"{LINES_NAME}/{path.name}", metadata.num_rows)))
    return [tuple(file for _, file in sorted(files, key=lambda pair: pair[0])) for files in found]


def _write_manifest(staging: Path, manifest: Manifest) -> None:
    temporary = staging / f"{MANIFEST_NAME}.tmp"
    temporary.write_text(json.dumps(manifest.to_dict(), indent=2) + "\n", encoding="utf-8")
    temporary.rename(staging / MANIFEST_NAME)


def _reader(plan: list[list[InputFile]]) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                yield from record_batches(partition, plan[partition])

    return read


def record_batches(partition: int, files: list[InputFile]) -> Iterator[pyarrow.RecordBatch]:
    """Make all records of one partition, with offsets from 0. Runs in Spark's Python workers."""
    rows: list[tuple[Any, ...]] = []
    rows_bytes = offset = 0
    for file in files:
        for line in read_file(file):
            if line.text is None:
                rows.append((None, file.name, line.line_no, None, None, line.reason, line.raw))
                rows_bytes += len(line.raw or b"")
            else:
                rows.append((offset, file.name, line.line_no, line.text, len(line.text.split()), None, None))
                rows_bytes += len(line.text)
                offset += 1
            if len(rows) >= BATCH_ROWS or rows_bytes >= BATCH_BYTES:
                yield _batch(partition, rows)
                rows, rows_bytes = [], 0
    if rows:
        yield _batch(partition, rows)


def _batch(partition: int, rows: list[tuple[Any, ...]]) -> pyarrow.RecordBatch:
    import pyarrow

    types = {
        "offset": pyarrow.int64(),
        "path": pyarrow.string(),
        "line_no": pyarrow.int32(),
        "text": pyarrow.string(),
        "words": pyarrow.int32(),
        "reason": pyarrow.string(),
        "raw": pyarrow.binary(),
    }
    columns = zip(zip(*rows, strict=True), types.values(), strict=True)
    arrays = [pyarrow.array(values, type_) for values, type_ in columns]
    whole = pyarrow.array([partition] * len(rows), pyarrow.int32())
    return pyarrow.RecordBatch.from_arrays([whole, *arrays], ["partition", *types])


def _skipped_note(count: int) -> str:
    return f", {plural(count, 'binary file')} skipped" if count else ""
