"""The data source "squall": what `ParquetSink` has written, as a table or as a stream of Spark's.

::

    register(spark)
    spark.read.format("squall").load(DIR)          all files that are complete now
    spark.readStream.format("squall").load(DIR)    those, and then each new one

Guarantees that each file is read once by a query, however often that is stopped, killed and begun again from its
checkpoint: an offset is the number of the next file, and numbers have no gap. Files that were removed before they were
read, and a directory that was begun anew under the same name, are errors, never skipped. Memory for one batch of rows.

Relies on PySpark 4.2 or newer, and on files never changing. Spark makes these objects in processes of its own: one
plans for the whole query, others read. Rows that are in the files twice come twice: see `_message_id` in docs/spark.md.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.pipeline.part_reader import named_errors
from squall.pipeline.read_types import cast, check_types
from squall.pipeline.sink_dir import SCHEMA_NAME, About, id_of, load_about, numbers_in, part_name

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
except ImportError as error:
    raise UsageError(f'format "squall" needs PySpark 4.2 or newer ({error}): pip install "squall[spark]"') from error

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

NAME = "squall"
MAX_FILES = "maxFilesPerTrigger"
OPTIONS = ("path", MAX_FILES)
BATCH_ROWS = 8192
#: Bytes of files that one task of Spark's reads: a task for each small file would cost more than its rows.
TASK_BYTES = 16 << 20


def register(spark: SparkSession) -> None:
    """Make the format "squall" known to a session."""
    spark.dataSource.register(SquallDataSource)


class Files(InputPartition):
    """What one task reads."""

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__([*numbers])
        self.numbers = [*numbers]


class SquallDataSource(DataSource):
    """A directory of a ParquetSink. Options: `path`; `maxFilesPerTrigger`, for streams."""

    def __init__(self, options: dict[str, str]) -> None:
        """UsageError if there is another option, or a wrong value."""
        super().__init__(options)
        _check_options(options)
        self._most_files = _max_files(options.get(MAX_FILES))

    @classmethod
    def name(cls) -> str:
        return NAME

    @property
    def path(self) -> Path:
        path = self.options.get("path")
        if not path:
            raise UsageError('format "squall" needs the directory of a ParquetSink: load(DIR)')
        return Path(path.removeprefix("file://")).absolute()

    def schema(self) -> StructType:
        about = load_about(self.path)
        if about is None:
            missing = "is not a directory" if self.path.exists() else "does not exist"
            what = "has no files of a ParquetSink yet" if self.path.is_dir() else missing
            raise UsageError(f"{self.path} {what}: begin later, or give the columns with .schema(...)")
        return spark_schema(about)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(self.path, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(self.path, schema, self._most_files)


def _check_options(options: Mapping[str, str]) -> None:
    known = {name.casefold(): name for name in OPTIONS}
    for name in options:
        if name.casefold() not in known:
            near = difflib.get_close_matches(name.casefold(), known, n=1)
            hint = f"; did you mean {known[near[0]]}? Allowed" if near else "; allowed"
            raise UsageError(f'format "squall" has no option {name}{hint}: {", ".join(OPTIONS)}')


def _max_files(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise UsageError(f"option {MAX_FILES} is {text!r}; allowed: an integer from 1 up")
    return int(text)


def spark_schema(about: About) -> StructType:
    """Spark's types for the columns of a directory. UsageError if it has none for one of them."""
    import pyarrow

    made = StructType()
    for field in about.schema:
        try:
            made.add(from_arrow_schema(pyarrow.schema([field]), prefer_timestamp_ntz=True)[0])
        except PySparkException as error:
            raise UsageError(
                f"column {field.name!r} of {about.path} is {field.type}, a type that Spark does not have"
            ) from error
    return made


class FileReader:
    """Reads files, in whatever process."""

    def __init__(self, path: Path, schema: StructType) -> None:
        self.path = path
        self.schema = schema

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        from pyarrow import parquet

        numbers: list[int] = partition.value or []
        schema = to_arrow_schema(self.schema, timezone="UTC")
        for number in numbers:
            name = part_name(number)
            with (
                named_errors(self.path, name),
                parquet.ParquetFile(self.path / name, page_checksum_verification=True) as file,
            ):
                check_types(self.path, file.schema_arrow, schema)
                for batch in file.iter_batches(BATCH_ROWS, columns=schema.names, use_threads=False):
                    yield cast(batch, schema, self.path / name)

    def plan(self, begin: int, end: int) -> list[InputPartition]:
        """Share the files from `begin` on, below `end`, out to tasks. UsageError if one is gone."""
        tasks: list[list[int]] = []
        room = 0
        for number in range(begin, end):
            try:
                size = os.stat(self.path / part_name(number)).st_size
            except FileNotFoundError:
                raise UsageError(
                    f"{self.path / part_name(number)} was removed before it was read; files go up to number {end - 1}"
                ) from None
            if not tasks or size > room:
                tasks.append([])
                room = TASK_BYTES
            tasks[-1].append(number)
            room -= size
        return [Files(numbers) for numbers in tasks]


