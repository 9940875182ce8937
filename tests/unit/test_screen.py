"""What a terminal shows: within its window, in colour, and no more of foreign text than its letters."""

from __future__ import annotations

import io
from typing import Any, Literal

import pytest
from rich.console import Console

from squall.cli.screen import Block, alarm_cell, cut_to_window, rendered, state_cell
from squall.cli.status_text import topology_line, topology_text
from squall.cli.tables import Cell, Grid

WIDTH, HEIGHT = 80, 24


def shown(blocks: list[Block], colours: Literal["standard"] | None = None) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=WIDTH, color_system=colours)
    console.print(rendered(blocks, WIDTH))
    return out.getvalue()


def big_grid(rows: int) -> Grid:
    body = [[f"node-{n}:6700", state_cell("ready" if n % 50 else "dead"), n, alarm_cell(0)] for n in range(rows)]
    return Grid(["worker", "state", "pid", "restarts"], body)


def test_three_hundred_workers_fit_a_window_and_the_dead_are_shown_first() -> None:
    blocks: list[Block] = ["one line", big_grid(300), "another", big_grid(4)]
    lines = shown(cut_to_window(blocks, WIDTH, HEIGHT)).splitlines()
    assert len(lines) <= HEIGHT
    assert sum("dead" in line for line in lines) >= 6
    assert any(f"... and {300 - n} more" in "\n".join(lines) for n in range(1, HEIGHT))
    # What fits is left as it is.
    assert cut_to_window(blocks[2:], WIDTH, HEIGHT) == blocks[2:]


def test_two_long_tables_share_a_window() -> None:
    blocks: list[Block] = [big_grid(300), big_grid(200)]
    cut = cut_to_window(blocks, WIDTH, HEIGHT)
    lengths = [len(grid.rows) for grid in cut if isinstance(grid, Grid)]
    assert len(shown(cut).splitlines()) <= HEIGHT
    assert abs(lengths[0] - lengths[1]) <= 1


def test_a_window_of_no_height_ends() -> None:
    cut_to_window([big_grid(300), "x" * 10_000], WIDTH, 1)


def test_states_have_colours() -> None:
    assert "\x1b[32mready" in shown([big_grid(2)], "standard")
    assert "\x1b[3" not in shown([big_grid(2)])


@pytest.mark.parametrize("block", [
    Grid(["\x1b[2Jx"], [["\x1b]0;owned\x07"]]), "\x1b]0;owned\x07", Cell("\x1b]0;owned\x07[bold]", "red"),
])
def test_foreign_text_is_harmless(block: Block) -> None:
    text = shown([block])
    assert "\x1b]" not in text
    assert "\\x1b]0;owned" in text


def status(name: str, workers: int) -> dict[str, Any]:
    component = {
        "kind": "bolt", "tasks": workers, "executors": workers, "executed": 10**10, "emitted": 10**10, "acked": 10**10,
        "failed": 0, "execute_latency_ms": 0.01, "capacity": 0.5, "untracked": {"sent": 0}, "waits": {},
        "max_pending": None,
    }
    account = dict.fromkeys(
        ("emitted", "replayed", "acked", "failed", "dead_letters", "waiting", "pending", "abandoned", "unreplayed",
         "untracked_emitted", "timed_out"), 10**9)
    return {
        "name": name, "status": "ACTIVE", "uptime_secs": 5.0, "workers_wanted": workers, **account, "drained": False,
        "rates": {"emitted_per_sec": 1e6, "acked_per_sec": 1e6}, "latency_ms": {"p50": 1.0, "p99": 2.0, "max": None},
        "components": {f"{name}-{n}": dict(component) for n in range(workers)},
        "workers": [
            {"worker": f"node-{n}:6700", "state": "ready", "pid": n, "incarnation": 1, "uptime_secs": 1.0,
             "restarts": 0,
             "opening": {"component": name, "task": n, "method": "setup", "secs": 10.0}} for n in range(workers)
        ],
        "executors": [{"component": name, "tasks": [n, n], "worker": f"node-{n}:6700"} for n in range(workers)],
        "failures": {}, "links": {}, "metrics": {}, "deaths": [], "given_up": [], "faults": [],
        "replaced_by": {"id": f"{name}-2-0a0b0c0d", "status": "INACTIVE", "workers_wanted": 2, "fresh": True},
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["words", "n" * 200, "字" * 100, "\x1b[31m\u202e\n" * 20], ids=["short", "long", "wide", "hostile"]
)
def test_no_line_of_a_status_is_wider_than_the_window(name: str) -> None:
    from rich.cells import cell_len

    document = status(name, 3)
    assert max(map(cell_len, shown(topology_text(document)).splitlines())) <= WIDTH
    assert "\n" not in topology_line(document)
