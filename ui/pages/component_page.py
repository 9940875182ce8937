"""The page of one component."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict
from nicegui import ui

from squall.ui.cluster_api import ClusterApi
from squall.ui.pages.flow import colour_of, grouping_of, stream_rate
from squall.ui.pages.shell import Shell, Table, Tiles, address_of, alarm, card, heading, number, text
from squall.ui.pages.traces import TupleList
from squall.ui.pages.troubles import ErrorList
from squall.ui.sampler import TopologyNow


class ComponentPage:
    """Its figures, streams, tasks and errors."""

    def __init__(self, api: ClusterApi, name: str, component: str) -> None:
        self._api, self._name, self._component = api, name, component
        crumbs = [(text(name), address_of(name)), (text(component), "")]
        with Shell(api, f"{text(component)} of {text(name)}", crumbs) as shell:
            with ui.element("div").classes("sq-row"):
                heading(text(component), "h1")
                self._kind = ui.label().classes("sq-chip")
            self._tiles = Tiles()
            with ui.element("div").classes("sq-two"):
                with card("Inputs"):
                    self._inputs = Table(
                        [("component", "from", "link"), ("stream", "stream", ""), ("grouping", "grouping", "wrap"),
                         ("rate", "tuples/s", "n")],
                        "A spout reads no streams.",
                    )
                with card("Outputs"):
                    self._outputs = Table(
                        [("to", "to", "link"), ("stream", "stream", ""), ("rate", "tuples/s", "n"),
                         ("fields", "fields", "wrap")],
                        "It emits nothing that anyone reads.",
                    )
            with card("Tasks", "Rates are of now. One that has more to do than the others: look at the grouping."):
                self._tasks = Table(
                    [("task", "task", ""), ("worker", "worker", ""), ("capacity", "capacity", "p"),
                     ("in_queue", "in queue", "n"), ("executed_per_sec", "executed /s", "n"),
                     ("emitted_per_sec", "emitted /s", "n"), ("execute_latency_ms", "ms per tuple", "n3")],
                    "No worker runs it.", "task", rows_per_page=25, filtered=True,
                )
            self._errors = ErrorList(component)
            self._tap = TupleList(api, name, component)
        shell.live(self._update)

    def _update(self) -> None:
        status = self._api.topology(self._name)
        component, recent = status.components[self._component], status.recent[self._component]
        is_bolt = component.kind == "bolt"
        self._kind.set_text(component.kind)
        self._kind.style(f"background:{colour_of(component, recent)}")
        self._tiles.show({
            "tuples executed /s": number(recent.executed_per_sec) if is_bolt else "–",
            "tuples emitted /s": number(recent.emitted_per_sec),
            "capacity": f"{recent.capacity:.0%}" if is_bolt else "–",
            "ms per tuple": number(recent.execute_latency_ms, 3) if is_bolt else "–",
            "tuples in queue": number(component.in_queue) if is_bolt else "–",
            "failed": alarm(component.failed, "warn"),
            "errors": alarm(component.errors, "bad"),
            "messages pending": "–" if is_bolt else number(component.pending),
        })
        self._inputs.show(
            {
                **asdict(row), "href": address_of(self._name, row.component), "grouping": grouping_of(row),
                "rate": stream_rate(status, row.component, row.stream),
            }
            for row in component.inputs if row.component in status.components
        )
        self._outputs.show(self._output_rows(status))
        tasks = self._api.busy(self._name, self._component)
        self._tasks.show({**task, "execute_latency_ms": task["execute_latency_ms"] or None} for task in tasks)
        self._errors.update(status)
        self._tap.update()

    def _output_rows(self, status: TopologyNow) -> list[dict[str, Any]]:
        outputs = status.components[self._component].outputs
        rows: list[dict[str, Any]] = []
        for stream, output in outputs.items():
            readers = [
                name for name, other in status.components.items()
                if any((row.component, row.stream) == (self._component, stream) for row in other.inputs)
            ]
            rows += [
                {
                    "to": reader or "nobody", "stream": stream, "fields": ", ".join(output.fields),
                    "href": address_of(self._name, reader) if reader else "",
                    "rate": stream_rate(status, self._component, stream),
                }
                for reader in readers or [""]
            ]
        return rows
