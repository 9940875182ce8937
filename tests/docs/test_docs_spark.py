"""The topology of docs/spark.md tails a feed that grows, while everything that runs it is killed in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import Page
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for
from tests.process.written import Written

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

PAGE = Page("docs/spark.md")
ROWS = 20_000


def grow(feed: Path, number: int) -> None:
    """Add a file of texts "number.0", "number.1" ..., in row groups that end within ranges."""
    feed.mkdir(exist_ok=True)
    table = pyarrow.table({"text": [f"{number}.{row}" for row in range(ROWS)]})
    parquet.write_table(table, feed / "_new", row_group_size=7_000)
    (feed / "_new").rename(feed / f"{number}.parquet")


def test_a_feed_that_grows_loses_nothing_whoever_is_killed(cluster: Standing, tmp_path: Path) -> None:
    feed, out, program = tmp_path / "feed", tmp_path / "out", tmp_path / "tail.py"
    program.write_text(PAGE.programs["tail.py"])
    feed.mkdir()
    written = Written(out)
    cluster.up()
    cluster.ok("submit", program, "--name", "tail", "--workers", "2", "--", feed, out)

    def everything() -> None:
        cluster.kill_all()
        cluster.up()

    def worker() -> None:
        cluster.ok("inject", "kill", "worker lines[0]")

    victims: list[Callable[[], object]] = [
        worker, lambda: cluster.supervisor("node-1").kill(), lambda: cluster.nimbus().kill(), everything,
    ]
    for number, kill in enumerate(victims):
        grow(feed, number)
        wait_for("some rows of it", lambda n=number: any(text.startswith(f"{n}.") for text in written.look()))
        kill()
    wanted = Counter(f"{number}.{row}" for number in range(len(victims)) for row in range(ROWS))
    wait_for("every row", lambda: written.look().total() >= len(wanted))
    assert written.texts == wanted


def test_every_python_block_is_a_file() -> None:
    """Of which tests/spark runs those that need Spark."""
    assert [*PAGE.programs] == ["tail.py", "read.py", "stream.py"]
    assert len(PAGE.of("python")) == len(PAGE.programs)
