"""`squall verify LEFT RIGHT --by KEY`: every kind of difference, every rule of equality, and wrong use."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path

import pyarrow
import pytest

from squall.pipeline.prepare import prepare
from tests.spark.by_key import Sides, command, document, kinds, refusal

pytestmark = pytest.mark.usefixtures("spark")
NAN, INF = float("nan"), float("inf")


def test_every_kind_of_difference_is_counted_and_shown(sides: Sides) -> None:
    left = sides.parquet("left", url=["/a", "/b", "/c", "/d", "/d", "/e"], day=[1] * 6, hits=[1, 2, 3, 4, 4, 5])
    right = sides.parquet("right", url=["/a", "/b", "/d", "/e", "/f"], day=[1] * 5, hits=[1, 7, 4, 5, 6])
    done = command(left, right, "--by", "url,day")
    assert done.exit_code == 1
    for line in (
        "missing     url='/c', day=1: not on the right",
        "extra       url='/f', day=1: not on the left",
        "duplicated  url='/d', day=1: 2 rows on the left, 1 on the right",
        "different   url='/b', day=1: hits 2, not 7",
    ):
        assert line + "\n" in done.stdout
    assert f"LEFT   {left}: Parquet in 1 file, 6 rows, 1 of them repeated\n" in done.stdout
    assert ": 1 missing, 1 extra, 1 duplicated, 1 different\n" in done.stdout
    found = document(left, right, "--by", "url", "--by", "day")
    assert found["keys"] == {"equal": 2, "missing": 1, "extra": 1, "duplicated": 1, "different": 1}
    assert found["columns"]["hits"]["different"] == 1
    assert found["columns"]["hits"]["largest_difference"] == 5
    assert [(entry["kind"], entry["key"], entry["values"]) for entry in found["examples"]] == [
        ("missing", {"url": "/c", "day": 1}, {}),
        ("extra", {"url": "/f", "day": 1}, {}),
        ("duplicated", {"url": "/d", "day": 1}, {}),
        ("different", {"url": "/b", "day": 1}, {"hits": [2, 7]}),
    ]


def test_no_more_than_the_asked_for_examples_in_order_of_key(sides: Sides) -> None:
    left = sides.parquet("left", n=list(range(50)), v=[0] * 50)
    right = sides.parquet("right", n=list(range(25, 75)), v=[0] * 50)
    done = command(left, right, "--by", "n", "--examples", "3")
    shown = [line.split(":")[0].split() for line in done.stdout.splitlines() if line.startswith(("missing", "extra"))]
    assert shown == [["missing", f"n={n}"] for n in range(3)] + [["extra", f"n={n}"] for n in range(50, 53)]
    assert "... and 22 more missing\n" in done.stdout
    assert document(left, right, "--by", "n", "--examples", "0")["examples"] == []


def test_nulls_nans_and_zeros_are_equal_to_themselves_alone(sides: Sides) -> None:
    values = [None, NAN, 0.0, INF, -INF, None, NAN, INF, 1.0]
    others = [None, NAN, -0.0, INF, -INF, NAN, 1.0, -INF, None]
    left = sides.parquet("left", n=[*range(8), None], v=values)
    right = sides.parquet("right", n=[*range(8), None], v=others)
    for options in ((), ("--tolerance", "1e300"), ("--tolerance", "100%")):
        assert kinds(left, right, "--by", "n", *options) == {"equal": 5, "different": 4}
    assert document(left, right, "--by", "n")["examples"][0] == {
        "kind": "different", "key": {"n": None}, "left_rows": 1, "right_rows": 1, "values": {"v": [1.0, None]},
    }
    # As keys too: every one meets its own.
    keys = [None, NAN, 0.0, INF]
    left = sides.parquet("left", k=keys, v=[1, 2, 3, 4])
    right = sides.parquet("right", k=[*keys[::-1][:1], -0.0, NAN, None], v=[4, 3, 2, 1])
    assert kinds(left, right, "--by", "k") == {"equal": 4}


def test_tolerance_is_absolute_or_relative_and_of_a_column(sides: Sides) -> None:
    left = sides.parquet("left", n=[1, 2, 3], a=[1.0, 100.0, -8.0], b=[10, 20, 30])
    right = sides.parquet("right", n=[1, 2, 3], a=[1.5, 101.0, -8.0], b=[10, 21, 30])
    assert kinds(left, right, "--by", "n") == {"equal": 1, "different": 2}
    assert kinds(left, right, "--by", "n", "--tolerance", "0.5") == {"equal": 2, "different": 1}
    assert kinds(left, right, "--by", "n", "--tolerance", "1") == {"equal": 3}
    assert kinds(left, right, "--by", "n", "--tolerance", "5%") == {"equal": 2, "different": 1}
    assert kinds(left, right, "--by", "n", "--tolerance", "5%", "--tolerance", "0.5") == {"equal": 3}
    assert kinds(left, right, "--by", "n", "--tolerance", "a=1") == {"equal": 2, "different": 1}
    assert kinds(left, right, "--by", "n", "--tolerance", "a=1", "--tolerance", "b=5%") == {"equal": 3}


def test_numbers_of_different_types_are_compared_without_loss(sides: Sides) -> None:
    big = 2**53
    left = sides.parquet(
        "left", n=pyarrow.array([1, 2], pyarrow.int8()), whole=[big, big + 1],
        decimal=[Decimal("1.10"), Decimal("2.00")], real=[0.5, 2.0], when=[datetime.datetime(2026, 1, 1)] * 2,
        none=[None, "x"],
    )
    right = sides.parquet(
        "right", n=[1, 2], whole=pyarrow.array([big, big], pyarrow.int64()),
        decimal=[Decimal("1.1000"), Decimal("2.0001")], real=[1, 2],
        when=[datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)] * 2, none=[None, "x"],
    )
    found = document(left, right, "--by", "n")["columns"]
    assert {name: entry["different"] for name, entry in found.items()} == {
        "whole": 1, "decimal": 1, "real": 1, "when": 0, "none": 0,
    }


def test_decimals_beyond_sparks_digits_are_compared_exactly(sides: Sides) -> None:
    money, rate = pyarrow.decimal128(38, 2), pyarrow.decimal128(38, 18)
    large = Decimal("9" * 36 + ".25")
    lefts = [Decimal("1.25"), Decimal("1.25"), None, large, large, Decimal("1e20"), Decimal("-1e25")]
    rights = [
        Decimal("1.25"), Decimal("1.250000000000000001"), None, Decimal("9" * 20), None, Decimal("9" * 20), None,
    ]
    keys = list(range(len(lefts)))
    left = sides.parquet("left", n=keys, v=pyarrow.array(lefts, money))
    right = sides.parquet("right", n=keys, v=pyarrow.array(rights, rate))
    for one, other, at in ((left, right, 0), (right, left, 1)):
        found = document(one, other, "--by", "n")
        assert found["keys"] | {"different": 5, "equal": 2} == found["keys"]
        shown = {entry["key"]["n"]: entry["values"]["v"][at] for entry in found["examples"]}
        assert (shown[3], shown[6]) == (str(large), f"-{10**25}.00")
    # Within a tolerance, all are doubles.
    assert kinds(left, right, "--by", "n", "--tolerance", "1e-9%") == {"equal": 4, "different": 3}
    # As keys.
    whole = sides.parquet("whole", v=[1, 2], n=[7, 8])
    fraction = pyarrow.array([Decimal("0.5"), Decimal(0)], pyarrow.decimal128(38, 38))
    assert kinds(sides.parquet("key", v=fraction, n=[7, 8]), whole, "--by", "v") == {"missing": 2, "extra": 2}
    assert kinds(left, left, "--by", "v", "--keys-only", "--repeats-ok") == {"equal": 5}
    assert kinds(left, right, "--by", "v", "--keys-only", "--repeats-ok") == {"equal": 2, "missing": 3, "extra": 2}


def test_texts_of_csv_and_json_stand_for_the_other_sides_values(sides: Sides) -> None:
    rows = {"day": [datetime.date(2026, 1, day) for day in (1, 2, 3)], "n": [1, 2, None], "t": ["7", 'a "b", c\nd', ""]}
    typed = sides.parquet("typed", **rows)
    csv = sides.text("a.csv", 'n,day,t\n1,2026-01-01,7\n2,2026-01-02,"a ""b"", c\nd"\n,2026-01-03,""\n')
    json_ = sides.text(
        "a.jsonl",
        '{"day": "2026-01-01", "n": 1, "t": "7"}\n{"day": "2026-01-02", "n": 2, "t": "a \\"b\\", c\\nd"}\n'
        '{"day": "2026-01-03", "t": ""}\n',
    )
    for left, right in ((typed, csv), (csv, json_), (json_, typed)):
        assert kinds(left, right, "--by", "day") == {"equal": 3}
    spoilt = sides.text("b.csv", "n,day,t\none,2026-01-01,7\n2,today,x\n,tomorrow,x\n")
    found = document(typed, spoilt, "--by", "day", "--compare", "n")
    assert found["keys"] == {"equal": 0, "missing": 2, "extra": 2, "duplicated": 0, "different": 1}
    assert [entry["key"]["day"] for entry in found["examples"] if entry["kind"] == "extra"] == ["today", "tomorrow"]
    assert found["examples"][-1]["values"] == {"n": [1, "one"]}


def test_csv_on_both_sides_is_compared_as_text_and_within_a_tolerance_as_numbers(sides: Sides) -> None:
    left = sides.text("left/a.csv", "k,v\na,1\nb,2\nc,x\n")
    right = sides.text("right/a.csv", "v,k\n1.0,a\n2.5,b\nx,c\n")
    assert kinds(left.parent, right.parent, "--by", "k") == {"equal": 1, "different": 2}
    assert kinds(left, right, "--by", "k", "--tolerance", "v=0.1") == {"equal": 2, "different": 1}


def test_repeats_and_running_totals(sides: Sides) -> None:
    left = sides.parquet("left", k=["a", "b", "c"], n=[3, 5, 1])
    right = sides.parquet("right", k=["a", "a", "b", "b", "b", "c"], n=[3, 3, 4, 5, 5, 1])
    assert kinds(left, right, "--by", "k") == {"equal": 1, "duplicated": 2}
    assert kinds(left, right, "--by", "k", "--repeats-ok") == {"equal": 2, "duplicated": 1}
    assert kinds(left, right, "--by", "k", "--last", "n", "--compare", "n") == {"equal": 3}
    # Only one side has revisions, and they are not compared.
    right = sides.parquet("right", k=["a", "a", "b", "c"], n=[9, 3, 5, 1], revision=[1, 2, 1, 1])
    assert kinds(left, right, "--by", "k", "--last", "revision") == {"equal": 3}


def test_of_rows_that_share_the_last_none_is_chosen_by_chance(sides: Sides) -> None:
    at = [1, 2, 2, 1, 2, 2, 5, 4, 4, None, None, None, 1]
    left = sides.parquet(
        "left", k=["differ"] * 3 + ["agree"] * 3 + ["before"] * 3 + ["nulls"] * 2 + ["one"] * 2, at=at,
        n=[1, 2, 3, 1, 2, 2, 7, 1, 2, 1, 2, 9, 8],
    )
    names = ["differ", "agree", "before", "nulls", "one"]
    right = sides.parquet("right", k=names, at=[2, 2, 5, 1, 1], n=[3, 2, 7, 2, 8])
    for one, other in ((left, right), (right, left)):
        for options in ((), ("--repeats-ok",)):
            found = document(one, other, "--by", "k", "--last", "at", *options)
            assert found["keys"] | {"equal": 3, "duplicated": 2} == found["keys"]
            assert [example["key"]["k"] for example in found["examples"]] == ["differ", "nulls"]
    assert found["right"] | {"rows": 13, "repeated": 8} == found["right"]
    # What is not compared may differ.
    assert kinds(left, right, "--by", "k", "--last", "at", "--keys-only") == {"equal": 5}


def test_empty_sides(sides: Sides) -> None:
    full = sides.parquet("full", k=["a"], n=[1])
    none = sides.parquet("none", k=pyarrow.array([], pyarrow.string()), n=pyarrow.array([], pyarrow.int64()))
    nothing = sides.text("nothing.jsonl", "")
    header = sides.text("header.csv", "k,n\n")
    for empty in (none, nothing, header):
        assert kinds(full, empty, "--by", "k") == {"missing": 1}
        assert kinds(empty, full, "--by", "k") == {"extra": 1}
        done = command(empty, nothing, "--by", "k")
        assert (done.exit_code, "both sides are empty" in done.stdout) == (0, True)


def test_results_with_other_columns_are_compared_by_their_keys(sides: Sides) -> None:
    left = sides.parquet("left", k=[1, 2], a=[1, 1])
    right = sides.parquet("right", k=[1, 3], b=["x", "y"])
    assert kinds(left, right, "--by", "k", "--keys-only") == {"equal": 1, "missing": 1, "extra": 1}
    complaint = "right.parquet has no column 'a', which the other side has; name the columns to compare with --compare"
    assert complaint in refusal(left, right, "--by", "k")


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
    assert done.exit_code == 1
    assert "\x1b" not in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("different")]
    assert "\\x1b[2Jx\\nforged\\u202e" in line.replace("\\\\", "\\")
    assert len(line) < 400
    assert len(command(left, right, "--by", "k", "--json").stdout) < 4000


def test_feeds_and_word_counts(sides: Sides, source: Path) -> None:
    (source / "a.txt").write_text("one two\ntwo\n")
    for name in ("one", "two"):
        prepare(source, sides.base / name, partitions=2)
    assert kinds(sides.base / "one", sides.base / "two", "--by", "partition,offset") == {"equal": 2}
    for name, rows in (("r", [("one", 1), ("two", 1), ("two", 2)]), ("s", [("two", 2), ("one", 1), ("one", 1)])):
        lines = "".join(json.dumps({"word": word, "count": count}) + "\n" for word, count in rows)
        sides.text(f"{name}/counts/part-0.jsonl", lines + '{"wo')
        (sides.base / name / "ledger").mkdir()
    both = sides.base / "r", sides.base / "s"
    assert kinds(*both, "--by", "word") == {"equal": 2}
    sides.text("s/counts/part-1.jsonl", "{}\n")
    assert "counts/part-1.jsonl:1 is not a row of the counts" in refusal(*both, "--by", "word")


def test_wrong_use_is_named(sides: Sides) -> None:
    left = sides.parquet("left", k=[1], v=["a"], m=pyarrow.array([[("a", 1)]], pyarrow.map_("string", "int64")))
    right = sides.parquet("right", k=[1], v=[1], m=pyarrow.array([[("a", 1)]], pyarrow.map_("string", "int64")))
    wanted = {
        ("--by", "x"): "left.parquet has no column 'x'; allowed: k, v, m",
        ("--by", "k", "--compare", "y"): "left.parquet has no column 'y'; allowed: k, v, m",
        ("--by", "k", "--compare", "v"): "column 'v' is string on the left and bigint on the right: no value of one",
        ("--by", "k", "--compare", "m"): "column 'm' is map<string,bigint>, which cannot be compared",
        ("--by", "k", "--keys-only", "--last", "z"): "--last is 'z', a column of neither side; allowed: k, v, m",
        ("--by", "k", "--keys-only", "--tolerance", "v=1"): "--tolerance is for column 'v', which is not compared",
        ("--by", "k,k"): "--by names 'k' twice; allowed: different columns",
        ("--by", "k,"): "--by is 'k,'; allowed: names of columns, with commas between them",
        ("--by", "k", "--compare", "k"): "--compare names 'k', which is of the key; allowed: other columns",
        ("--by", "k", "--compare", "v", "--keys-only"): "--compare and --keys-only exclude each other",
        ("--by", "k", "--examples", "-1"): "--examples is -1; allowed: 0 to 1000",
        ("--tolerance", "1"): "--tolerance needs --by: the columns that are the key of a row",
        (): "is not a feed: it has no _feed.json; to compare any two results, name their key with --by",
    }
    for options, complaint in wanted.items():
        assert complaint in refusal(left, right, *options)
    texts = sides.parquet("texts", k=[1], v=["b"])
    complaint = "--tolerance is for column 'v', which holds no numbers: string"
    assert complaint in refusal(texts, texts, "--by", "k", "--tolerance", "v=1")


def test_a_byte_order_mark_is_no_part_of_a_name(sides: Sides) -> None:
    mark = "\ufeff"
    left = sides.text("left.csv", f"{mark}k,v\na,1\n")
    assert kinds(left, sides.text("right.csv", 'v,"k"\n1,a\n'), "--by", "k") == {"equal": 1}
    assert kinds(left, sides.text("right.csv", f'{mark}"k",v\na,2\n'), "--by", "k") == {"different": 1}


def test_data_that_cannot_be_read_is_named(sides: Sides) -> None:
    good = sides.parquet("good", k=[1], v=["a"])
    wanted = {
        sides.text("short.csv", "k,v\n1\n"): "short.csv: Malformed CSV record: 1",
        sides.text("long.csv", "k,v\n1,2,3\n"): "long.csv: Malformed CSV record: 1,2,3",
        sides.text("torn.jsonl", '{"k":1,"v":"a"}\n{"k":'): "torn.jsonl has a line that is not one record of JSON",
        sides.text("empty.csv", ""): "empty.csv has no column 'k'; allowed: none",
    }
    for name, content in (("bytes.csv", b"k,v\n1,a\n2,\xff\n"), ("bytes.jsonl", b'{"k":1,"v":"\xff"}\n')):
        (sides.base / name).write_bytes(content)
        wanted[sides.base / name] = f"{name} is not UTF-8, in a line that begins with"
    data = bytearray(sides.parquet("bad", k=list(range(1000)), v=["a"] * 1000).read_bytes())
    data[10:2000] = bytes(1990)
    (sides.base / "bad.parquet").write_bytes(data)
    wanted[sides.base / "bad.parquet"] = "bad.parquet: "
    for bad, complaint in wanted.items():
        assert complaint in refusal(good, bad, "--by", "k")
