"""`squall verify` passes what follows from the feed, and names every kind of difference from it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from squall.cli.verify import verify as verify_command
from squall.engine.errors import UsageError
from squall.pipeline.feed import Feed
from squall.pipeline.prepare import prepare
from squall.pipeline.verify import verify
from tests.schemas import mistakes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

TEXTS = {
    "a.txt": "self self other\n\n  naïve\u2028words here\u00a0too \x1c and\x85more \n" + "filler line\n" * 12,
    "sub dir/b.txt": "self [bold]markup[/bold] 'quoted' \U0001f600\n",
    "c.txt": "\n".join(f"word{index} self" for index in range(40)),
}


@pytest.fixture(scope="module")
def feed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("verify")
    for name, text in TEXTS.items():
        path = base / "input" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    prepare(base / "input", base / "feed", partitions=3)
    return base / "feed"


class Outcome:
    """A result as rows, to be spoilt and then written."""

    def __init__(self, feed: Path) -> None:
        opened = Feed.open(feed)
        counts: Counter[str] = Counter()
        self.ledger: list[dict[str, Any]] = []
        self.places: dict[tuple[str, int], dict[str, Any]] = {}
        for partition in opened.partitions:
            for chunk in opened.read(partition):
                for offset, path, line_no, text in chunk:
                    counts.update(text.split())
                    row = {"partition": partition, "offset": offset, "words": len(text.split())}
                    self.ledger.append(row)
                    self.places[path, line_no] = row
        self.counts: list[dict[str, Any]] = [{"word": word, "count": count} for word, count in counts.items()]

    def count(self, word: str) -> dict[str, Any]:
        (row,) = [row for row in self.counts if row["word"] == word]
        return row

    def write(self, path: Path) -> Path:
        for kind, rows in (("ledger", self.ledger), ("counts", self.counts)):
            (path / kind).mkdir(parents=True)
            for part in range(2):
                lines = "".join(json.dumps(row) + "\n" for row in rows[part::2])
                (path / kind / f"part-{part}.jsonl").write_text(lines)
        return path


@pytest.fixture
def result(feed: Path) -> Outcome:
    return Outcome(feed)


def command(feed: Path, result: Path, *options: str) -> Result:
    return CliRunner().invoke(verify_command, [str(feed), str(result), *options], catch_exceptions=False)


def test_a_right_result_passes(feed: Path, result: Outcome, tmp_path: Path) -> None:
    path = result.write(tmp_path / "result")
    shown = command(feed, path, "--json")
    assert shown.exit_code == 0
    document = json.loads(shown.stdout)
    assert mistakes(document) == []
    assert document["passed"] is True
    assert document["lines"]["checked"] == document["lines"]["ok"] == len(result.ledger) == 56
    assert document["words"]["checked"] == document["words"]["ok"] == len(result.counts)
    assert document["lines"]["repeated"] == 0
    assert document["torn"] == []


def test_replays_older_totals_and_torn_last_lines_are_no_difference(
    feed: Path, result: Outcome, tmp_path: Path
) -> None:
    result.ledger += [dict(row) for row in result.ledger[:5]] + [dict(result.ledger[0])]
    result.counts += [{"word": row["word"], "count": 1} for row in result.counts]
    path = result.write(tmp_path / "result")
    with (path / "ledger" / "part-1.jsonl").open("ab") as file:
        file.write(b'{"partition":0,"off')
    (path / "counts" / "part-9.jsonl").write_bytes(b'{"word":"\xc3')
    with (path / "counts" / "part-0.jsonl").open("r+b") as file:
        # A last row that lacks nothing but its newline is a row.
        file.truncate(file.seek(-1, 2))
    verdict = verify(feed, path)
    assert verdict.passed
    assert verdict.lines.repeated == 6
    assert len(verdict.torn) == 2
    assert verdict.torn[0] == "counts/part-9.jsonl:1"
    assert verdict.torn[1].startswith("ledger/part-1.jsonl:")
    shown = command(feed, path)
    assert shown.exit_code == 0
    assert "the last line is torn (its writer was killed) and was not counted" in shown.stdout
    assert "every line and every count is right" in shown.stdout


def _missing_line(result: Outcome) -> str:
    row = result.places["sub dir/b.txt", 1]
    result.ledger.remove(row)
    place = f"partition {row['partition']} offset {row['offset']}"
    return f"line {place} (sub dir/b.txt:1) is missing from the ledger"


def _invented_line(result: Outcome) -> str:
    row = result.places["c.txt", 40]
    result.ledger.append({**row, "offset": row["offset"] + 1})
    return f"line partition {row['partition']} offset {row['offset'] + 1} is in the ledger, but the feed has only"


def _invented_partition(result: Outcome) -> str:
    result.ledger.append({"partition": 7, "offset": 0, "words": 0})
    return "line partition 7 offset 0 is in the ledger, but the feed has no such partition"


def _different_line(result: Outcome) -> str:
    row = result.places["a.txt", 3]
    right = row["words"]
    row["words"] = right - 1
    place = f"partition {row['partition']} offset {row['offset']}"
    return f"line {place} (a.txt:3): feed {right} words, ledger {right - 1}"


def _different_replay(result: Outcome) -> str:
    row = result.places["c.txt", 1]
    result.ledger.append({**row, "words": 5})
    return f"line partition {row['partition']} offset {row['offset']} (c.txt:1): feed 2 words, ledger 5"


def _missing_word(result: Outcome) -> str:
    result.counts.remove(result.count("[bold]markup[/bold]"))
    return "word '[bold]markup[/bold]': feed 1, not in the result"


def _invented_word(result: Outcome) -> str:
    result.counts.append({"word": "ghost", "count": 3})
    return "word 'ghost': not in the feed, result 3"


def _different_word(result: Outcome) -> str:
    right = result.count("self")["count"]
    result.count("self")["count"] = right - 1
    return f"word 'self': feed {right}, result {right - 1}"


Spoiler = Callable[[Outcome], str]


@pytest.mark.parametrize(
    ("spoil", "where", "kind"),
    [
        (_missing_line, "lines", "missing"),
        (_invented_line, "lines", "invented"),
        (_invented_partition, "lines", "invented"),
        (_different_line, "lines", "different"),
        (_different_replay, "lines", "different"),
        (_missing_word, "words", "missing"),
        (_invented_word, "words", "invented"),
        (_different_word, "words", "different"),
    ],
)
def test_one_difference_is_red_and_named(
    feed: Path, result: Outcome, tmp_path: Path, spoil: Spoiler, where: str, kind: str
) -> None:
    message = spoil(result)
    shown = command(feed, result.write(tmp_path / "result"), "--json")
    assert shown.exit_code == 1
    document = json.loads(shown.stdout)
    assert mistakes(document) == []
    assert document["passed"] is False
    other = {"lines": "words", "words": "lines"}[where]
    assert document[other]["passed"] is True
    counted = {name: document[where][name] for name in ("missing", "invented", "different")}
    assert counted == {"missing": 0, "invented": 0, "different": 0} | {kind: 1}
    (offender,) = document[where]["offenders"][kind]
    assert offender.startswith(message)


def test_people_see_the_first_ten_of_many_differences_of_every_kind(
    feed: Path, result: Outcome, tmp_path: Path
) -> None:
    rows = [row for (path, _), row in result.places.items() if path == "c.txt"]
    for row in rows[:12]:
        result.ledger.remove(row)
    messages = [_different_line(result), _invented_partition(result)]
    messages += [_missing_word(result), _invented_word(result), _different_word(result)]
    shown = command(feed, result.write(tmp_path / "result"))
    assert shown.exit_code == 1
    for message in messages:
        assert message + "\n" in shown.stdout
    named = [line for line in shown.stdout.splitlines() if line.endswith("is missing from the ledger")]
    assert [line.partition("(")[2].partition(")")[0] for line in named] == [f"c.txt:{n}" for n in range(1, 11)]
    assert "... and 2 more missing\n" in shown.stdout
    assert "FAILED in" in shown.stdout


def test_an_empty_result_is_red(feed: Path, tmp_path: Path) -> None:
    for kind in ("ledger", "counts"):
        (tmp_path / kind).mkdir()
    verdict = verify(feed, tmp_path)
    assert not verdict.passed
    assert (verdict.lines.missing, verdict.lines.checked) == (56, 56)
    assert verdict.words.missing == verdict.words.checked > 0


@pytest.mark.parametrize(
    ("kind", "row", "complaint"),
    [
        ("ledger", b'{"partition":0,"off{"partition":0,"offset":1,"words":2}', "JSON is malformed"),
        ("ledger", b'{"partition":0,"offset":"1","words":2}', "Expected `int`, got `str`"),
        ("counts", b'{"word":"a"}', "missing required field `count`"),
    ],
)
def test_a_row_that_is_none_is_an_error_with_its_place(
    feed: Path, result: Outcome, tmp_path: Path, kind: str, row: bytes, complaint: str
) -> None:
    path = result.write(tmp_path / "result")
    file = path / kind / "part-1.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:3], row + b"\n", *lines[3:]]))
    with pytest.raises(UsageError, match=rf"{kind}/part-1\.jsonl:4 is not a row of the {kind}: .*{complaint}"):
        verify(feed, path)


def test_a_damaged_feed_is_refused(feed: Path, result: Outcome, tmp_path: Path) -> None:
    path = result.write(tmp_path / "result")
    damaged = tmp_path / "feed"
    shutil.copytree(feed, damaged)
    manifest = json.loads((damaged / "_feed.json").read_text())
    manifest["rows"] += 1
    manifest["partitions"][0]["rows"] += 1
    manifest["partitions"][0]["files"][0]["rows"] += 1
    (damaged / "_feed.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match=r"is damaged: it holds 56 lines where its manifest says 57"):
        verify(damaged, path)


def test_wrong_arguments_are_one_line_and_exit_code_2(feed: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    wanted = {
        (feed, tmp_path / "missing"): "is not the result of a word count: it does not exist",
        (feed, tmp_path): "is not the result of a word count: it has no folder counts",
        (tmp_path, tmp_path): "is not a feed: it has no _feed.json",
    }
    for (first, second), complaint in wanted.items():
        with pytest.raises(UsageError, match=complaint):
            verify(first, second)
    arguments = ["verify", str(tmp_path), str(tmp_path)]
    shown = subprocess.run(
        [sys.executable, "-m", "squall", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert shown.returncode == 2
    complaint = "is not a feed: it has no _feed.json; to compare any two results, name their key with --by"
    assert shown.stderr == f"squall: {tmp_path} {complaint}\n"
