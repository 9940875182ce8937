"""Throughput, pending and latency of a topology over time, with restarts and faults on the same axis."""

from __future__ import annotations

import html
import time
from typing import Any

from nicegui import ui

from squall.ui.cluster_api import ClusterApi
from squall.ui.pages.look import AXIS, ERROR, FAULT, LINES
from squall.ui.pages.shell import card, text

_WINDOWS = {300: "5 min", 3600: "1 h"}
_POINTS = 180
_STEPS = 100
"""A chart is drawn anew when it has moved by this part of its width: to draw three of them is most of what the page
costs the browser."""
_LEAST_SECS = 60
_SECONDS_MATTER = 240
_CHARTS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("Throughput", "messages/s", tuple((name, f"{name}_per_sec") for name in ("emitted", "acked", "failed"))),
    ("Pending", "messages", (("pending", "pending"),)),
    ("Latency, emit to ack", "ms", (("p50", "p50_ms"), ("p99", "p99_ms"))),
)
"""Title, unit, and the lines: name and key of a point."""


class Charts:
    """Three charts with one time axis."""

    def __init__(self, api: ClusterApi, name: str) -> None:
        self._api, self._name = api, name
        self._window = 300
        self._due_secs = 0.0
        with card("Over time"):
            with ui.element("div").classes("sq-row"):
                ui.toggle(_WINDOWS, value=self._window, on_change=self._turn).props(
                    'dense no-caps unelevated toggle-color=primary aria-label="Time shown"')
                for colour, what in ((ERROR, "a worker died"), (FAULT, "a fault began or ended")):
                    with ui.element("span").classes("sq-key"):
                        ui.element("i").style(f"background:{colour};width:3px")
                        ui.label(what)
            with ui.element("div").classes("sq-three"):
                self._charts = [ui.echart(_options(*chart)).style("height:240px;width:100%").props(
                    f'role=img aria-label="{chart[0]} in {chart[1]} over time"') for chart in _CHARTS]

    def _turn(self, event: Any) -> None:
        self._window, self._due_secs = event.value, 0.0
        self.update()

    def update(self) -> None:
        """Show what has come."""
        now = time.monotonic()
        if now < self._due_secs:
            return
        history = self._api.history(self._name, float(self._window), _POINTS)
        if not history.points:
            return
        self._due_secs = now + self._window / _STEPS
        points = history.points
        end = points[-1].at_unix_secs * 1000
        # What is not known yet takes no room.
        begin = max(end - self._window * 1000, min(points[0].at_unix_secs * 1000, end - _LEAST_SECS * 1000))
        clock = "{HH}:{mm}:{ss}" if end - begin < _SECONDS_MATTER * 1000 else "{HH}:{mm}"
        axis = {"min": begin, "max": end, "axisLabel": {"formatter": clock}}
        marks = [
            {"xAxis": mark.at_unix_secs * 1000, "name": html.escape(text(mark.text))[:120],
             "lineStyle": {"color": ERROR if mark.kind.endswith("died") else FAULT}}
            for mark in history.marks
        ]
        for chart, (_, _, rows) in zip(self._charts, _CHARTS, strict=True):
            series: list[dict[str, Any]] = [
                {"data": [[point.at_unix_secs * 1000, getattr(point, key)] for point in points]} for _, key in rows
            ]
            series[0]["markLine"] = {"data": marks}
            chart.run_chart_method("setOption", {"xAxis": axis, "series": series})


def _options(title: str, unit: str, rows: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    grey = {"color": AXIS}
    return {
        "animation": False, "textStyle": grey,
        "title": {"text": title, "textStyle": {"color": AXIS, "fontSize": 13}, "left": 4, "top": 4},
        "legend": {"right": 8, "top": 4, "textStyle": grey, "itemWidth": 14, "itemHeight": 8, "show": len(rows) > 1},
        "grid": {"left": 12, "right": 20, "top": 58, "bottom": 8, "containLabel": True},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {
            "type": "time", "splitNumber": 4,
            "axisLabel": {**grey, "hideOverlap": True, "showMaxLabel": False, "showMinLabel": False},
            "axisLine": {"lineStyle": {"color": AXIS, "opacity": 0.4}},
        },
        "yAxis": {
            "type": "value", "name": unit, "nameTextStyle": {**grey, "align": "left"}, "nameGap": 12, "min": 0,
            "axisLabel": grey, "splitLine": {"lineStyle": {"color": AXIS, "opacity": 0.2}}, "splitNumber": 4,
        },
        "series": [
            {
                "name": name, "type": "line", "showSymbol": False, "data": [], "color": LINES[name],
                "lineStyle": {"width": 2}, "areaStyle": {"opacity": 0.08 if index == 0 else 0}, "connectNulls": False,
                "markLine": {
                    "symbol": "none", "data": [], "lineStyle": {"type": "solid", "width": 1, "opacity": 0.7},
                    "label": {"show": False}, "emphasis": {"label": {"show": True, "formatter": "{b}"}},
                },
            }
            for index, (name, _) in enumerate(rows)
        ],
    }
