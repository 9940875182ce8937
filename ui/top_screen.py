"""The screen of `squall top`: a topology's components, live, by Textual (extra `ui`).

Guarantees: when Nimbus or the topology goes away, the screen says so, keeps what it knows and tries again. Texts of the
cluster are shown plain.

Thread: a thread of its own opens the `Job` and asks it; the screen never waits for the cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from msgspec.structs import asdict
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Static

from squall.engine.errors import SquallError
from squall.engine.foreign.text import plain
from squall.engine.report.failure_log import ComponentFailures
from squall.engine.report.run_report import Figures
from squall.scheduler.client.described import describe
from squall.scheduler.client.job import Job
from squall.scheduler.client.statuses import Status
from squall.ui.charts import component_rates

COLUMNS = {
    "component": "name", "kind": "kind", "tasks": "tasks", "executed/s": "executed_per_sec",
    "emitted/s": "emitted_per_sec", "ms/tuple": "execute_latency_ms", "capacity": "capacity", "in queue": "in_queue",
    "failed": "failed", "errors": "errors",
}
"""Title -> key in the description of a component, or among its rates."""
_BUSY = 0.8
"""Capacity from which a component is the bottleneck, or soon will be."""
_ERRORS_SHOWN = 5
Row = tuple[Any, ...]
"""The values of a component, by column."""


def rows_of(before: Status, now: Status) -> list[Row]:
    """Return a row for each component, with the rates of the time between two descriptions."""
    rates = component_rates(before, now, now.duration_secs - before.duration_secs)
    return [
        tuple(map({**vars(row), **asdict(rates[name]), "name": name}.__getitem__, COLUMNS.values()))
        for name, row in now.components.items()
    ]


def sorted_rows(rows: Sequence[Row], column: int) -> list[Row]:
    """Sort texts from A, numbers from the greatest."""
    return sorted(rows, key=lambda row: row[column], reverse=not isinstance(rows[0][column], str)) if rows else []


def detail_lines(status: Status, component: str) -> list[str]:
    """Tell the executors of a component, and its last errors."""
    executors = [
        f"tasks {'-'.join(dict.fromkeys(map(str, row.tasks)))} on {row.worker}"
        for row in status.executors if row.component == component
    ]
    last = status.failures.get(component, ComponentFailures()).last[-_ERRORS_SHOWN:]
    errors = [
        f"at {one.at_secs:.1f} s: {one.reason} in task {one.task} on {one.worker}: {one.error}"
        for one in reversed(last)
    ]
    deaths = [
        f"{death.times:,} deaths of workers, last at {death.last_secs:.1f} s: {death.error}"
        for death in status.deaths if death.error.startswith(f"{component}[")
    ]
    return [f"{component}: {'; '.join(executors)}", *(deaths + errors or ["no errors"])]


class Top(App[None]):
    """The screen."""

    CSS = "#head, #detail { height: auto; padding: 0 1; } #detail { max-height: 12; } DataTable { height: 1fr; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"), Binding("escape", "leave", "Close details"),
        *(
            Binding(str(number % 10), f"sort({number - 1})", "Sort by column", show=number == 1, key_display="1-0")
            for number in range(1, len(COLUMNS) + 1)
        ),
    ]

    def __init__(
        self, opened: Callable[[], AbstractContextManager[Job]],
        headline: Callable[[Status], list[str]], interval_secs: float,
    ) -> None:
        """`opened` connects to the topology; `headline` describes it in a few lines."""
        super().__init__()
        self._opened, self._headline, self._interval_secs = opened, headline, interval_secs
        self._over = threading.Event()
        self._topology: Status | None = None
        self._rows: list[Row] = []
        self._column, self._chosen = 0, ""

    def compose(self) -> ComposeResult:
        """Make the parts of the screen."""
        yield Static("connecting", id="head", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static("", id="detail", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask."""
        self.query_one(DataTable).add_columns(*COLUMNS)
        self.run_worker(self._follow, thread=True)

    def on_unmount(self) -> None:
        """End the thread."""
        self._over.set()

    # ---- the thread that asks ----

    def _follow(self) -> None:
        while not self._over.is_set():
            try:
                with self._opened() as job:
                    before: Figures = job.stats()
                    while not self._over.wait(self._interval_secs):
                        before = describe(job, before)
                        self._tell(self.show, before)
            except SquallError as error:
                self._tell(self.show_away, plain(error))
                self._over.wait(self._interval_secs)

    def _tell(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self._over.is_set():
            self.call_from_thread(call, *arguments)

    # ---- the screen ----

    def show(self, status: Status) -> None:
        """Show the topology as it is now."""
        before = self._topology
        if before is None or before.id != status.id:
            before = status
        self._topology, self._rows = status, rows_of(before, status)
        self.query_one("#head", Static).update("\n".join(map(plain, self._headline(status))))
        self._draw()

    def show_away(self, why: str) -> None:
        """Say that nothing new is known."""
        self.query_one("#head", Static).update(f"nothing new: {why}")

    def _draw(self) -> None:
        table, name = self.query_one(DataTable), self._under_cursor()
        rows = sorted_rows(self._rows, self._column)
        table.clear()
        for row in rows:
            table.add_row(*map(_cell, row, COLUMNS), key=row[0])
        if name in (names := [row[0] for row in rows]):
            table.move_cursor(row=names.index(name), animate=False)
        known = self._topology is not None and self._chosen in self._topology.components
        lines = detail_lines(self._topology, self._chosen) if self._topology is not None and known else []
        self.query_one("#detail", Static).update("\n".join(map(plain, lines)))

    def _under_cursor(self) -> str | None:
        table = self.query_one(DataTable)
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value) if table.row_count else None

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the details of the component."""
        self._chosen = str(event.row_key.value)
        self._draw()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column."""
        self.action_sort(event.column_index)

    def action_sort(self, column: int) -> None:
        """Sort by a column."""
        self._column = column
        self._draw()

    def action_leave(self) -> None:
        """Close the details."""
        self._chosen = ""
        self._draw()


def _cell(value: object, column: str) -> Text:
    text = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else plain(value)
    alarms = {"capacity": isinstance(value, float) and value >= _BUSY, "failed": bool(value), "errors": bool(value)}
    return Text(text, "bold red" if alarms.get(column) else "", justify="left" if isinstance(value, str) else "right")