class TableReader(FileReader, DataSourceReader):
    """For `spark.read`."""

    def partitions(self) -> list[InputPartition]:
        _check(self.path)
        numbers = numbers_in(self.path)
        return self.plan(numbers[0], numbers[-1] + 1) if numbers else []


class Offset(NamedTuple):
    """Where a stream is."""

    next: int
    """The number of the next file."""
    directory: str
    """The id of the directory; empty while it has none."""
    last: str
    """The id of the file before; empty if there was none to look at."""

    @classmethod
    def of(cls, data: Any) -> Offset:
        try:
            return cls(int(data["next"]), str(data["directory"]), str(data["last"]))
        except (KeyError, TypeError, ValueError):
            raise UsageError(f"the checkpoint has the offset {repr_of(data)}, which is none of this source") from None

    @property
    def data(self) -> dict[str, Any]:
        return self._asdict()


class StreamReader(FileReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """For `spark.readStream`."""

    def __init__(self, path: Path, schema: StructType, max_files: int | None) -> None:
        super().__init__(path, schema)
        self._max_files = max_files
        self._ids: dict[str, tuple[tuple[int, int], str]] = {}
        """Those read last: name -> (identity of the file on disk, id)."""
        self._until: int | None = None
        """With the trigger "available now": the number at which the query ends."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._max_files is None else ReadMaxFiles(self._max_files)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._offset(self._all()[0]).data

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = Offset.of(start)
        self._check(begin)
        end = self._end(begin.next)
        if self._until is not None:
            end = max(begin.next, min(end, self._until))
        if isinstance(limit, ReadMaxFiles):
            end = min(end, begin.next + limit.max_files)
        return start if end == begin.next else self._offset(end).data

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._all()[1]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin = Offset.of(start)
        self._check(begin)
        return self.plan(begin.next, Offset.of(end).next)

    def _end(self, begin: int) -> int:
        """The number after the last file, from `begin` up."""
        # Spark asks a hundred times a second, and mostly there is no more: looking for one name is cheap.
        return self._all()[1] if (self.path / part_name(begin)).exists() else begin

    def _all(self) -> tuple[int, int]:
        """The numbers of the first file, and after the last."""
        numbers = numbers_in(self.path) if self.path.is_dir() else []
        return (numbers[0], numbers[-1] + 1) if numbers else (0, 0)

    def _offset(self, next_: int) -> Offset:
        return Offset(next_, self._id(SCHEMA_NAME), self._id(part_name(next_ - 1)) if next_ else "")

    def _id(self, name: str) -> str:
        """The id of a file, or of the directory; empty if there is no such file, or no more."""
        try:
            found = os.stat(self.path / name)
            identity = found.st_ino, found.st_mtime_ns
            if name not in self._ids or self._ids[name][0] != identity:
                about = load_about(self.path) if name == SCHEMA_NAME else None
                self._ids = {SCHEMA_NAME: self._ids.get(SCHEMA_NAME, ((0, 0), ""))}
                self._ids[name] = identity, id_of(self.path / name) if about is None else about.id
        except (FileNotFoundError, NotADirectoryError):
            return ""
        return self._ids[name][1]

    def _check(self, begin: Offset) -> None:
        """UsageError if the directory is not the one that was read before."""
        now = self._offset(begin.next)
        other = begin.directory not in ("", now.directory) or (now.last and begin.last not in ("", now.last))
        if other or (begin.next and not now.last and self._all()[1] <= begin.next):
            raise UsageError(
                f"{self.path} was removed or begun anew since this query read it up to file {begin.next - 1}; to read "
                "it from its first file, begin with a new checkpoint"
            )


def _check(path: Path) -> None:
    if load_about(path) is None and not path.is_dir():
        raise UsageError(f"{path} does not exist")

