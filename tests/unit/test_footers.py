"""What the footers of Parquet files tell before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.engine.errors import UsageError
from squall.pipeline.corpus import InputFile
from squall.pipeline.footers import check_footers


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("inside", [False, True])
def test_timestamps_that_spark_has_no_type_for_are_named(tmp_path: Path, unit: str, inside: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    file, kind = tmp_path / "a.parquet", pa.timestamp(unit)
    column = pa.array([{"at": 1}], pa.struct([("at", kind)])) if inside else pa.array([1], kind)
    parquet.write_table(pa.table({"n": [1], "seen": column}), file)
    files = [InputFile(file.name, str(file), file.stat().st_size)]
    if unit == "us":
        check_footers("parquet", files)
        return
    with pytest.raises(UsageError) as found:
        check_footers("parquet", files)
    where = "seen.at" if inside else "seen"
    said = f"has timestamps in nanoseconds in column '{where}'; write them in microseconds (pyarrow: coerce_timestamps="
    assert str(found.value).startswith(f"{file} {said}")
