"""The graph of a topology: boxes for components, lines for streams.

Guarantees: boxes do not overlap, however many there are: the drawing is as large as it needs to be, and is scrolled,
by keys too. What it says is in the table of components as well.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from squall.engine.foreign.text import short
from squall.scheduler.client.statuses import ComponentStatus
from squall.scheduler.common.messages import InputSummary
from squall.ui.graph import layers_of
from squall.ui.pages.look import ALMOST, AXIS, BUSY, CALM, ERROR, HOT, IDLE, SPOUT, WARM
from squall.ui.pages.shell import address_of, card, number, text
from squall.ui.sampler import ComponentRates, TopologyNow

_BOX = (138, 40)
_SHAPE = "path://M7,0H131A7,7,0,0,1,138,7V33A7,7,0,0,1,131,40H7A7,7,0,0,1,0,33V7A7,7,0,0,1,7,0Z"
"""Such a box with round corners."""
_FRAME = 8
_GAP = (90, 22)
_MARGIN = 16
_AT_ONCE = 1.25
"""Capacity from which a task executes several tuples at a time."""
_MANY = 30
"""More components than this are drawn small, and their streams are not labelled."""
_READABLE = 6
"""Smaller letters, in px, are left out."""
_FADED = 0.15
_ZOOMS = (0.35, 0.5, 0.7, 0.85, 1.0, 1.25, 1.6)


class FlowGraph:
    """One topology's graph."""

    def __init__(self, status: TopologyNow) -> None:
        self._name = status.name
        names = list(status.components)
        edges = [(row.component, name) for name, component in status.components.items()
                 for row in component.inputs]
        self._layers = layers_of(names, edges)
        self._zoom = _ZOOMS.index(1.0) if len(names) <= _MANY else _ZOOMS.index(0.7)
        self._filter = ""
        self._shown: list[dict[str, Any]] = []
        self._topology, self._sought = status, True
        with card("Flow"):
            with ui.element("div").classes("sq-row"):
                for colour, what in (
                    (SPOUT, "spout"), (IDLE, "idle bolt"), (CALM, "bolt"), (WARM, f"busy: {ALMOST:.0%} of its time"),
                    (HOT, f"bottleneck: {BUSY:.0%}"), (ERROR, "frame: has errors"),
                ):
                    with ui.element("span").classes("sq-key"):
                        ui.element("i").style(f"{'border:3px solid' if colour == ERROR else 'background:'} {colour}")
                        ui.label(what)
                ui.element("span").style("flex:1")
                if len(names) > _MANY:
                    ui.input(placeholder="find", on_change=self._find).props(
                        'dense outlined clearable debounce=200 aria-label="Find components in the graph"')
                for icon, what, by in (("remove", "Smaller", -1), ("add", "Larger", 1)):
                    zoom = ui.button(icon=icon, on_click=lambda by=by: self._turn(by), color=None)
                    zoom.props(f'flat dense round aria-label="{what}"')
            self._view = ui.element("div").classes("sq-scroll")
            with self._view.props('tabindex=0 role=region aria-label="Graph; scroll it"'):
                self._chart = ui.echart(self._options(), on_point_click=self._open)
                self._resize()

    def update(self, status: TopologyNow) -> None:
        """Show what has changed."""
        self._topology = status
        series = self._series()
        changed = [part for part, before in zip(series, self._shown, strict=True) if part != before]
        if changed:
            self._shown = series
            self._chart.run_chart_method("setOption", {"series": changed})
        share, name = busiest_of(status)
        if self._sought and share >= ALMOST:
            # To the middle of a phone of 390 px. Once: it would move under the fingers of whoever reads elsewhere.
            self._sought = False
            self._view.run_method("scrollTo", *(place - 172 for place in self._places()[name]))

    def _turn(self, by: int) -> None:
        self._zoom = min(max(self._zoom + by, 0), len(_ZOOMS) - 1)
        self._redraw()

    def _find(self, event: Any) -> None:
        self._filter = (event.value or "").lower()
        self._redraw()

    def _redraw(self) -> None:
        self._resize()
        self._chart.options.clear()
        self._chart.options.update(self._options())
        self._chart.update()

    def _open(self, event: Any) -> None:
        if isinstance(event.data, dict) and event.data.get("id") in self._topology.components:
            ui.navigate.to(address_of(self._name, event.data["id"]))

    # ---- drawing ----

    @property
    def _scale(self) -> float:
        return _ZOOMS[self._zoom]

    def _size(self) -> tuple[float, float]:
        rows = max(map(len, self._layers), default=1)
        across = len(self._layers) * (_BOX[0] + _GAP[0]) - _GAP[0] + 2 * _MARGIN
        down = rows * (_BOX[1] + _GAP[1]) - _GAP[1] + 2 * _MARGIN
        return round(across * self._scale), round(down * self._scale)

    def _places(self) -> dict[str, tuple[float, float]]:
        """The middle of each box."""
        _, height = self._size()
        return {
            name: (
                (_MARGIN + _BOX[0] / 2 + depth * (_BOX[0] + _GAP[0])) * self._scale,
                height / 2 + (row - (len(layer) - 1) / 2) * (_BOX[1] + _GAP[1]) * self._scale,
            )
            for depth, layer in enumerate(self._layers) for row, name in enumerate(layer)
        }

    def _resize(self) -> None:
        width, height = self._size()
        self._chart.style(f"width:{width}px;height:{height}px;margin:0 auto")

    def _options(self) -> dict[str, Any]:
        self._shown = self._series()
        width, height = self._size()
        font, room = 12 * self._scale, {"left": 0, "right": 0, "top": 0, "bottom": 0}
        common = {
            "lines": {
                "coordinateSystem": "cartesian2d", "symbol": ["none", "arrow"], "symbolSize": 8 * self._scale, "z": 1,
                "lineStyle": {"color": AXIS, "opacity": 0.7},
                "label": {
                    "show": len(self._topology.components) <= _MANY, "fontSize": font * 0.85,
                    "lineHeight": font, "color": AXIS, "position": "middle", "distance": 3,
                },
            },
            "scatter": {
                "symbol": _SHAPE, "symbolSize": [side * self._scale for side in _BOX], "z": 2,
                "label": {
                    "show": font >= _READABLE, "color": "#fff", "fontSize": font, "lineHeight": font * 1.3,
                    "position": "inside",
                },
            },
        }
        return {
            "animation": False, "tooltip": {"confine": True, "textStyle": {"fontSize": 12}}, "grid": room,
            "xAxis": {"min": 0, "max": width, "show": False},
            "yAxis": {"min": 0, "max": height, "inverse": True, "show": False},
            "series": [{"type": part["id"], "cursor": "pointer", **common[part["id"]], **part} for part in self._shown],
        }

    def _series(self) -> list[dict[str, Any]]:
        """What changes: lines and boxes, each with the id of its series."""
        places, components = self._places(), self._topology.components
        links = [
            self._link(source, name, places)
            for name, component in components.items() for source in component.inputs if source.component in places
        ]
        return [
            {"id": "lines", "data": links},
            {"id": "scatter", "data": [
                *(self._frame(place) for name, place in places.items() if components[name].errors),
                *(self._node(name, place) for name, place in places.items()),
            ]},
        ]

    def _frame(self, place: tuple[float, float]) -> dict[str, Any]:
        """Lies below a box that has errors. A border of ECharts would be thicker at the short sides."""
        return {
            "value": place, "symbolSize": [(side + _FRAME) * self._scale for side in _BOX], "label": {"show": False},
            "itemStyle": {"color": ERROR, "opacity": _FADED if self._filter else 1}, "tooltip": {"show": False},
        }

    def _node(self, name: str, place: tuple[float, float]) -> dict[str, Any]:
        component, recent = self._topology.components[name], self._topology.recent[name]
        rate = recent.emitted_per_sec if component.kind == "spout" else recent.executed_per_sec
        shown, room = text(name), int((_BOX[0] - 12) / 7)
        label = shown if len(shown) <= room else f"{shown[: room - 7]}…{shown[-6:]}"
        tip = [
            f"<b>{html.escape(shown)}</b> ({component.kind}, {component.tasks} tasks)",
            f"{'emitted' if component.kind == 'spout' else 'executed'}: {number(rate)} /s",
        ]
        if component.kind == "bolt":
            tip += [f"capacity: {recent.capacity:.0%}", f"per tuple: {recent.execute_latency_ms:.3g} ms",
                    f"in queue: {number(component.in_queue)}"]
        if component.errors:
            tip.append(f"errors: {number(component.errors)}")
        style: dict[str, Any] = {"color": colour_of(component, recent), "opacity": 1}
        if self._filter not in name.lower():
            style["opacity"] = _FADED
        return {
            "id": name, "value": place, "itemStyle": style,
            "label": {"formatter": f"{_as_label(label)}\n{short(rate)}/s"},
            "tooltip": {"formatter": _as_label("<br>".join(tip))},
        }

    def _link(
        self, source: InputSummary, receiver: str, places: Mapping[str, tuple[float, float]]
    ) -> dict[str, Any]:
        sender, stream = source.component, source.stream
        rate = stream_rate(self._topology, sender, stream)
        tip = f"<b>{html.escape(text(f'{sender} → {receiver}'))}</b><br>"
        tip += html.escape(text(f"stream {stream}, {grouping_of(source)}"))
        tip += "" if rate is None else f"<br>{short(rate)} tuples/s"
        label = ("" if stream == "default" else f"{text(stream)[:20]}\n") + source.grouping
        label += "" if rate is None else f"\n{short(rate)}/s"
        style: dict[str, Any] = {
            "width": round(max(1.0, min(7.0, 1 + 1.2 * math.log10(1 + (rate or 0)))) * self._scale, 1)
        }
        (x, y), (to_x, to_y), half = places[sender], places[receiver], _BOX[0] / 2 * self._scale
        if to_x - x > (_BOX[0] + _GAP[0]) * self._scale * 1.5 or to_x <= x:
            # It passes other layers: not straight through their boxes.
            style["curveness"] = 0.2
        if self._filter not in sender.lower() and self._filter not in receiver.lower():
            style["opacity"] = _FADED / 2
        return {
            "coords": [[x + half, y], [to_x - half, to_y]], "lineStyle": style,
            "label": {"formatter": _as_label(label)}, "tooltip": {"formatter": _as_label(tip)},
        }


