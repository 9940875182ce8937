"""`squall top`: a real topology on Textual's screen."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from squall.cli.cluster_access import job_of
from squall.cli.looking.status import headline
from squall.ui.top_screen import COLUMNS, Top
from tests.process.standing_tools import Standing, directory
from tests.process.waiting import wait_for

SLOW = """
from squall import TopologyBuilder, bolt, spout

@spout("n")
def numbers():
    n = 0
    while True:
        n += 1
        yield n

def spend(tup):
    if tup["n"] == 3:
        raise ValueError("three")
    sum(range(20_000))

builder = TopologyBuilder()
builder.set_spout("numbers", numbers)
builder.set_bolt("slow", bolt(spend)).shuffle_grouping("numbers")
builder.set_bolt("fast", bolt(lambda tup: None)).shuffle_grouping("numbers")
topology = builder.build()
"""


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await pilot.pause(0.05)


def test_top_shows_rates_sorts_shows_errors_survives_the_end_and_quits(standing: Standing, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    standing.ok("submit", tmp_path / "slow.py", "--name", "slow", "--set", "on_error=fail")
    wait_for("acks", lambda: standing.described("slow").acked > 0)
    asyncio.run(followed(standing))


async def followed(cluster: Standing) -> None:
    top = Top(partial(job_of, str(cluster.path), "slow"), headline, 0.1)
    async with top.run_test(size=(140, 40)) as pilot:
        table, head, detail = top.query_one(DataTable), top.query_one("#head", Static), top.query_one("#detail", Static)

        def row(index: int) -> dict[str, str]:
            return dict(zip(COLUMNS, map(str, table.get_row_at(index)), strict=True))

        await until(pilot, lambda: table.row_count == 3 and float(row(0)["executed/s"].replace(",", "")) > 0)
        assert "slow is ACTIVE" in str(head.render())
        assert [row(index)["component"] for index in range(3)] == ["fast", "numbers", "slow"]
        await pilot.press("7")
        await until(pilot, lambda: row(0)["component"] == "slow")
        await pilot.press("up", "up", "enter")
        await until(pilot, lambda: "ValueError: three" in str(detail.render()))
        assert "on node-1:67" in str(detail.render())
        await pilot.press("escape")
        await until(pilot, lambda: str(detail.render()) == "")
        await asyncio.to_thread(cluster.apart, "kill", "slow", "-w", "0")
        await until(pilot, lambda: str(head.render()).startswith("nothing new: "))
        assert table.row_count == 3
        await pilot.press("q")


def test_without_textual_it_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "squall.ui.top_screen", None)
    with directory() as cluster:
        assert cluster.refused(2, "top", "slow") == "squall top needs Textual: pip install 'squall[ui]'"
