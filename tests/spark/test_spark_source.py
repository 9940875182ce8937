"""The format "squall": Spark reads what a ParquetSink has written, each file once, over restarts of both."""

from __future__ import annotations

import datetime
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

from squall import Config, ParquetSink, Spout, TopologyBuilder, UsageError
from squall.testing import complete_topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)


class Rows(Spout):
    def __init__(self, fields: Sequence[str]) -> None:
        self.outputs = tuple(fields)


def write(out: Path, rows: Iterable[Sequence[Any]], fields: Sequence[str] = ("n",), **sink: Any) -> None:
    """Run a topology that writes rows."""
    builder = TopologyBuilder()
    builder.set_spout("rows", Rows(fields))
    builder.set_bolt("sink", ParquetSink(out, **sink)).shuffle_grouping("rows")
    complete_topology(builder.build(), {"rows": [tuple(row) for row in rows]}, Config(max_spout_pending=None))


@pytest.fixture
def squall(spark: SparkSession) -> SparkSession:
    from squall.pipeline.spark_source import register

    register(spark)
    return spark


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "o ut"


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row.n for row in frame.collect())


def test_a_directory_is_read_as_a_table(squall: SparkSession, out: Path) -> None:
    types = {
        "n": "int64", "te`x.t": "string", "when": "timestamp[us]", "ago": pyarrow.timestamp("us", tz="UTC"),
        "list": pyarrow.list_(pyarrow.float64()), "raw": "binary",
    }
    aware = NOW.replace(tzinfo=datetime.UTC)
    rows = [(n, f"\u2028{n}", NOW, aware, [n / 2], b"\xff\0") for n in range(50)]
    rows += [(n, *[None] * 5) for n in range(50, 60)]
    write(out, rows, list(types), schema=types, key="n", commit_rows=7)
    assert len(list(out.glob("*.parquet"))) == 9
    read = squall.read.format("squall").load(str(out))
    assert read.columns == ["_message_id", *types]
    found = {row.n: row for row in read.collect()}
    assert sorted(found) == list(range(60))
    assert [found[3]["_message_id"], *found[3]][1:] == ["[3]", *rows[3][:3], found[3].ago, *rows[3][4:]]
    assert found[3].ago.timestamp() == aware.timestamp()
    assert [*found[55]][2:] == [None] * 5
    # The same as Spark's own reader sees.
    plain = squall.read.parquet(str(out))
    assert read.schema == plain.schema
    assert read.exceptAll(plain).count() == plain.exceptAll(read).count() == 0
    # Rows that a topology wrote twice are dropped by their id.
    write(out, rows, list(types), key="n")
    assert squall.read.format("squall").load(str(out)).dropDuplicates(["_message_id"]).count() == 60


class Stream:
    """Queries one after the other, with one checkpoint; collects their batches."""

    def __init__(self, spark: SparkSession, out: Path, checkpoint: Path, **options: str) -> None:
        self.out, self.checkpoint = out, checkpoint
        self.batches: list[list[int]] = []
        self._reader = spark.readStream.format("squall").schema("n bigint").options(**options)

    def _note(self, frame: DataFrame, number: int) -> None:
        if found := numbers(frame):  # Spark may begin with an empty batch
            self.batches.append(found)

    @contextmanager
    def query(self, **trigger: Any) -> Iterator[StreamingQuery]:
        write_ = self._reader.load(str(self.out)).writeStream.foreachBatch(self._note)
        query = write_.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()
        try:
            yield query
        finally:
            query.stop()

    def now(self) -> list[list[int]]:
        """The batches of all that is there now."""
        self.batches = []
        with self.query(availableNow=True) as query:
            assert query.awaitTermination(60)
        return self.batches


def test_a_stream_reads_each_file_once_over_restarts(squall: SparkSession, out: Path, tmp_path: Path) -> None:
    stream = Stream(squall, out, tmp_path / "checkpoint", maxFilesPerTrigger="2")
    # It may begin before the topology.
    assert stream.now() == []
    write(out, [(n,) for n in range(5)], commit_rows=1)
    assert stream.now() == [[0, 1], [2, 3], [4]]
    write(out, [(n,) for n in range(5, 7)], commit_rows=1)
    assert stream.now() == [[5, 6]]
    # As after a kill between a batch and its commit: the same batch once more, and no other.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink()
    write(out, [(7,)])
    assert stream.now() == [[5, 6], [7]]
    # While it runs.
    with stream.query(processingTime="0 seconds") as query:
        for n in (8, 9):
            write(out, [(n,)])
            query.processAllAvailable()
    assert stream.batches[2:] == [[8], [9]]
    # Old files may go, when they have been read.
    for path in sorted(out.glob("*.parquet"))[:-1]:
        path.unlink()
    write(out, [(10,)])
    assert stream.now() == [[10]]
    assert numbers(squall.read.format("squall").load(str(out))) == [9, 10]


