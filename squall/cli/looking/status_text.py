"""Shows the result of `squall status` to people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import starmap
from typing import Any

from squall.cli.report_text import components_grid, count_lines, detail_blocks, emitted_text, latency_text
from squall.cli.screen import Block, Cell, Grid, alarm_cell, plain_number, state_cell
from squall.engine.plural import plural
from squall.scheduler.client.described import event_time_lines

_LONG_OPENING_SECS = 1.0
"""Time after which a task that is being opened is shown."""


def cluster_text(document: dict[str, Any]) -> list[Block]:
    """Show a cluster as described by `squall status`."""
    blocks: list[Block] = [f"cluster in {document['dir']}: {'; '.join(_cluster(document))}"]
    if document["topologies"]:
        rows = [[name, state_cell(status)] for name, status in document["topologies"].items()]
        blocks.append(Grid(["topology", "status"], rows))
    if document["replaced_by"]:
        blocks.append(list(starmap(replaced_text, document["replaced_by"].items())))
    if document["daemon_deaths"]:
        blocks.append(["last deaths of daemons:", *map(_daemon_death, document["daemon_deaths"])])
    if broken := fault_lines(document["faults"]):
        blocks.append(Cell(broken, "magenta"))
    return blocks


def _cluster(document: dict[str, Any]) -> list[str]:
    slots, nodes = sum(map(len, document["nodes"].values())), plural(len(document["nodes"]), "node")
    return [
        f"{nodes}, {plural(slots, 'slot')}, {len(document['free_slots'])} free",
        *(f"node {node} is gone: it has been silent for some seconds" for node in document["gone"]),
        *(f"node {node} is leaving: it gets no more work" for node in document["leaving"]),
        *(["its keeper has died: `squall up` starts one that brings back daemons"] if document["keeper_gone"] else []),
    ]


def _daemon_death(row: dict[str, Any]) -> str:
    """ "2026-11-25 22:15:03 nimbus: killed by SIGKILL"."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["at_unix_secs"]))
    return f"{at} {row['daemon']}: {row['reason']}{': ' + row['error'] if row['error'] else ''}"


def topology_text(document: dict[str, Any]) -> list[Block]:
    """Show a topology as described by `describe`."""
    broken = fault_lines(document["faults"])
    blocks: list[Block] = [headline(document)]
    if not document["workers"]:
        return [*blocks, broken] if broken else blocks
    if document["replaced_by"]:
        blocks.append(replaced_text(document["name"], document["replaced_by"]["id"]))
    blocks += [components_grid(document), _workers(document)]
    if opening := opening_lines(document):
        blocks.append(Cell(opening, "yellow"))
    blocks += [lines for lines in detail_blocks(document) if lines]
    if document["deaths"]:
        blocks.append(["last deaths:", *map(_death, document["deaths"])])
    if document["why_stopped"]:
        blocks.append(Cell([f"stopped: {document['why_stopped']}"], "bold red"))
    if document["given_up"]:
        slots = ", ".join(document["given_up"])
        blocks.append(Cell(f"given up: {slots}; `squall reset {document['name']}` tries again", "bold red"))
    if broken:
        blocks.append(Cell(broken, "magenta"))
    return blocks


def replaced_text(name: str, successor: str) -> str:
    """Tell people what takes the place of a topology."""
    return f"{name} is being replaced by {successor}, which begins when it has drained"


def _death(row: dict[str, Any]) -> str:
    """ "node-1:6700 incarnation 3 at 7.12 s: killed by SIGSEGV, 31 MiB (2 times on 1 worker, first at 3.50 s)"."""
    memory = f", {row['rss_bytes'] >> 20} MiB" if row["rss_bytes"] else ""
    error = f": {row['error']}" if row["error"] else ""
    times = f" ({row['times']:,} times on {plural(row['workers'], 'worker')}, first at {row['first_secs']:.2f} s)"
    who = f"{row['worker']} incarnation {row['incarnation']} at {row['last_secs']:.2f} s"
    return f"{who}: {row['reason']}{memory}{error}{times if row['times'] > 1 else ''}"


def headline(document: dict[str, Any]) -> list[str]:
    """Tell the state, account and speed of a topology in a few lines."""
    if not document["workers"]:
        return [f"{document['name']} is {document['status']} and waits for a free slot"]
    rates = document["rates"]
    ready = sum(row["state"] == "ready" for row in document["workers"])
    workers = f"{ready} of {plural(document['workers_wanted'], 'worker')}"
    if document["restarts_total"]:
        workers += f", {plural(document['restarts_total'], 'restart')}"
    drained = "; drained: its spouts have nothing more to emit" if document["drained"] else ""
    latency = latency_text(document["latency_ms"], ("p50", "p99", "max"))
    speed = f"{rates['emitted_per_sec']:,.0f} emitted/s, {rates['acked_per_sec']:,.0f} acked/s"
    return [
        f"{document['name']} is {document['status']}, up {document['uptime_secs']:.0f} s, {workers}{drained}",
        emitted_text(document),
        f"{speed}; emit to ack: {latency}",
        *count_lines(document),
        *event_time_lines(document),
    ]


def _workers(document: dict[str, Any]) -> Grid:
    rows = [
        [
            row["worker"], state_cell(row["state"]), plain_number(row["pid"]), row["incarnation"],
            round(row["uptime_secs"] or 0.0), alarm_cell(row["restarts"]),
            ", ".join(_executors_of(document, row["worker"])),
        ]
        for row in document["workers"]
    ]
    return Grid(["worker", "state", "pid", "incarnation", "uptime s", "restarts", "executors"], rows)


def opening_lines(document: dict[str, Any]) -> list[str]:
    """ "enrich[7] on node-1:6700 is still in setup after 12 s"."""
    found = [(row["worker"], row["opening"]) for row in document["workers"] if row["opening"] is not None]
    return [
        f"{task['component']}[{task['task']}] on {worker} is still in {task['method']} after {task['secs']:.0f} s"
        for worker, task in found if task["secs"] >= _LONG_OPENING_SECS
    ]


def _executors_of(document: dict[str, Any], worker: str) -> list[str]:
    """ "count[3-4]" for the executor of tasks 3 and 4."""
    return [
        f"{row['component']}[{'-'.join(dict.fromkeys(map(str, row['tasks'])))}]"
        for row in document["executors"]
        if row["worker"] == worker
    ]


def fault_lines(documents: Sequence[dict[str, Any]]) -> list[str]:
    """Return lines for people; none if no fault is in force."""
    return [
        f"broken on purpose: {row['kind']} {row['hits']}, {row['left_secs']:g} s left (squall heal ends it)"
        for row in documents
    ]