def grouping_of(source: InputSummary) -> str:
    """Name the grouping of an input, and its fields."""
    return f"{source.grouping} by {', '.join(source.fields)}".removesuffix(" by ")


def share_of_time(recent: ComponentRates) -> float:
    """How busy a bolt is, at most 1. One that has several tuples in `execute` at once, as coroutines, is not held up by
    its processor: 0."""
    capacity = recent.capacity
    return 0.0 if capacity > _AT_ONCE else min(1.0, capacity)


def busiest_of(status: TopologyNow) -> tuple[float, str]:
    """The largest share of the time that a component works, and its name. Spouts work no time."""
    return max(((share_of_time(recent), name) for name, recent in status.recent.items()), default=(0.0, ""))


def colour_of(component: ComponentStatus, recent: ComponentRates) -> str:
    if component.kind == "spout":
        return SPOUT
    share = share_of_time(recent)
    if share >= BUSY:
        return HOT
    if share >= ALMOST:
        return WARM
    return CALM if recent.executed_per_sec else IDLE


def stream_rate(status: TopologyNow, sender: str, stream: str) -> float | None:
    """Tuples a second that a component emits on a stream; None if that is not known: only its sum is."""
    component = status.components[sender]
    rate = status.recent[sender].emitted_per_sec
    counts = {name: row.emitted for name, row in component.outputs.items()}
    if len(counts) <= 1:
        return rate
    total = sum(counts.values())
    return rate * counts.get(stream, 0) / total if total else None


def _as_label(given: str) -> str:
    """Make a formatter of ECharts, which replaces {a}, {b} ..., and takes {x|...} for a style, of a text."""
    return given.replace("{", "⦃").replace("}", "⦄")

