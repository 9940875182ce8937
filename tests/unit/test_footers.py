"""What the footers of Parquet files tell before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.engine.errors import UsageError
from squall.pipeline.corpus import InputFile
from squall.pipeline.footers import check_footers
from squall.pipeline.side import find_side


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


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("time64[us]", "it as a text, or as a whole number"),
        ("time32[ms]", "it as a text, or as a whole number"),
        ("float16", "it as float32"),
        ("decimal256(39, 2)", "it as a text, or with 38 digits at most"),
        ("uuid", "it as a text"),
    ],
)
def test_types_that_spark_does_not_read_are_named(tmp_path: Path, kind: str, advice: str, inside: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    makers = {"decimal256(39, 2)": lambda: pa.decimal256(39, 2), "uuid": getattr(pa, "uuid", pa.null)}
    type_ = makers[kind]() if kind in makers else pa.type_for_alias(kind)
    if type_ == pa.null():
        pytest.skip("this pyarrow has no such type")
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"n": [1], "odd": pa.nulls(1, pa.list_(type_) if inside else type_)}), file)
    # Of the type as it is in the file: Parquet knows no UUID in a list before Arrow 22.
    found = parquet.read_schema(file).field("odd").type
    found = found.field(0).type if inside else found
    where = ", within it," if inside else ""
    said = f"{file} has column 'odd' with{where} type {found}, which Spark does not read; write {advice}"
    for check in (
        lambda: check_footers("parquet", [InputFile(file.name, str(file), file.stat().st_size)]),
        lambda: find_side(file),
    ):
        with pytest.raises(UsageError) as refused:
            check()
        assert str(refused.value) == said
