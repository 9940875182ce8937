"""`squall verify LEFT RIGHT --by KEY`: every kind of difference, every rule of equality, and wrong use."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import csv, parquet

from tests.spark.by_key import Sides, command, document, kinds, refusal

pytestmark = pytest.mark.usefixtures("spark")
NAN, INF = float("nan"), float("inf")
BIG = 2**53


def any_value(draw: random.Random, kind: str) -> Any:
    if draw.random() < 0.1:
        return None
    match kind:
        case "whole":
            return draw.choice([0, -1, BIG, BIG + 1, draw.randrange(-(2**62), 2**62)])
        case "text":
            return draw.choice(["", " ", "null", 'a "b", c', "x\ny", "\U0001f600", f"{draw.random()}"])
        case "decimal":
            return Decimal(draw.randrange(-(10**9), 10**9)) / 1000
        case "day":
            return datetime.date(2026, 1, 1) + datetime.timedelta(draw.randrange(400))
    return draw.choice([0.0, 0.1, 1e23, 5e-324, -1e300, draw.random()])


KINDS_OF_VALUES = ("whole", "text", "decimal", "day", "real")


SCHEMA = pyarrow.schema({
    "k": "int64", "whole": "int64", "text": "string", "decimal": pyarrow.decimal128(20, 3), "day": "date32",
    "real": "float64",
})


def written(sides: Sides, name: str, rows: list[dict[str, Any]], form: str) -> Path:
    if form == "json":
        # Decimals as numbers, with every digit.
        lines = (", ".join(f'"{key}": {json_text(value)}' for key, value in row.items()) for row in rows)
        return sides.text(f"{name}.jsonl", "".join(f"{{{line}}}\n" for line in lines))
    path, table = sides.base / f"{name}.{form}", pyarrow.Table.from_pylist(rows, SCHEMA)
    (parquet.write_table if form == "parquet" else csv.write_csv)(table, path)
    return path


def json_text(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else json.dumps(value, default=str)


@pytest.mark.parametrize("forms", [("parquet", "csv"), ("json", "parquet"), ("csv", "json")])
def test_of_equal_rows_one_changed_cell_is_named(sides: Sides, forms: tuple[str, str], seed: int) -> None:
    draw = random.Random(seed)
    rows = [{"k": number, **{kind: any_value(draw, kind) for kind in KINDS_OF_VALUES}} for number in range(40)]
    left = written(sides, "left", rows, forms[0])
    row, kind = draw.randrange(40), draw.choice(KINDS_OF_VALUES)
    changed = [dict(one) for one in draw.sample(rows, len(rows))]
    [spoilt] = [one for one in changed if one["k"] == row]
    while spoilt[kind] == rows[row][kind]:
        spoilt[kind] = any_value(draw, kind)
    found = document(left, written(sides, "right", changed, forms[1]), "--by", "k")
    (example,) = found["examples"]
    assert (found["keys"]["equal"], example["kind"]) == (39, "different")
    assert (str(example["key"]["k"]), [*example["values"]]) == (str(row), [kind])


def test_many_columns_cost_little_more_than_one(sides: Sides) -> None:
    names = [f"c{number}" for number in range(12)]
    left, right = (sides.parquet(f"{value}", k=[1], **{name: [value] for name in names}) for value in (1.5, 2.5))
    (example,) = document(left, right, "--by", "k")["examples"]
    assert [*example["values"]] == names


def test_every_kind_of_difference_is_counted_and_shown(sides: Sides) -> None:
    left = sides.parquet("left", url=["/a", "/b", "/c", "/d", "/d", "/e"], day=[1] * 6, hits=[1, 2, 3, 4, 4, 5])
    right = sides.parquet("right", url=["/a", "/b", "/d", "/e", "/f"], day=[1] * 5, hits=[1, 7, 4, 5, 6])
    done = command(left, right, "--by", "url", "--by", "day")
    assert done.exit_code == 1
    for line in (
        f"LEFT   {left}: Parquet in 1 file, 6 rows, 1 of them repeated",
        "missing     url='/c', day=1: not on the right",
        "extra       url='/f', day=1: not on the left",
        "duplicated  url='/d', day=1: 2 rows on the left, 1 on the right",
        "different   url='/b', day=1: hits 2, not 7",
    ):
        assert line + "\n" in done.stdout
    assert ["hits", "1", "5", "-"] in [line.split() for line in done.stdout.splitlines()]
    assert ": 1 missing, 1 extra, 1 duplicated, 1 different\n" in done.stdout


def differing(left: Path, right: Path, *options: str) -> dict[str, int]:
    """In how many keys each compared column differs."""
    return {name: found["different"] for name, found in document(left, right, *options)["columns"].items()}


def test_a_tolerance_is_absolute_or_relative_for_all_columns_or_one(sides: Sides) -> None:
    near, nearby = [1.0, 100.0, -8.0], [1.5, 101.0, -8.0]
    left = sides.parquet("left", k=[1, 2, 3], any=near, half=near, part=near, whole=[BIG] * 3)
    right = sides.parquet("right", k=[1, 2, 3], any=nearby, half=nearby, part=nearby, whole=[BIG + 1] * 3)
    tolerances = ("0.5", "5%", "half=0.5", "part=5%", "whole=0.5")
    # Doubles tell the last ones not apart.
    assert differing(left, right, "--by", "k", *(word for text in tolerances for word in ("--tolerance", text))) == {
        "any": 0, "half": 1, "part": 1, "whole": 3,
    }


def test_nulls_nan_and_zeros_are_equal_to_themselves_alone(sides: Sides) -> None:
    """As keys, too, every one meets its own."""
    keys = [*range(1, 7), 0.0, None, NAN, INF]
    values = [None, NAN, 0.0, INF, -INF, None, NAN, INF, 1.0, 2.0]
    others = [None, NAN, -0.0, INF, -INF, NAN, 1.0, -INF, None, 2.0]
    left = sides.parquet("left", k=keys, v=values, near=values)
    right = sides.parquet("right", k=[-0.0 if key == 0 else key for key in keys], v=others, near=others)
    options = ("--by", "k", "--tolerance", "near=1e300", "--tolerance", "near=100%")
    assert differing(left, right, *options) == {"v": 4, "near": 4}
    assert kinds(left, right, *options) == {"equal": 6, "different": 4}


Columns = dict[str, list[Any]]
REVISED: Columns = {"k": ["a", "b", "c"], "n": [3, 5, 1]}
REPEATED: Columns = {"k": ["a", "a", "b", "b", "b", "c"], "n": [3, 3, 4, 5, 5, 1]}
TIES: Columns = {
    "k": ["differ"] * 3 + ["agree"] * 3 + ["before"] * 3 + ["nulls"] * 2,
    "at": [1, 2, 2, 1, 2, 2, 5, 4, 4, None, None], "n": [1, 2, 3, 1, 2, 2, 7, 1, 2, 1, 2],
}
LAST: Columns = {"k": ["differ", "agree", "before", "nulls"], "at": [2, 2, 5, 1], "n": [3, 2, 7, 2]}


def joined(first: Columns, second: Columns) -> Columns:
    """The rows of both, with a key each."""
    sides = {"place": [1] * len(first["k"]) + [2] * len(second["k"])}
    return {**sides, **{name: first[name] + second[name] for name in first}}


@pytest.mark.parametrize(("one", "other", "options", "wanted"), [
    (REVISED, REPEATED, "--repeats-ok", {"equal": 4, "duplicated": 2}),
    (REVISED, REPEATED, "--last n --compare n", {"equal": 6}),
    # Of rows that share the last, none is chosen by chance; what is not compared may differ.
    (TIES, LAST, "--last at", {"equal": 4, "duplicated": 4}),
    (TIES, LAST, "--last at --keys-only", {"equal": 8}),
])  # fmt: skip
def test_a_side_may_have_several_rows_of_a_key(
    sides: Sides, one: Columns, other: Columns, options: str, wanted: dict[str, int]
) -> None:
    """Either side."""
    left, right = sides.parquet("left", **joined(one, other)), sides.parquet("right", **joined(other, one))
    assert kinds(left, right, "--by", "place,k", *options.split()) == wanted


def test_texts_are_numbers_where_a_tolerance_or_the_last_is_asked_for(sides: Sides) -> None:
    """As CSV has nothing else."""
    left = sides.text("left.csv", "k,v,near\na,1,1\nb,2,2\nc,x,x\n")
    right = sides.text("right.csv", "k,v,near\na,1.0,1.0\nb,2.5,2.5\nc,x,x\n")
    assert differing(left, right, "--by", "k", "--tolerance", "near=0.1") == {"v": 2, "near": 1}
    # Only one side has revisions, and they are not compared; 10 is above 9.
    left = sides.parquet("left", **REVISED)
    right = sides.text("right.csv", "k,n,revision\na,9,9\na,3,10\nb,5,1\nc,1,\n")
    assert kinds(left, right, "--by", "k", "--last", "revision") == {"equal": 3}


def test_numbers_of_different_types_are_compared_without_loss(sides: Sides) -> None:
    left = sides.parquet(
        "left", n=pyarrow.array([1, 2], pyarrow.int8()), whole=[BIG, BIG + 1], mixed=[BIG, BIG + 1],
        decimal=[Decimal("1.10"), Decimal("2.00")], real=[0.5, 2.0], when=[datetime.datetime(2026, 1, 1)] * 2,
    )
    right = sides.parquet(
        "right", n=[1, 2], whole=[BIG, BIG], mixed=[float(BIG), float(BIG)],
        decimal=[Decimal("1.1000"), Decimal("2.0001")], real=[1, 2],
        when=[datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)] * 2,
    )
    found = document(left, right, "--by", "n")["columns"]
    assert {name: entry["different"] for name, entry in found.items()} == {
        "whole": 1, "mixed": 1, "decimal": 1, "real": 1, "when": 0,
    }
    left = sides.json("left", f"{BIG + 1}", "1.5", "0.10", "1e2", "0.1")
    right = sides.json("right", f"{BIG}", "15e-1", "0.1", "100", "0.10000000000000001")
    assert [entry["key"]["k"] for entry in document(left, right, "--by", "k")["examples"]] == [0, 4]


def test_a_text_that_is_no_value_of_the_other_side_equals_none(sides: Sides) -> None:
    typed = sides.parquet("typed", day=[datetime.date(2026, 1, day) for day in (1, 2, 3)], n=[1, 2, None])
    spoilt = sides.text("b.csv", "n,day\none,2026-01-01\n2,today\n,tomorrow\n")
    found = document(typed, spoilt, "--by", "day")
    assert found["keys"] == {"equal": 0, "missing": 2, "extra": 2, "duplicated": 0, "different": 1}
    assert [entry["key"]["day"] for entry in found["examples"] if entry["kind"] == "extra"] == ["today", "tomorrow"]
    assert found["examples"][-1]["values"] == {"n": ["1", "one"]}


def test_nested_values_partition_folders_and_odd_names(sides: Sides) -> None:
    odd = "a.b `c` d"
    for name, last in (("left", 3), ("right", 4)):
        rows = {odd: [1, 2], "list": [[1], [2, last]], "raw": [b"\0", b"\xff"]}
        for day in (1, 2):
            sides.parquet(f"{name} [1]*/day={day}/x", **rows)
    left, right = (sides.base / f"{name} [1]*" for name in ("left", "right"))
    found = document(left, right, "--by", f"day,{odd}")
    assert found["keys"] == {"equal": 2, "missing": 0, "extra": 0, "duplicated": 0, "different": 2}
    assert found["examples"][0]["key"] == {"day": 1, odd: 2}
    assert found["examples"][0]["values"] == {"list": ["[2,3]", "[2,4]"]}


def test_hostile_texts_stay_on_their_line_and_long_ones_are_cut(sides: Sides) -> None:
    hostile = "\x1b[2Jx\nforged\u202e" + "y" * 5000
    left = sides.parquet("left", k=[hostile], **{"v\x1b": [hostile]})
    right = sides.parquet("right", k=[hostile], **{"v\x1b": ["b"]})
    done = command(left, right, "--by", "k")
    assert "\x1b" not in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("different")]
    assert len(line) < 400
    assert len(command(left, right, "--by", "k", "--json").stdout) < 4000


def test_wrong_use_is_told_in_one_line(sides: Sides) -> None:
    left, right = sides.parquet("left", k=[1], a=[1], v=[1]), sides.parquet("right", k=[1], b=[1], v=[1])
    for options, complaint in {
        ("--by", "x"): "left.parquet has no column 'x'; it has k, a, v",
        ("--by", "k"): "right.parquet has no column 'a', which the other side has; name the columns to compare",
        ("--by", "k", "--last", "z", "--keys-only"): "--last is 'z', a column of neither side",
        ("--by", "k", "--compare", "v", "--tolerance", "a=1"): "--tolerance is for column 'a', which is not compared",
        ("--by", "k", "--compare", "k"): "--by and --compare name 'k' twice",
        ("--by", "k", "--compare", "v", "--keys-only"): "--compare and --keys-only exclude each other",
    }.items():
        assert complaint in refusal(left, right, *options)


def test_data_that_cannot_be_read_is_named(sides: Sides) -> None:
    good = sides.parquet("good", k=[1], v=["a"])
    wanted = {
        sides.text("short.csv", "k,v\n1\n"): "short.csv: Malformed CSV record: 1",
        sides.text("torn.jsonl", '{"k":1,"v":"a"}\n{"k":'): "torn.jsonl cannot be compared: ",
        sides.text("two.jsonl", '{"k":1,"v":"a"} {"k":2}\n'): "two.jsonl has a line that is not one record",
    }
    for name, content in (("bytes.csv", b"k,v\n1,a\n2,\xff\n"), ("bytes.jsonl", b'{"k":1,"v":"\xff"}\n')):
        (sides.base / name).write_bytes(content)
        wanted[sides.base / name] = f"{name} is not UTF-8; the line begins with"
    data = bytearray(sides.parquet("bad", k=list(range(1000)), v=["a"] * 1000).read_bytes())
    data[10:2000] = bytes(1990)
    (sides.base / "bad.parquet").write_bytes(data)
    wanted[sides.base / "bad.parquet"] = "bad.parquet: "
    for bad, complaint in wanted.items():
        assert complaint in refusal(good, bad, "--by", "k")
