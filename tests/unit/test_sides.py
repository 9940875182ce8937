"""What `squall verify` can compare, and what it refuses before Java starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall import UsageError
from squall.pipeline.verify import ALLOWED, Request, Tolerance, find_side, parse_tolerances

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def put(path: Path, **columns: list[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_files_by_their_endings_and_directories_of_one_kind_at_any_depth(tmp_path: Path) -> None:
    for name, kind in (("a.csv", "CSV"), ("A.CSV.GZ", "CSV"), ("a.jsonl", "JSON"), ("a b.ndjson", "JSON")):
        (tmp_path / name).write_text("")
        assert find_side(tmp_path / name)[1:] == (kind, (str(tmp_path / name),))
    folder = tmp_path / "folder"
    for name in ("day=2/b.parquet", "day=1/a.parquet", "_temporary/c.parquet"):
        put(folder / name, n=[1])
    (folder / ".a.parquet.crc").write_text("")
    assert find_side(folder)[1:] == ("Parquet", (f"{folder}/day=1/a.parquet", f"{folder}/day=2/b.parquet"))


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(UsageError) as caught:
            find_side(path)
        return str(caught.value).replace(str(tmp_path), "AT")

    assert refused(tmp_path / "none") == f"AT/none does not exist; {ALLOWED}"
    assert refused(tmp_path) == f"AT holds no data file; {ALLOWED}"
    (tmp_path / "notes.txt").write_text("")
    assert refused(tmp_path / "notes.txt") == refused(tmp_path) == f"AT/notes.txt cannot be compared; {ALLOWED}"
    put(tmp_path / "both/a.parquet", n=[1])
    (tmp_path / "both/b.csv").write_text("n\n1\n")
    assert refused(tmp_path / "both") == f"AT/both holds files of several kinds (CSV, Parquet); {ALLOWED}"


def test_tolerances_are_joined_for_all_columns_and_for_one() -> None:
    request = Request(("k",), tolerances=parse_tolerances(["0.5", "1%", "p99=2", "a=b=3%", "0.25"]))
    wanted = {"any": Tolerance(0.25, 0.01), "p99": Tolerance(2, 0), "a=b": Tolerance(0, 0.03)}
    assert {name: request.tolerance(name) for name in wanted} == wanted
    assert not Request(("k",)).tolerance("any")
    for text in ("", "=1", "x=", "-1", "nan", "inf", "%", "a=1%%", "one", "a=-0.1%"):
        with pytest.raises(UsageError, match=r"^--tolerance is '.*'; give a number from 0 \(0\.01\), a percentage"):
            parse_tolerances([text])
