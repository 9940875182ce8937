"""The way of single records, drawn; tuples as they pass; flame graphs of workers."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from squall.engine.foreign.text import plural
from squall.ui.cluster_api import ClusterApi
from squall.ui.pages.look import AXIS, CALM, ERROR, LINES, WARM
from squall.ui.pages.shell import Table, card, order, small_button, text
from squall.ui.sampler import TopologyNow
from squall.ui.way import outcome_of, perfetto

_SAMPLES = {0.1: "1 in 10", 0.01: "1 in 100", 0.001: "1 in 1,000", 1.0: "every message"}
_SECS = {5: "5 s", 10: "10 s", 60: "1 min"}
_OUTCOMES = {"acked": CALM, "failed": ERROR, "open": WARM}
_PARTS = (("transport", LINES["p50"]), ("queue", WARM), ("execute", LINES["emitted"]))
_MOST_HOPS = 60


class Traces:
    """Follows messages, and draws the way of the one that is chosen."""

    def __init__(self, api: ClusterApi, name: str) -> None:
        self._api, self._name, self._trace_id = api, name, ""
        self._messages: list[dict[str, Any]] = []
        self._shown = self._wanted = ""
        with card("Follow records", "Where the time of single messages goes: on the way, in queues, in execute."):
            with ui.element("div").classes("sq-row"):
                self._id = ui.input(label="message id").props("dense outlined clearable")
                self._sample = ui.select(_SAMPLES, value=0.01, label="or a sample").props("dense outlined")
                self._sample.style("min-width:9rem")
                self._secs = ui.select(_SECS, value=10, label="for").props("dense outlined")
                if not api.read_only:
                    small_button("Follow", "route", self._begin)
            self._state = ui.label("Nothing was followed yet.").classes("sq-soft").props("role=status")
            self._table = Table(
                [("message_id", "message", "pick"), ("outcome", "outcome", "chip"), ("took_ms", "took ms", "n2"),
                 ("attempts", "attempts", "n"), ("hops", "hops", "n"), ("values", "values", "wrap")],
                "", rows_per_page=8, sort="took_ms", on_pick=lambda event: self._pick(event.args),
            )
        self._drawing = ui.element("section").classes("sq-card")
        self._drawing.set_visibility(False)

    async def _begin(self) -> None:
        message_id = (self._id.value or "").strip()
        secs, sample = float(self._secs.value), 0.0 if message_id else float(self._sample.value)
        api, name = self._api, self._name
        begun = await order(lambda: api.begin_trace(name, message_id, sample, secs), "Following.")
        if begun is None:
            return
        if self._trace_id:
            self._api.end_watch(self._trace_id)
        self._trace_id, self._shown, self._wanted = begun["id"], "", message_id

    def update(self, _: TopologyNow) -> None:
        """Show what has come."""
        if not self._trace_id:
            return
        found = self._api.trace(self._trace_id)
        self._messages = found["messages"]
        told = f"{plural(len(self._messages), 'message')} seen"
        if not self._messages and self._wanted:
            told = f"No message {text(self._wanted)} was emitted since"
        self._state.set_text(f"{told}; it has ended." if found["ended"] else f"{told}, and it goes on.")
        rows = list(map(_row, self._messages))
        self._table.show(rows)
        whole = [place for place, row in enumerate(rows) if row["took_ms"] is not None]
        if whole and not self._shown:
            self._pick(max(whole, key=lambda place: rows[place]["took_ms"]))
        if found["ended"]:
            self._trace_id = ""

    def _pick(self, key: int) -> None:
        way = self._messages[key]
        self._shown = way["message_id"]
        self._drawing.clear()
        self._drawing.set_visibility(True)
        with self._drawing:
            with ui.element("div").classes("sq-row"):
                ui.label(f"Message {text(way['message_id'])} of {text(way['spout'])}").classes("text-bold")
                data = json.dumps(perfetto([way])).encode()
                small_button("Perfetto file", "download", lambda: ui.download(data, "trace.json"))
            for count, attempt in enumerate(way["attempts"], 1):
                ui.label(text(f"Attempt {count}: {outcome_of(attempt)}")).classes("sq-soft")
                hops = attempt["hops"][:_MOST_HOPS]
                if hops:
                    ui.echart(_timeline(hops)).style(f"height:{90 + 26 * len(hops)}px;width:100%").props(
                        f'role=img aria-label="Hops of attempt {count} over time, in ms"')
                if len(attempt["hops"]) > _MOST_HOPS:
                    ui.label(f"The first {_MOST_HOPS} of {len(attempt['hops']):,} hops.").classes("sq-soft")


def _row(way: Mapping[str, Any]) -> dict[str, Any]:
    last = way["attempts"][-1]
    return {
        **last, "message_id": way["message_id"], "colour": _OUTCOMES[last["outcome"]],
        "attempts": len(way["attempts"]), "hops": len(last["hops"]), "values": way["values"][:120],
    }


def _timeline(hops: list[dict[str, Any]]) -> dict[str, Any]:
    """Bars of a hop one after the other: what passed since the emit, then its way, its queue and its execution."""
    names = [
        html.escape(text(f"{hop['from']} \u2192 {hop['to']}[{hop['to_task']}] \u00d7{hop['tuples']}")) for hop in hops
    ]
    bar = {"type": "bar", "stack": "time", "barWidth": 12}
    series = [{**bar, "name": "", "data": [hop["began_ms"] for hop in hops], "itemStyle": {"color": "transparent"},
               "tooltip": {"show": False}, "silent": True}]
    series += [
        {**bar, "name": part, "data": [hop[f"{part}_ms"] or 0 for hop in hops], "color": colour}
        for part, colour in _PARTS
    ]
    grey = {"color": AXIS}
    return {
        "animation": False, "textStyle": grey, "tooltip": {"trigger": "item", "confine": True},
        "legend": {"data": [part for part, _ in _PARTS], "right": 8, "top": 0, "textStyle": grey},
        "grid": {"left": 12, "right": 24, "top": 34, "bottom": 24, "containLabel": True},
        "xAxis": {"type": "value", "name": "ms", "nameLocation": "middle", "nameGap": 24,
                  "axisLabel": {**grey, "hideOverlap": True},
                  "splitLine": {"lineStyle": {"color": AXIS, "opacity": 0.2}}},
        "yAxis": {"type": "category", "data": names, "inverse": True,
                  "axisLabel": {**grey, "width": 220, "overflow": "truncate"}, "axisTick": {"show": False}},
        "series": series,
    }


class TupleList:
    """Tuples of a component, as they pass."""

    def __init__(self, api: ClusterApi, name: str, component: str) -> None:
        self._api, self._name, self._component, self._tap_id = api, name, component, ""
        with card("Tuples", "Some of those that it emits; what it executes, if nothing reads them."):
            if not api.read_only:
                small_button("Show for a minute", "visibility", self._begin)
            self._table = Table([("task", "task", ""), ("stream", "stream", ""), ("values", "values", "wrap")],
                                "None are shown." if api.read_only else "None yet.", rows_per_page=0)

    async def _begin(self) -> None:
        begun = await order(lambda: self._api.begin_tap(self._name, self._component), "Watching.")
        if begun is not None:
            self._tap_id = begun["id"]

    def update(self) -> None:
        """Show what has come."""
        if not self._tap_id:
            return
        found = self._api.tap(self._tap_id)
        self._table.show(reversed(found["tuples"][-20:]))
        if found["ended"]:
            self._tap_id = ""


class Profiler:
    """Flame graphs of workers."""

    def __init__(self, api: ClusterApi, name: str) -> None:
        self._api, self._name = api, name
        with card("Profile", "A flame graph of where a worker spends its time, drawn from outside by py-spy."):
            with ui.element("div").classes("sq-row"):
                self._worker = ui.select([], label="worker").props("dense outlined").style("min-width:12rem")
                self._secs = ui.select(_SECS, value=10, label="for").props("dense outlined")
                self._button = small_button("Draw", "local_fire_department", self._draw)
            self._links = ui.element("div")

    async def _draw(self) -> None:
        worker, secs = self._worker.value, float(self._secs.value)
        self._button.disable()
        drawn = await order(lambda: self._api.profile(self._name, worker, secs), "Drawn.") if worker else None
        if drawn is not None:
            with self._links:
                ui.link(f"{worker}, {secs:g} s", f"/api/squall/v1/profiles/{drawn['id']}", new_tab=True)
        self._button.enable()

    def update(self, status: TopologyNow) -> None:
        """Offer the workers that run."""
        workers = [row.worker for row in status.workers if row.pid]
        if workers != self._worker.options:
            self._worker.set_options(workers, value=self._worker.value or next(iter(workers), None))