def test_the_page_shows_how(squall: SparkSession, out: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    (code,) = re.findall(r"^```python\n# read\.py\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for _ in range(2):
        write(tmp_path / "out", [(n,) for n in range(3)], key="n")
    names: dict[str, Any] = {"spark": squall}
    exec(code.replace("build/", f"{tmp_path}/"), names)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    assert numbers(names["rows"]) == [0, 1, 2]
    assert numbers(squall.read.parquet(f"{tmp_path}/copy")) == [0, 0, 1, 1, 2, 2]


def planner(out: Path, **options: str) -> Any:
    """What plans a query, without one."""
    from pyspark.sql.types import StructType

    from squall.pipeline.spark_source import SquallDataSource

    return SquallDataSource({"path": str(out), **options}).streamReader(StructType().add("n", "long"))


def test_what_was_removed_or_replaced_is_not_passed_over(out: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    everything = ReadAllAvailable()
    write(out, [(n,) for n in range(3)], commit_rows=1)
    plan = planner(out)
    three = plan.latestOffset(plan.initialOffset(), everything)
    assert three["next"] == 3
    assert planner(out).latestOffset(three, everything) == three
    write(out, [(n,) for n in range(3, 6)], commit_rows=1)
    six = plan.latestOffset(three, everything)
    (task,) = plan.partitions(three, six)
    assert task.numbers == [3, 4, 5]
    gone = sorted(out.glob("*.parquet"))[4]
    gone.rename(tmp_path / "kept")
    with pytest.raises(UsageError, match=rf"{gone} was removed before it was read"):
        plan.partitions(three, six)
    shutil.move(out, tmp_path / "old")
    anew = "was removed or begun anew since this query read it up to file 2"
    with pytest.raises(UsageError, match=anew):
        plan.latestOffset(three, everything)
    write(out, [(n,) for n in range(100)], commit_rows=10)
    for call in (lambda: plan.latestOffset(three, everything), lambda: planner(out).partitions(three, six)):
        with pytest.raises(UsageError, match=anew):
            call()
    # The last file that was read has been removed, and numbers are higher: only the directory is another.
    (out / "part-0000000002.parquet").rename(tmp_path / "kept")
    with pytest.raises(UsageError, match=anew):
        plan.latestOffset(three, everything)
    (tmp_path / "kept").rename(out / "part-0000000002.parquet")
    # The columns are those of before, the rows are others, or none.
    shutil.copy(tmp_path / "old" / "_common_metadata", out)
    with pytest.raises(UsageError, match=anew):
        plan.latestOffset(three, everything)
    for path in out.glob("*.parquet"):
        path.unlink()
    with pytest.raises(UsageError, match=anew):
        plan.latestOffset(three, everything)
    with pytest.raises(UsageError, match=r"the checkpoint has the offset \{'logOffset': 3\}, which is none"):
        plan.latestOffset({"logOffset": 3}, everything)
    with pytest.raises(UsageError, match="option maxFilesPerTrigger is 'many'; allowed: an integer from 1 up"):
        planner(out, maxFilesPerTrigger="many")


def test_an_unknown_option_is_refused_by_its_name(squall: SparkSession, out: Path) -> None:
    from pyspark.errors import PySparkException

    write(out, [(1,), (2,)])
    for name, said in {
        "maxFilesPerTriger": "; did you mean maxFilesPerTrigger? Allowed: path, maxFilesPerTrigger",
        "mergeSchema": "; allowed: path, maxFilesPerTrigger",
    }.items():
        with pytest.raises(UsageError, match=rf'^format "squall" has no option {name}{re.escape(said)}$'):
            planner(out, **{name: "1"})
        for reader in (squall.read, squall.readStream):
            with pytest.raises(PySparkException, match=rf'(?i)format "squall" has no option {name}; '):
                reader.format("squall").option(name, "1").load(str(out))
    # Spark's options are the same in any case, and two directories are none.
    assert numbers(squall.read.format("squall").option("MAXFILESPERTRIGGER", "1").load(str(out))) == [1, 2]
    with pytest.raises(PySparkException, match="has no option paths; did you mean path"):
        squall.read.format("squall").load([str(out), str(out)])


def test_wrong_use_is_named(squall: SparkSession, out: Path) -> None:
    from pyspark.errors import PySparkException

    def says(text: str, frame: Any) -> None:
        with pytest.raises(PySparkException) as caught:
            frame().collect()
        assert text in str(caught.value)

    read = squall.read.format("squall")
    says(f"UsageError: {out} does not exist: begin later, or give the columns", lambda: read.load(str(out)))
    out.write_text("")
    says(f"UsageError: {out} is not a directory: begin later", lambda: read.load(str(out)))
    out.unlink()
    says('UsageError: format "squall" needs the directory of a ParquetSink', read.load)
    write(out, [(1,)], schema={"n": "uint64"})
    says("is uint64, a type that Spark does not have", lambda: read.load(str(out)))
    says(f"UsageError: {out} has no column 'm'; allowed: n", lambda: read.schema("m bigint").load(str(out)))
    data = bytearray((out / "part-0000000000.parquet").read_bytes())
    data[4:40] = bytes(36)
    (out / "part-0000000000.parquet").write_bytes(data)
    says("is damaged: part-0000000000.parquet: ", lambda: read.schema("n bigint").load(str(out)))


def test_a_column_is_not_read_as_another_type(squall: SparkSession, out: Path) -> None:
    from pyspark.errors import PySparkException

    def read(schema: str) -> list[Any]:
        return [tuple(row) for row in squall.read.format("squall").schema(schema).load(str(out)).collect()]

    large = 2**40 + 5
    write(out, [(large, "300", 1.5)], ("n", "text", "ms"), schema={"n": "int64", "text": "string", "ms": "float64"})
    for column in ("n string", "n boolean", "n timestamp", "n double", "text bigint", "text binary", "ms float"):
        name = column.split()[0]
        found = {"n": "int64", "text": "string", "ms": "double"}[name]
        with pytest.raises(PySparkException, match=rf"column '{name}' of .*o ut is {found}, and cannot be read as"):
            read(column)
    with pytest.raises(PySparkException, match=r"part-0000000000\.parquet has a value .* not hold: Integer value "):
        read("n int")
    assert read("n decimal(20,0), text string") == [(large, "300")]


def test_the_columns_of_other_files_are_refused(out: Path) -> None:
    out.mkdir()
    pyarrow.parquet.write_metadata(pyarrow.schema([("n", pyarrow.int64())]), out / "_common_metadata")
    with pytest.raises(UsageError, match="_common_metadata is not of a ParquetSink"):
        ParquetSink(out)
