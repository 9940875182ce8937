"""Tables on the pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui


class Table(ui.element, component="live_table.js"):
    """A table that is sent again only when it has changed. Without rows it says why."""

    def __init__(
        self, columns: Sequence[tuple[str, str, str]], empty: str, key: str = "key", rows_per_page: int = 0,
        filtered: bool = False, sort: str = "", on_pick: Callable[[Any], Any] | None = None,
    ) -> None:
        """`columns`: (key, title, kind); kinds: "" text, "link" to the row's `href`, "wrap", "chip" in the row's
        `colour`, "pick" and "replay" call `on_pick` with the row's key; for numbers "n" (with decimals: "n1" to "n3"),
        "b" bytes, "p" a share, "t" seconds, "at" a moment. `sort`: the column to sort by, the most first."""
        super().__init__()
        self._rows: list[dict[str, Any]] = []
        self.props.update({
            "columns": columns, "rows": self._rows, "row-key": key, "empty": empty, "rows-per-page": rows_per_page,
            "filtered": filtered, "sort-by": sort or None, "descending": bool(sort),
        })
        if on_pick is not None:
            self.on("pick", on_pick)

    def show(self, rows: list[dict[str, Any]]) -> None:
        if rows != self._rows:
            self._rows = self.props["rows"] = rows
