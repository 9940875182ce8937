"""What `squall verify` compares, without Spark: a feed and a result tallied in buckets, and each bucket judged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from squall.pipeline.results import PIECE_BYTES, find_results, pieces_of

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from squall.pipeline.judging import SHOWN, Finding, fold, judge  # noqa: E402
from squall.pipeline.tally import LINES_OF_BUCKET, Buckets, FeedPiece, Piece, ResultPiece, Tally  # noqa: E402

LINES = LINES_OF_BUCKET + 1000
Line = tuple[int, int, int]


def feed_of(tmp_path: Path, texts: list[str], partition: int = 0) -> list[Piece]:
    name = f"{partition}.parquet"
    table = pyarrow.table({
        "partition": pyarrow.array([partition] * len(texts), "int32"), "offset": list(range(len(texts))), "text": texts,
    })
    parquet.write_table(table, tmp_path / name, row_group_size=10_000)
    groups = range(parquet.ParquetFile(tmp_path / name).num_row_groups)
    return [FeedPiece(str(tmp_path), name, group, 10_000) for group in groups]


def result_of(tmp_path: Path, lines: Iterable[Line], counts: Iterable[tuple[str, int]]) -> list[Piece]:
    rows: dict[str, list[dict[str, object]]] = {
        "ledger": [{"partition": partition, "offset": offset, "words": words} for partition, offset, words in lines],
        "counts": [{"word": word, "count": count} for word, count in counts],
    }
    pieces: list[Piece] = []
    for kind, found in rows.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
        pieces += [ResultPiece(kind, piece) for piece in pieces_of(find_results(tmp_path, kind))]
    return pieces


def findings(pieces: Iterable[Piece], rows: dict[int, int], tasks: int = 2) -> list[Finding]:
    """As Spark would: pieces in several tasks, their buckets together."""
    pieces, buckets = list(pieces), Buckets.of(rows, 100_000_000)
    together: dict[int, list[Any]] = {}
    for task in range(tasks):
        for bucket, tallied in Tally(buckets).rows(pieces[task::tasks]):
            together.setdefault(bucket, []).append(tallied)
    return fold([*fold(chain.from_iterable(map(judge, together.values()))), *fold([])])


def test_a_right_result_of_several_buckets_tasks_and_pieces(tmp_path: Path) -> None:
    texts = [f"w{line % 7} same" for line in range(LINES)]
    lines = [(0, offset, 2) for offset in range(LINES)]
    counts = [(f"w{rest}", len(range(rest, LINES, 7))) for rest in range(7)]
    pieces = feed_of(tmp_path, texts) + result_of(
        tmp_path, [*lines[::-1], *lines[-30_000:]], [*counts, ("same", 1), ("same", LINES)]
    )
    assert sum(isinstance(piece, ResultPiece) and piece.kind == "ledger" for piece in pieces) > 1, PIECE_BYTES
    for tasks in (1, 3):
        assert sorted(findings(pieces, {0: LINES}, tasks)) == [
            Finding("lines", "ok", LINES, 30_000), Finding("words", "ok", 8, 0),
        ]


def test_every_difference_counts_once_and_the_first_are_named(tmp_path: Path) -> None:
    texts, others = ["one two"] * 100, ["three"] * 3
    lines: list[Line] = [(0, offset, 2) for offset in range(100) if offset not in range(40, 60)]
    lines += [(4, 0, 1), (4, 1, 1), (4, 1, 0), (4, 2, 7)]
    # The feed has none of these: twice the same, at the end, before the begin, of another partition.
    lines += [(0, 100, 3), (0, 100, 3), (4, 3, 1), (4, -1, 1), (9, 5, 1), (0, 2**63 - 1, 0), (-(2**63), 0, 0)]
    counts = [("one", 100), ("two", 101), ("ghost", 0), ("ghost", -5)]
    pieces = feed_of(tmp_path, texts) + feed_of(tmp_path, others, 4) + result_of(tmp_path, lines, counts)
    found = findings(pieces, {0: 100, 4: 3})
    assert {(one.about, one.kind): (one.things, one.repeats) for one in found if one.things is not None} == {
        ("lines", "ok"): (81, 0), ("lines", "missing"): (20, 0), ("lines", "invented"): (6, 1),
        ("lines", "different"): (2, 1),
        ("words", "ok"): (1, 0), ("words", "missing"): (1, 0), ("words", "invented"): (1, 0),
        ("words", "different"): (1, 0),
    }
    named = {kind: [one for one in found if one.kind == kind and one.things is None] for kind in (
        "missing", "invented", "different")}
    assert [one.offset for one in named["missing"] if one.about == "lines"] == list(range(40, 40 + SHOWN))
    assert [(one.partition, one.offset) for one in named["invented"] if one.about == "lines"] == [
        (-(2**63), 0), (0, 100), (0, 2**63 - 1), (4, -1), (4, 3), (9, 5),
    ]
    assert [(one.offset, one.expected, one.told) for one in named["different"] if one.about == "lines"] == [
        (1, 1, 0), (2, 1, 7),
    ]
    assert [(one.word, one.expected, one.told) for kind in named for one in named[kind] if one.about == "words"] == [
        ("three", 3, None), ("ghost", None, 0), ("two", 100, 101),
    ]


def test_what_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    (piece, *_) = feed_of(tmp_path, ["a b"])
    assert isinstance(piece, FeedPiece)
    pieces = [piece, piece._replace(name="gone.parquet"), *result_of(tmp_path, [(0, 0, 2)], [("a", 1), ("b", 1)])]
    with (tmp_path / "ledger" / "a.jsonl").open("a") as file:
        file.write('{"parti')
    (tmp_path / "counts" / "b.jsonl").write_text("none\n")
    pieces = [*pieces[:2], *(
        ResultPiece(kind, one) for kind in ("ledger", "counts") for one in pieces_of(find_results(tmp_path, kind))
    )]
    found = {one.kind: one for one in findings(pieces, {0: 1})}
    assert found["torn"].word == "ledger/a.jsonl:2"
    assert (found["unread"].word or "").startswith("counts/b.jsonl:1 is not a row of the counts: ")
    assert "gone.parquet is missing" in (found["damaged"].word or "")
