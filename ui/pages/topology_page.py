"""The page of one topology."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict
from nicegui import ui

from squall.engine.foreign.text import plural
from squall.scheduler.client.described import event_time_lines
from squall.ui.cluster_api import ClusterApi
from squall.ui.pages.flow import FlowGraph, busiest_of, colour_of
from squall.ui.pages.look import ALMOST, BUSY, CALM, ERROR, WARM
from squall.ui.pages.orders import Orders
from squall.ui.pages.over_time import Charts
from squall.ui.pages.overview import STATUS_COLOURS
from squall.ui.pages.shell import Shell, Table, Tiles, address_of, alarm, card, duration, heading, number, text
from squall.ui.pages.traces import Profiler, Traces
from squall.ui.pages.troubles import DeadLetterList, ErrorList, Events, LogSearch
from squall.ui.sampler import TopologyNow

_TABS = {
    "flow": "Flow", "components": "Components", "workers": "Workers", "errors": "Errors", "letters": "Dead letters",
    "events": "Events", "logs": "Logs", "traces": "Traces",
}
WORKER_COLOURS = {"ready": CALM, "starting": WARM}


class TopologyPage:
    """What is to know of one topology, in tabs that are made when they are first opened."""

    def __init__(self, api: ClusterApi, name: str, tab: str) -> None:
        self._api, self._name = api, name
        self._parts: dict[str, list[Callable[[TopologyNow], None]]] = {}
        with Shell(api, text(name), [(text(name), "")]) as shell:
            self._shell = shell
            self._headline()
            chosen = tab if tab in _TABS else "flow"
            with ui.tabs(on_change=self._opened).props(
                'dense no-caps align=left outside-arrows mobile-arrows inline-label aria-label="Parts"'
            ).classes("w-full") as self._tabs:
                self._labels = {key: ui.tab(key, label) for key, label in _TABS.items()}
            self._panels = {}
            for key, label in _TABS.items():
                self._panels[key] = ui.element("div").classes("sq-page").style("padding:0").props(
                    f'role=tabpanel aria-label="{label}"')
            self._open(chosen)
            self._tabs.set_value(self._labels[chosen])
        shell.live(self._update)

    def _topology(self) -> TopologyNow:
        return self._api.topology(self._name)

    def _headline(self) -> None:
        with ui.element("div").classes("sq-row"):
            heading(text(self._name), "h1")
            self._status = ui.label().classes("sq-chip")
            self._about = ui.label().classes("sq-soft")
            ui.element("span").style("flex:1")
            if not self._api.read_only:
                Orders(self._api, self._name, self._topology)
            self._hint = ui.label().classes("sq-alert").props("role=status")
            self._tiles = Tiles()

    # ---- tabs ----

    def _count(self, key: str, count: int) -> None:
        """Say on a tab how many there are behind it."""
        self._labels[key].props(f'label="{_TABS[key]}{f" ({count:,})" if count else ""}"')

    def _opened(self, event: Any) -> None:
        if event.value == self._chosen:
            return
        self._open(event.value)
        ui.run_javascript(f"history.replaceState(null,'','?tab={event.value}')")
        self._shell.tick()

    def _open(self, key: str) -> None:
        for name, panel in self._panels.items():
            panel.set_visibility(name == key)
        self._chosen = key
        if key not in self._parts:
            with self._panels[key]:
                self._parts[key] = self._make(key)

    def _make(self, key: str) -> list[Callable[[TopologyNow], None]]:
        api, name = self._api, self._name
        if key == "flow":
            graph, charts = FlowGraph(self._topology()), Charts(api, name)
            return [graph.update, lambda _: charts.update()]
        parts: dict[str, Callable[[], Any]] = {
            "components": Components, "workers": lambda: Workers(api), "errors": ErrorList,
            "letters": lambda: DeadLetterList(api, name), "events": lambda: Events(api, name),
            "logs": lambda: LogSearch(api, name), "traces": lambda: Traces(api, name),
        }
        made = [parts[key]().update]
        if key == "workers" and not api.read_only:
            made.append(Profiler(api, name).update)
        return made

    # ---- live ----

    def _update(self) -> None:
        status = self._topology()
        rates, latency = status.rates, status.latency_ms
        self._status.set_text(status.status)
        self._status.style(f"background:{STATUS_COLOURS.get(status.status, ERROR)}")
        row = self._api.row(self._name)
        self._about.set_text(
            f"up for {duration(row.uptime_secs)} · {row.workers_ready} of {row.workers_wanted} workers ready"
            f" · {len(status.components)} components · {row.tasks} tasks"
        )
        self._tiles.show({
            "messages acked/s": number(rates.acked_per_sec),
            "messages out/s": number(rates.emitted_per_sec),
            "messages pending": number(status.pending),
            "p50 now, ms": number(latency["p50"], 2),
            "p99 now, ms": number(latency["p99"], 2),
            "attempts failed": alarm(status.failed, "warn"),
            "dead letters": alarm(status.dead_letters, "bad"),
            "restarts": alarm(status.restarts_total, "warn"),
        })
        self._count("errors", sum(row.errors for row in status.components.values()))
        self._count("letters", status.dead_letters)
        hint, tone = hint_of(status)
        self._hint.set_text(hint)
        self._hint.classes(replace=f"sq-alert {tone}")
        for update in self._parts[self._chosen]:
            update(status)


def hint_of(status: TopologyNow) -> tuple[str, str]:
    """What stands out, in words, and its tone: what someone who sees the page for the first time looks for."""
    workers, given_up = status.workers, status.given_up
    faulty = [f"{text(name)} ({row.errors:,})" for name, row in status.components.items() if row.errors]
    hints: list[tuple[Any, str, str]] = [
        (status.why_stopped, "bad",
         f"It has stopped: {text(status.why_stopped)}. Activate goes on once that is mended."),
        (given_up, "bad", f"Slots were given up after too many deaths: {', '.join(given_up)} (see Errors)."),
        (not given_up and not (workers and all(row.state in ("ready", "stopped") for row in workers)), "warn",
         "Not all of its workers are ready (see Workers)."),
        (status.faults, "warn",
         f"Broken on purpose: {', '.join(text(fault.kind) for fault in status.faults)} (see Events)."),
        (status.dead_letters, "bad",
         f"{plural(status.dead_letters, 'message was', 'messages were')} given up (see Dead letters)."),
        (status.late_dropped, "bad",
         f"{plural(status.late_dropped, 'late tuple was', 'late tuples were')} dropped by windows."),
        (status.ahead, "warn",
         f"{plural(status.ahead, 'tuple was', 'tuples were')} too far ahead of the clock to move event time."),
        # A source that is read to its end holds up event time for 5 s: only what does for longer stands out.
        *((True, "good", f"Windows: {text(line)}.") for line in event_time_lines(status, least_secs=10)),
        (faulty, "bad", f"Errors in {', '.join(faulty)} (see Errors)."),
    ]
    capacity, slowest = busiest_of(status)
    if capacity >= ALMOST:
        row, recent = status.components[slowest], status.recent[slowest]
        hints.append((True, "warn", (
            f"{'Bottleneck' if capacity >= BUSY else 'Busiest'}: {text(slowest)} works {capacity:.0%} "
            f"of the time, {recent.execute_latency_ms:.3g} ms per tuple, {plural(row.in_queue, 'tuple')} queued"
            + (f"; it has {row.executors} of at most {row.tasks_fixed} executors." if capacity >= BUSY else ".")
        )))
    shown = [hint for shows, _, hint in hints if shows]
    tones = [tone for shows, tone, _ in hints if shows]
    tone = next((tone for tone in ("bad", "warn") if tone in tones), "good")
    return " ".join(shown) or "Nothing stands out: no errors, no deaths, and no component at its limit.", tone


def missing(api: ClusterApi, name: str) -> None:
    """The page of a topology that is not there."""
    with Shell(api, text(name), [(text(name), "")]) as shell, ui.element("section").classes("sq-card"):
            ui.label(f"There is no topology {text(name)!r} in this cluster, or it was not seen yet.")
            ui.link("To the cluster", "/")

    def look() -> None:
        if api.sampler.has(name):
            ui.navigate.to(address_of(name))

    shell.live(look)


class Components:
    """One row for each component."""

    def __init__(self) -> None:
        with card("Components", "Rates are of now. Capacity: the share of its time that a task is at work."):
            self._table = Table(
                [("name", "component", "link"), ("kind", "kind", "chip"), ("capacity", "capacity", "p"),
                 ("errors", "errors", "n"), ("failed", "failed", "n"), ("in_queue", "in queue", "n"),
                 ("executed_per_sec", "executed /s", "n"), ("emitted_per_sec", "emitted /s", "n"),
                 ("execute_latency_ms", "ms per tuple", "n3"), ("pending", "pending", "n"),
                 ("executors", "executors", "n"), ("tasks", "tasks", "n")],
                "It has no components.", "name", rows_per_page=25, filtered=True, sort="capacity",
            )

    def update(self, status: TopologyNow) -> None:
        recent = status.recent
        self._table.show(
            {
                **vars(component), **asdict(recent[name]), "name": name, "href": address_of(status.name, name),
                "colour": colour_of(component, recent[name]),
                **(dict.fromkeys(("capacity", "execute_latency_ms")) if component.kind == "spout" else {}),
            }
            for name, component in status.components.items()
        )


class Workers:
    """Workers with what they cost, and executors."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        with card("Workers", "CPU: 100 % is one core."):
            self._waits = ui.label().classes("sq-alert bad")
            self._workers = Table(
                [("worker", "node and port", ""), ("state", "state", "chip"), ("restarts", "restarts", "n"),
                 ("cpu_percent", "CPU %", "n1"), ("rss_bytes", "memory", "b"), ("held_bytes", "in its queues", "b"),
                 ("uptime_secs", "up for", "t"), ("opening", "opening", "wrap"), ("executors", "executors", "n"),
                 ("pid", "pid", "")],
                "It has no workers: it waits for a free slot, or was just submitted.", "worker", rows_per_page=20,
            )
        with card("Executors"):
            self._executors = Table(
                [("component", "component", "link"), ("tasks", "tasks", ""), ("worker", "worker", "")],
                "It has no executors: no worker runs it.", rows_per_page=20, filtered=True,
            )

    def update(self, status: TopologyNow) -> None:
        processes = {row["pid"]: row for row in self._api.processes()}
        given_up = status.given_up
        self._waits.set_text(f"Given up after too many deaths: {', '.join(given_up)}. Reset lets them start again.")
        self._waits.set_visibility(bool(given_up))
        self._workers.show(
            {
                **processes.get(worker.pid, {}), **asdict(worker), "colour": WORKER_COLOURS.get(worker.state, ERROR),
                "opening": (task := worker.opening) and f"{task.component} task {task.task}: {task.secs} s",
            }
            for worker in status.workers
        )
        components = status.components
        self._executors.show(
            {
                **asdict(row), "tasks": "–".join(map(str, dict.fromkeys(row.tasks))),
                "href": address_of(status.name, row.component) if row.component in components else "",
            }
            for row in status.executors
        )
