"""What `squall verify --by` can compare, and what it refuses before Java starts."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from pathlib import Path

import pytest

from squall import FeedSpout
from squall.engine.errors import UsageError
from squall.pipeline.feed.manifest import Manifest, PartFile, Partition
from squall.pipeline.side import find_side

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def put(path: Path, **columns: list[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_files_by_their_endings(tmp_path: Path) -> None:
    for name, kind in (("a.csv", "CSV"), ("A.CSV.GZ", "CSV"), ("a.jsonl", "JSON"), ("a b.ndjson", "JSON")):
        (tmp_path / name).write_text("")
        side = find_side(tmp_path / name)
        assert (side.kind, side.files) == (kind, (str(tmp_path / name),))


def test_a_directory_holds_files_of_one_kind_at_any_depth(tmp_path: Path) -> None:
    put(tmp_path / "day=2" / "b.parquet", n=[1])
    put(tmp_path / "day=1" / "a.parquet", n=[1])
    put(tmp_path / "_temporary" / "c.parquet", other=[1])
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".a.parquet.crc").write_text("")
    side = find_side(tmp_path)
    assert side.kind == "Parquet"
    assert side.files == (f"{tmp_path}/day=1/a.parquet", f"{tmp_path}/day=2/b.parquet")


def test_the_log_of_a_streaming_query_says_what_is_complete(tmp_path: Path) -> None:
    put(tmp_path / "in.parquet", n=[1])
    put(tmp_path / "not in.parquet", n=[1])
    (tmp_path / "_spark_metadata").mkdir()
    entry = json.dumps({"path": f"file://{tmp_path}/in.parquet", "action": "add"})
    (tmp_path / "_spark_metadata" / "0").write_text(f"v1\n{entry}")
    assert find_side(tmp_path).files == (f"{tmp_path}/in.parquet",)


def test_a_feed_whose_files_are_not_those_of_its_manifest_is_named(tmp_path: Path) -> None:
    file = put(tmp_path / "rows" / "0.parquet", n=[1])
    listed = PartFile("rows/0.parquet", 1, file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest())
    manifest = Manifest("input", (Partition(0, 1, (listed,)),), 1, 0, 0, 1)
    (tmp_path / "_feed.json").write_text(json.dumps(manifest.to_dict()))
    assert find_side(tmp_path).files == (str(file),)
    put(file, n=[2])
    assert file.stat().st_size == listed.bytes
    with pytest.raises(UsageError, match=r"is damaged: rows/0\.parquet was changed after squall prepare wrote it"):
        find_side(tmp_path)
    put(file, n=[2], more=["x"])
    with pytest.raises(UsageError, match=rf"rows/0\.parquet has \d+ bytes instead of {listed.bytes}"):
        FeedSpout(tmp_path, ["n"])


def test_a_word_counts_result_is_of_totals(tmp_path: Path) -> None:
    for name in ("counts", "ledger"):
        (tmp_path / name).mkdir()
    assert find_side(tmp_path).is_of_totals


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(UsageError) as caught:
            find_side(path)
        said = str(caught.value)
        assert "\n" not in said
        return said.replace(str(tmp_path), "AT")

    allowed = "allowed: a feed, a result of examples/word_count.py, or .parquet, .csv, .json or .jsonl files"
    assert refused(tmp_path / "none") == f"AT/none does not exist; {allowed}"
    assert refused(tmp_path) == f"AT holds no data file; {allowed}"
    (tmp_path / "notes.txt").write_text("")
    assert refused(tmp_path / "notes.txt") == f"AT/notes.txt cannot be compared; {allowed}"
    assert refused(tmp_path) == f"AT holds 'notes.txt', which cannot be compared; {allowed}"
    os.mkfifo(tmp_path / "pipe.csv")
    assert refused(tmp_path / "pipe.csv") == f"AT/pipe.csv cannot be compared; {allowed}"
    both = tmp_path / "both"
    put(both / "a.parquet", n=[1])
    (both / "b.csv").write_text("n\n1\n")
    assert refused(both) == f"AT/both holds files of several kinds (CSV, Parquet); {allowed}"
    (tmp_path / "a:b.csv").write_text("n\n1\n")
    assert refused(tmp_path / "a:b.csv").startswith("AT/a:b.csv has a colon in its name")


def test_a_header_that_names_a_column_twice_is_refused(tmp_path: Path) -> None:
    for name, header, said in (
        ("a.csv", b"k,k,v\n1,2,3\n", "two columns 'k', in its header"),
        ("b.csv", b"\n\"k\",v,K\n1,2,3\n", "two columns 'k' and 'K', which Spark takes for one, in its header"),
        ("c.csv", b"\xef\xbb\xbf\"a \"\"\nb\",v,\"a \"\"\nb\"\n", r"""two columns 'a "\nb', in its header"""),
        ("d.csv.gz", gzip.compress(b"v,k,v"), "two columns 'v', in its header"),
    ):
        (tmp_path / name).write_bytes(header)
        with pytest.raises(UsageError) as caught:
            find_side(tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name} has {said}; allowed: different names"
    good = (b"", b"k,,,v\n", b"k0,k1\n", gzip.compress(b"k,v\n")[:-9], b"k,k \n")
    for number, data in enumerate(good):
        file = tmp_path / f"{number}.csv{'.gz' * (data[:1] == gzip.compress(b'')[:1])}"
        file.write_bytes(data)
        assert find_side(file).files == (str(file),)


def test_parquet_files_are_opened_first(tmp_path: Path) -> None:
    first, second = put(tmp_path / "a.parquet", n=[1], m=[1]), tmp_path / "b.parquet"
    second.write_bytes(first.read_bytes()[:-9])
    with pytest.raises(UsageError, match=rf"^{second} is damaged: "):
        find_side(tmp_path)
    put(second, n=["1"], m=[1])
    with pytest.raises(UsageError, match=r"do not agree: column 'n' is string in b\.parquet, int64 in a\.parquet$"):
        find_side(tmp_path)
    put(second, n=[1])
    with pytest.raises(UsageError, match=r"do not agree: column 'm' is missing in b\.parquet, int64 in a\.parquet$"):
        find_side(tmp_path)
