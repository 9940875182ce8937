"""`squall verify --by` and numbers: no digit that a file has is lost on the way to the comparison."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow
import pytest

from tests.spark.by_key import Sides, command, document, kinds, refusal

pytestmark = pytest.mark.usefixtures("spark")
BIG = 2**53
INF, NAN = float("inf"), float("nan")


def differing(sides: Sides, left: list[str], right: list[str], *options: str) -> list[int]:
    """The rows in which two files of JSON differ."""
    both = sides.json("left", *left), sides.json("right", *right)
    return [example["key"]["k"] for example in document(*both, "--by", "k", "--examples", "99", *options)["examples"]]


def check_planted(sides: Sides, left: list[str], right: list[str], planted: list[str]) -> None:
    """Every value on the right equals that on the left, and no planted one does."""
    count = len(left)
    assert differing(sides, left * 2, right + planted) == list(range(count, 2 * count))


def test_json_that_mixes_whole_numbers_and_fractions_is_compared_exactly(sides: Sides) -> None:
    left = [f"{BIG + 1}", "1.5", "1.0", "-0.0", "1e2", "0.10", "1e300", "-2.50", "NaN", "null", "Infinity", "12e-1"]
    right = [f"{BIG + 1}.0", "15e-1", "1", "0", "100", "0.1", "10E+299", "-25e-1", "NaN", "null", "+INF", "1.2"]
    planted = [
        f"{BIG}", "1.50000000000000000001", "1.1", "1e-400", "101", "0.10000000000000001", f"{10**300 + 1}", "2.5", "0",
        "0.0", "-Infinity", "1.2e1",
    ]
    check_planted(sides, left, right, planted)


def test_numbers_of_any_length_in_json_are_compared_exactly(sides: Sides) -> None:
    digits = "123456789" * 50
    left = [digits, f"0.{digits}", f"-{digits}.{digits}e-7", "1e-400", "1e400", "1e999999999999999999999999"]
    right = [
        f"0.{digits}e{len(digits)}", f"0.0{digits}e1", f"-{digits}.{digits}00e-7", "0.1e-399", "10e399",
        "1e999999999999999999999999",
    ]
    planted = [
        digits[:-1] + "8", f"0.{digits}1", f"-{digits}.{digits}e-6", "2e-400", "1e401", "1e999999999999999999999998",
    ]
    check_planted(sides, left, right, planted)


def test_the_other_column_may_be_of_whole_numbers_decimals_or_texts(sides: Sides) -> None:
    mixed = sides.json("mixed", f"{BIG + 1}", "0.50")
    decimals = pyarrow.array([Decimal(BIG + 1), Decimal("0.5")], pyarrow.decimal128(38, 18))
    for other in (
        sides.parquet("decimals", k=[0, 1], v=decimals), sides.text("texts.csv", f"k,v\n0,{BIG + 1}\n1,5e-1\n"),
        sides.json("quoted", f'"{BIG + 1}"', '"0.500"'),
    ):
        assert kinds(mixed, other, "--by", "k") == {"equal": 2}
    wholes = sides.json("wholes", f"{BIG}", "7")
    for one, two, at in ((mixed, wholes, 0), (sides.parquet("wholes", k=[0, 1], v=[BIG, 7]), mixed, 1)):
        found = document(one, two, "--by", "k")
        assert found["keys"] == {"equal": 0, "missing": 0, "extra": 0, "duplicated": 0, "different": 2}
        assert [entry["values"]["v"][at] for entry in found["examples"]] == [BIG + 1, 0.5]


def test_json_against_doubles(sides: Sides) -> None:
    values = [0.1, 1e23, BIG + 2.0, NAN, INF, -INF, 5e-324]
    doubles = sides.parquet("doubles", k=list(range(14)), v=values * 2)
    texts = ["0.10000000000000001", "1e23", f"{BIG + 2}", "NaN", "Infinity", "-INF", "5e-324"]
    planted = ["0.2", "1.1e23", f"{BIG + 3}", "0", "1e400", "1", "1e-323"]
    spoilt = sides.json("spoilt", *texts, *planted)
    for one, two in ((doubles, spoilt), (spoilt, doubles)):
        found = document(one, two, "--by", "k")
        assert [example["key"]["k"] for example in found["examples"]] == list(range(7, 14))


def test_numbers_inside_of_json_objects_and_lists(sides: Sides) -> None:
    first = f'{{"a":[{BIG + 1},1.0],"b":{{"c":"1.0","d":2}}}}'
    left = [first, '{"a":[0.5,null]}', "null", first]
    right = [f'{{"a":[{BIG + 1}.0,1],"b":{{"d":2,"c":"1.0"}}}}', '{"a":[5e-1,null]}', "null", first]
    planted = [first.replace(str(BIG + 1), str(BIG)), '{"a":[0.5]}', "{}", first.replace('"1.0"', '"1"')]
    check_planted(sides, left, right, planted)
    # Of one side only, the lists hold a fraction, or what is larger than 64 bits.
    assert differing(sides, ["[1, 2]", "[3]"], ["[1.0, 2]", "[3.5]"]) == [1]
    assert differing(sides, ["[1]", "[3]"], ["[1]", f"[{2**64}]"]) == [1]
    typed = sides.parquet("typed", k=[0, 1, 2], v=[[0.1, float(BIG)], None, [0.1]])
    assert kinds(typed, sides.json("list", f"[0.10, {BIG}]", "null", "[0.11]"), "--by", "k") == {
        "equal": 2, "different": 1,
    }


def test_keys_and_the_last_of_mixed_numbers(sides: Sides) -> None:
    def rows(*lines: str) -> str:
        return "".join(f"{{{line}}}\n" for line in lines)

    left = sides.text("left.jsonl", rows(f'"k":{BIG},"v":1', f'"k":{BIG + 1},"v":2', '"k":0.5,"v":3', '"k":10,"v":4'))
    right = sides.text("right.jsonl", rows(f'"k":{BIG + 1},"v":2', '"k":0.50,"v":3', f'"k":{BIG}.0,"v":1', '"k":9'))
    found = document(left, right, "--by", "k")
    assert found["keys"] == {"equal": 3, "missing": 1, "extra": 1, "duplicated": 0, "different": 0}
    assert [example["key"] for example in found["examples"]] == [{"k": 10}, {"k": 9}]
    empty = sides.text("empty.jsonl", "")
    shown = [example["key"]["k"] for example in document(left, empty, "--by", "k")["examples"]]
    assert shown == [0.5, 10, BIG, BIG + 1]

    late = rows('"k":1,"at":9.5,"v":1', '"k":1,"at":10,"v":2', f'"k":2,"at":{BIG},"v":3', f'"k":2,"at":{BIG + 1},"v":4')
    left = sides.text("left.jsonl", late)
    for name, text in (
        ("right.jsonl", rows('"k":1,"v":2', '"k":2,"v":4')),
        ("right.csv", f"k,at,v\n1,9.5,1\n1,10,2\n2,{BIG},3\n2,{BIG + 1}.0,4\n"),
    ):
        assert kinds(left, sides.text(name, text), "--by", "k", "--last", "at") == {"equal": 2}


def test_tolerance_of_mixed_numbers_counts_what_doubles_cannot_tell(sides: Sides) -> None:
    left, right = [f"{BIG + 1}", "0.5", "1e-300"], [f"{BIG}", "0.25", "2e-300"]
    assert differing(sides, left, right, "--tolerance", "0.5") == [0]
    assert differing(sides, left, right, "--tolerance", "v=1") == []
    assert differing(sides, left, right, "--tolerance", "1%") == [1, 2]
    assert document(sides.json("left", *left), sides.json("right", *right), "--by", "k")["columns"]["v"] == {
        "different": 3, "largest_difference": 1, "unmeasured": 0, "tolerance": {"absolute": 0, "relative": 0},
    }


def test_long_whole_numbers_against_doubles(sides: Sides) -> None:
    doubles = sides.parquet("doubles", k=[1, 2, 3, 4], v=[float(BIG), 2.0**60, -7.0, float(BIG)])
    wholes = sides.parquet("wholes", k=[1, 2, 3, 4], v=[BIG + 1, 2**60, -7, BIG])
    for one, two in ((wholes, doubles), (doubles, wholes)):
        assert kinds(one, two, "--by", "k") == {"equal": 3, "different": 1}
    found = document(wholes, doubles, "--by", "k")["examples"]
    assert found[0]["values"] == {"v": [str(BIG + 1), float(BIG)]}
    assert kinds(wholes, doubles, "--by", "v", "--keys-only", "--repeats-ok") == {"equal": 3, "missing": 1}
    spoilt = sides.text("wholes.csv", f"k,v\n1,{BIG + 1}\n2,{2**60}\n3,-7.0\n4,{BIG}\n")
    assert kinds(doubles, spoilt, "--by", "k") == {"equal": 3, "different": 1}


def test_texts_are_not_rounded_to_the_other_sides_type(sides: Sides) -> None:
    typed = sides.parquet(
        "typed", k=[1, 2], price=[Decimal("1.24"), Decimal("2.00")], n=[7, 8], x=[1.0, 2.0],
        day=[datetime.date(2026, 1, 1)] * 2, at=[datetime.datetime(2026, 1, 1, 0, 0, 0, 5)] * 2,
    )
    head = "k,price,n,x,day,at\n1,1.240,7.0,1,2026-01-01,2026-01-01T00:00:00.000005000Z\n"
    good = sides.text("good.csv", head + "2,2,8,2e0,2026-01-01,2026-01-01 00:00:00.000005\n")
    assert kinds(typed, good, "--by", "k") == {"equal": 2}
    bad = sides.text("bad.csv", head + "2,2.001,8.1,2d,2026-01-01T23:00,2026-01-01 00:00:00.000005001\n")
    found = document(typed, bad, "--by", "k")
    assert found["examples"][0]["values"] == {
        "price": [2, 2.001], "n": [8, 8.1], "x": [2.0, "2d"], "day": ["2026-01-01", "2026-01-01T23:00"],
        "at": ["2026-01-01 00:00:00.000005", "2026-01-01 00:00:00.000005001"],
    }
    assert "price 2, not 2.001; n 8, not 8.1; x 2.0, not '2d'" in command(typed, bad, "--by", "k").stdout


def test_a_tolerance_is_for_numbers_not_for_lists_of_them(sides: Sides) -> None:
    left = sides.json("left", "[1.5]")
    assert "--tolerance is for column 'v', which holds no numbers" in refusal(
        left, left, "--by", "k", "--tolerance", "v=1"
    )


def test_the_largest_difference_is_never_0_where_numbers_differ(sides: Sides) -> None:
    long_, near = Decimal("1" + "0" * 37), Decimal("1" + "0" * 36 + "1")
    columns: dict[str, tuple[list[object], list[object]]] = {
        "big": ([2**62 + 1, 7], [2**62, 7]), "null": ([None, 1.0], [NAN, 1.0]), "inf": ([INF, 1.0], [-INF, 1.0]),
        "both": ([INF, 1.0], [1.0, 6.0]), "same": ([NAN, 1.0], [NAN, 1.0]), "long": ([long_, 1], [near, 1]),
        "digits": ([Decimal("12345678901234567890.01"), 1], [Decimal("12345678901234567890.02"), 1]),
    }
    left = sides.parquet("left", k=[1, 2], **{name: pair[0] for name, pair in columns.items()})
    right = sides.parquet("right", k=[1, 2], **{name: pair[1] for name, pair in columns.items()})
    found = document(left, right, "--by", "k")["columns"]
    assert {name: (check["different"], check["largest_difference"], check["unmeasured"]) for name, check in
            found.items()} == {
        "big": (1, 1, 0), "null": (1, None, 1), "inf": (1, None, 1), "both": (2, 5, 1), "same": (0, 0, 0),
        "long": (1, None, 1), "digits": (1, 0.01, 0),
    }
    said = command(left, right, "--by", "k").stdout
    rows = {row[0]: row[1:] for row in (line.split() for line in said.splitlines()) if row and row[0] in columns}
    assert rows["big"] == ["1", "1", "-"]
    assert rows["null"] == rows["inf"] == ["1", "-", "-"]
    assert rows["both"] == ["2", "5", "(1", "without)", "-"]


def test_timestamps_in_nanoseconds_are_compared_exactly(sides: Sides) -> None:
    nanos = [1_700_000_000_123_456_789, 1_700_000_000_000_001_000, -1, None, -(10**9), 5]
    typed = pyarrow.array(nanos, pyarrow.timestamp("ns", "UTC"))
    keys = list(range(len(nanos)))
    left = sides.parquet("left", k=keys, v=typed)
    assert kinds(left, sides.parquet("right", k=keys, v=typed.cast(pyarrow.timestamp("ns"))), "--by", "k") == {
        "equal": 6,
    }
    spoilt = pyarrow.array([nano and nano + 1 for nano in nanos[:5]] + [None], pyarrow.timestamp("ns"))
    right = sides.parquet("right", k=keys, v=spoilt)
    found = document(left, right, "--by", "k")
    assert [example["key"]["k"] for example in found["examples"]] == [0, 1, 2, 4, 5]
    assert found["examples"][0]["values"]["v"] == [
        "2023-11-14 22:13:20.123456789", "2023-11-14 22:13:20.123456790",
    ]
    assert found["examples"][2]["values"]["v"] == ["1969-12-31 23:59:59.999999999", "1970-01-01 00:00:00"]
    micros = typed.cast(pyarrow.timestamp("us", "UTC"), safe=False)
    whole = {"equal": 3, "different": 3}
    assert kinds(left, sides.parquet("micros", k=keys, v=micros), "--by", "k") == whole
    texts = "0,2023-11-14T22:13:20.123456Z\n1,2023-11-14 22:13:20.000001\n2,\n3,\n4,1969-12-31 23:59:59\n5,x\n"
    assert kinds(left, sides.text("right.csv", "k,v\n" + texts), "--by", "k") == whole
    # As keys, and as what orders revisions.
    assert kinds(left, right, "--by", "v", "--keys-only", "--repeats-ok") == {
        "equal": 1, "missing": 5, "extra": 4,
    }
    twice = sides.parquet("twice", k=[1, 1], v=pyarrow.array([7, 8], pyarrow.timestamp("ns")), n=["a", "b"])
    assert kinds(twice, sides.parquet("right", k=[1], n=["b"]), "--by", "k", "--last", "v") == {"equal": 1}
    within = sides.parquet("within", k=[1], v=pyarrow.array([[7]], pyarrow.list_(pyarrow.timestamp("ns"))))
    assert "has timestamps in nanoseconds within column 'v.list.element'; write them in microseconds" in refusal(
        within, within, "--by", "k"
    )
