"""The tables of a topology: components, executors and workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from squall.ui.cluster_api import ClusterApi
from squall.ui.pages.flow import colour_of
from squall.ui.pages.look import CALM, ERROR, WARM
from squall.ui.pages.shell import Table, address_of, card

WORKER_COLOURS = {"ready": CALM, "starting": WARM}


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

    def update(self, document: Mapping[str, Any]) -> None:
        recent = document["recent"]
        self._table.show(
            {
                **component, **recent[name], "name": name, "href": address_of(document["name"], name),
                "colour": colour_of(component, recent[name]),
                **(dict.fromkeys(("capacity", "execute_latency_ms")) if component["kind"] == "spout" else {}),
            }
            for name, component in document["components"].items()
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

    def update(self, document: Mapping[str, Any]) -> None:
        processes = {row["pid"]: row for row in self._api.processes()}
        given_up = document["given_up"]
        self._waits.set_text(f"Given up after too many deaths: {', '.join(given_up)}. Reset lets them start again.")
        self._waits.set_visibility(bool(given_up))
        self._workers.show(
            {
                **processes.get(worker["pid"], {}), **worker, "colour": WORKER_COLOURS.get(worker["state"], ERROR),
                "opening": worker["opening"] and "{component} task {task}: {secs} s".format(**worker["opening"]),
            }
            for worker in document["workers"]
        )
        components = document["components"]
        self._executors.show(
            {
                **row, "tasks": "–".join(map(str, dict.fromkeys(row["tasks"]))),
                "href": address_of(document["name"], row["component"]) if row["component"] in components else "",
            }
            for row in document["executors"]
        )
