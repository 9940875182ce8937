"""Every example, run as its docstring says; hello_world is run by test_readme.py."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples import click_sessions, paid_orders, top_by_category
from tests.docs.pages import Page
from tests.process.cli import ROOT, environment, plugin_arguments, squall
from tests.process.written import written

PAGES = sorted((ROOT / "docs" / "examples").glob("*.md"))
APPLICATIONS = ("access_log", "enrich", "top_ten")
"""Whose pages need a standing cluster: test_applications.py."""
TEXT = "the cat and the dog\nthe end\n\n  spaced   out  \n" * 500


# Each total of a word is written once by the first; the other writes one at the end of a batch.
@pytest.mark.parametrize(("example", "each_total"), [("word_count", True), ("word_count_by_batch", False)])
def test_words_and_lines_are_counted_once_though_a_worker_is_killed(
    example: str, each_total: bool, tmp_path: Path
) -> None:
    text, out = tmp_path / "some.txt", tmp_path / "result"
    text.write_text(TEXT)
    done = squall("run", f"examples/{example}.py", "--workers", "3", "--nodes", "2", "--json", "--fault",
                  "kill worker count[0] after 200 acked", "--", text, "--out", out)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["restarts"], "no worker was killed"
    assert (report["pending"], report["drained"]) == (0, True)
    totals = Counter((row["word"], row["count"]) for row in written(out / "counts"))
    words = Counter(TEXT.split())
    if each_total:
        assert totals == Counter((word, n) for word, count in words.items() for n in range(1, count + 1))
    assert dict(sorted(totals)) == words
    lines = Counter((row["partition"], row["offset"], row["words"]) for row in written(out / "ledger"))
    assert sorted(lines) == [(0, offset, len(line.split())) for offset, line in enumerate(TEXT.splitlines())]
    assert lines.total() == len(lines) or not each_total


TREE = """\
msg 1 (attempt 2)
├── line 刘备 关羽 张飞
│   ├── hello 刘备
│   ├── hello 关羽
│   ├── hello 张飞
├── line 曹操 郭嘉 荀彧
│   ├── hello 曹操
│   ├── hello 郭嘉
│   ├── hello 荀彧
"""


def shown_on(name: str) -> tuple[str, list[str]]:
    """The command of a page, and what it says that this prints."""
    page = Page(f"docs/examples/{name}")
    [shown], [command] = page.of("text"), page.commands
    return command, shown.splitlines()


PRINTED = {
    "names": ("run examples/names.py --workers 2", [
        *TREE.splitlines(), "msg 1 failed, it will be emitted again", "msg 1 acked: its whole tree is processed",
    ]),
    "groupings": ("run examples/groupings.py --workers 2", [
        "regions[0]: north 25", "regions[1]: south 25", "regions[2]: east 25", "regions[3]: west 25",
        "courier[0]: orders [90, 92, 94, 96, 98]", "courier[1]: orders [91, 93, 95, 97, 99]",
        "ledger: 100 orders, 4781.70 euros",
    ]),
    **{page.stem: shown_on(page.name) for page in PAGES if page.stem not in APPLICATIONS},
}  # fmt: skip


def printed(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What components have printed, and the command."""
    assert done.returncode == 0, done.stderr
    return [line.split("] ", 1)[-1] for line in (done.stdout + done.stderr).splitlines()]


@pytest.mark.parametrize("example", PRINTED)
def test_an_example_prints_what_is_said_of_it(example: str, tmp_path: Path) -> None:
    command, lines = PRINTED[example]
    told = printed(squall(*shlex.split(command.replace("RESULT", str(tmp_path / "result")))))
    assert set(lines) <= set(told)
    if "--local" in command:
        assert told[: len(lines)] == lines
    if "--fault" in command:
        assert any("killed by SIGKILL" in line for line in told)


