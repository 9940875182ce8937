"""The page of the cluster."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict
from nicegui import ui

from squall.ui.cluster_api import ClusterApi
from squall.ui.pages.look import CALM, ERROR, IDLE, WARM
from squall.ui.pages.orders import heal_all, inject_fault
from squall.ui.pages.shell import Shell, Table, Tiles, address_of, card, number, small_button
from squall.ui.sampler import ClusterNow

STATUS_COLOURS = {"ACTIVE": CALM, "FINISHED": CALM, "INACTIVE": IDLE, "REBALANCING": WARM}
"""Of a topology's status; any other is a trouble."""


class Overview:
    """Nodes, topologies, processes, deaths and faults."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        with Shell(api, "Cluster", []) as shell:
            self._tiles = Tiles()
            with card("Topologies"):
                self._topologies = Table(
                    [("name", "name", "link"), ("status", "status", "chip"), ("dead_letters", "dead letters", "n"),
                     ("restarts_total", "restarts", "n"), ("acked_per_sec", "acked /s", "n"), ("failed", "failed", "n"),
                     ("pending", "pending", "n"), ("p99", "p99 ms", "n1"), ("workers", "workers", ""),
                     ("executed_per_sec", "executed /s", "n"), ("tasks", "tasks", "n"), ("uptime_secs", "up for", "t")],
                    "No topology runs here: `squall submit FILE` starts one.", "name", rows_per_page=20,
                )
            with ui.element("div").classes("sq-two"):
                with card("Nodes"):
                    self._nodes = Table(
                        [("node", "node", ""), ("state", "state", "chip"), ("used", "slots used", "n"),
                         ("slots", "slots", "n")],
                        "No supervisor has registered yet: `squall up` starts them.", "node",
                    )
                with card("Faults in force"):
                    self._faults = fault_table()
                    if not api.read_only:
                        with ui.element("div").classes("sq-row q-mt-sm"):
                            small_button("Inject", "bug_report", lambda: inject_fault(api))
                            self._heal = small_button("Heal all", "healing", lambda: heal_all(api))
            with card("Processes", "CPU: 100 % is one core."):
                self._processes = Table(
                    [("role", "role", ""), ("name", "node and port", ""), ("cpu_percent", "CPU %", "n1"),
                     ("rss_bytes", "memory", "b"), ("topology", "topology", "link"), ("uptime_secs", "up for", "t"),
                     ("pid", "pid", "")],
                    "No process of the cluster runs.", "pid", rows_per_page=20, filtered=True,
                )
            with card("Deaths", "Of Nimbus, supervisors, the keeper and workers; the newest first."):
                self._deaths = Table(
                    [("who", "who", ""), ("reason", "how", ""), ("at_unix_secs", "when", "at"), ("times", "times", "n"),
                     ("error", "last words", "wrap")],
                    "Nothing has died.", rows_per_page=10,
                )
        shell.live(self._update)

    def _update(self) -> None:
        cluster, rows, processes = self._api.cluster(), self._api.topologies(), self._api.processes()
        slots = sum(map(len, cluster.nodes.values()))
        ready, wanted = (sum(getattr(row, key) for row in rows) for key in ("workers_ready", "workers_wanted"))
        self._tiles.show({
            "topologies": number(len(rows)),
            "messages acked /s": number(sum(row.rates.acked_per_sec for row in rows)),
            "nodes": number(len(cluster.nodes)),
            "slots used, of all": f"{slots - len(cluster.free_slots)} / {slots}",
            "workers ready": (f"{ready} / {wanted}", "" if ready >= wanted else "warn"),
            "CPU, % of one core": number(sum(row["cpu_percent"] or 0 for row in processes)),
            "memory, MiB": number(sum(row["rss_bytes"] for row in processes) / (1 << 20)),
        })
        self._topologies.show(
            {
                **asdict(row), **asdict(row.rates), "p99": row.recent_latency_ms["p99"], "href": address_of(row.name),
                "workers": f"{row.workers_ready} / {row.workers_wanted}",
                "colour": STATUS_COLOURS.get(row.status, ERROR),
            }
            for row in rows
        )
        self._nodes.show(_node_rows(cluster))
        self._faults.show(map(asdict, cluster.faults))
        if not self._api.read_only:
            self._heal.set_visibility(bool(cluster.faults))
        self._processes.show(
            {**row, "href": address_of(row["topology"]) if self._api.sampler.has(row["topology"]) else ""}
            for row in processes
        )
        self._deaths.show(self._death_rows(cluster))

    def _death_rows(self, cluster: ClusterNow) -> list[dict[str, Any]]:
        rows = [{"times": 1, **vars(death), "who": death.daemon} for death in reversed(cluster.daemon_deaths)]
        for name in self._api.sampler.names():
            topology = self._api.topology(name)
            began = topology.at_unix_secs - topology.uptime_secs
            rows += [
                {**asdict(death), "who": f"worker {death.worker} of {name}", "at_unix_secs": began + death.last_secs}
                for death in reversed(topology.deaths)
            ]
        return sorted(rows, key=lambda row: -row["at_unix_secs"])


def _node_rows(cluster: ClusterNow) -> list[dict[str, Any]]:
    free = set(cluster.free_slots)
    rows = []
    for node in dict.fromkeys([*cluster.nodes, *cluster.gone]):
        slots = cluster.nodes.get(node, [])
        state = "leaving" if node in cluster.leaving else "gone" if node in cluster.gone else "up"
        rows.append({
            "node": node, "state": state, "colour": CALM if state == "up" else ERROR, "slots": len(slots),
            "used": sum(slot not in free for slot in slots),
        })
    return rows


def fault_table() -> Table:
    return Table(
        [("kind", "kind", ""), ("hits", "who", "wrap"), ("left_secs", "left", "t")],
        "Nothing is broken on purpose.", "id",
    )