def test_topologies_of_ones_own_survive_in_two_processes_of_pytest(tmp_path: Path) -> None:
    """The example, copied twice as its users copy it, under `pytest -n 2`: two proofs at once, of one seed each."""
    text = (ROOT / "examples/test_survives.py").read_text()
    assert "seeds=range(3), for_secs=2" in text
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(text.replace("seeds=range(3), for_secs=2", "seeds=range(1), for_secs=1"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-n", "2", "-p", "no:cacheprovider", *plugin_arguments(),
         "--basetemp", str(tmp_path / "own"), "test_one.py", "test_two.py"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    passed = {tuple(line.split()[:3]) for line in done.stdout.splitlines() if " PASSED " in line}
    assert {worker for worker, _, _ in passed} == {"[gw0]", "[gw1]"}, done.stdout
    assert "2 passed" in done.stdout


def visits() -> Iterator[Any]:
    """User and pages of each."""
    last: dict[str, float] = {}
    pages: Counter[tuple[str, int]] = Counter()
    number: Counter[str] = Counter()
    for user, _, at in click_sessions.clicks.function(0):
        number[user] += at - last.get(user, -1e9) >= click_sessions.GAP_SECS
        last[user] = at
        pages[user, number[user]] += 1
    return ((user, count) for (user, _), count in pages.items())


def tops() -> Iterator[Any]:
    """The ten that were sold most, of each category and second."""
    counts: defaultdict[tuple[str, float], Counter[str]] = defaultdict(Counter)
    for category, product, at in top_by_category.sales.function(0):
        counts[category, float(round(at * 1e9) // 10**9)][product] += 1
    for place, its in counts.items():
        yield *place, sorted(its.items(), key=lambda item: (-item[1], item[0]))[:10]


def payments() -> Iterator[Any]:
    """Orders, and what was paid for them in the same hour."""
    paid = {order: (at // paid_orders.HOUR_SECS, amount) for order, at, amount in paid_orders.payments.function(0)}
    for order, at, _ in paid_orders.orders.function(0):
        hour, amount = paid.get(order, (None, None))
        yield order, amount if hour == at // paid_orders.HOUR_SECS else None


@pytest.mark.parametrize(("example", "fields", "wanted"), [
    ("click_sessions", ("user", "pages"), visits), ("top_by_category", ("category", "second", "top"), tops),
    ("paid_orders", ("order", "paid"), payments),
], ids=["visits", "tops", "payments"])  # fmt: skip
def test_windows_are_right_though_a_worker_is_killed(
    example: str, fields: tuple[str, ...], wanted: Callable[[], Iterator[Any]], tmp_path: Path
) -> None:
    done = squall("run", f"examples/{example}.py", "--workers", "2", "--fault", "kill random worker after 5000 acked",
                  "--", tmp_path)
    assert "killed by SIGKILL" in done.stderr
    found = ([row[field] for field in fields] for row in written(tmp_path))
    assert Counter(map(json.dumps, found)) == Counter(map(json.dumps, wanted()))


def test_every_example_is_tested_here() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {
        "hello_world", "word_count", "word_count_by_batch", "check_word_count", "names", "groupings", "test_survives",
        "click_sessions", "paid_orders", "top_by_category", *(page.stem for page in PAGES),
    }  # fmt: skip


def test_the_page_of_the_examples_names_each_once_in_order() -> None:
    text = (ROOT / "examples" / "README.md").read_text()
    rows = re.findall(r"^\| (\d+) \| \[(\w+\.\w+)\]\((\w+\.\w+)\)", text, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == [*range(1, len(rows) + 1)]
    there = [path.name for path in (ROOT / "examples").glob("*.*") if path.suffix in (".py", ".ipynb")]
    assert sorted(name for _, name, _ in rows) == sorted(link for _, _, link in rows) == sorted(there)
    assert {Path(link).stem for link in re.findall(r"\]\(([\w./]+\.md)\)", text)} >= {page.stem for page in PAGES}
