"""Shows the result of `squall status` to people."""

from __future__ import annotations

from typing import Any

from squall.cli.account_text import detail_blocks, emitted_text, latency_text
from squall.cli.fault_text import fault_lines
from squall.cli.tables import table
from squall.engine.foreign.plain_text import plain_values
from squall.engine.plural import plural

_COMPONENT_COLUMNS = {
    "kind": "kind", "tasks": "tasks", "executors": "executors", "executed": "executed", "emitted": "emitted",
    "acked": "acked", "failed": "failed", "ms/tuple": "execute_latency_ms", "capacity": "capacity",
}


def cluster_text(document: dict[str, Any]) -> str:
    document = plain_values(document)
    slots = sum(map(len, document["nodes"].values()))
    nodes, free = plural(len(document["nodes"]), "node"), len(document["free_slots"])
    lines = [f"cluster in {document['dir']}: {nodes}, {plural(slots, 'slot')}, {free} free"]
    lines += [f"node {node} is gone: it has been silent for some seconds" for node in document["gone"]]
    lines += [f"{name} {status}" for name, status in document["topologies"].items()]
    lines += fault_lines(document["faults"])
    return "\n".join(lines)


def topology_text(document: dict[str, Any]) -> str:
    """Show a topology as described by `describe`."""
    document = plain_values(document)
    broken = fault_lines(document["faults"])
    if not document["workers"]:
        return "\n".join([f"{document['name']} is {document['status']} and waits for a free slot", *broken])
    parts = [_headline(document), _components(document), _workers(document)]
    parts += ["\n".join(lines) for lines in detail_blocks(document) if lines]
    deaths = [_death(row) for row in document["deaths"]]
    if deaths:
        parts.append("\n".join(["last deaths:", *deaths]))
    if document["given_up"]:
        slots = ", ".join(document["given_up"])
        parts.append(f"given up: {slots}; `squall reset {document['name']}` tries again")
    if broken:
        parts.append("\n".join(broken))
    return "\n\n".join(parts)


def _death(row: dict[str, Any]) -> str:
    """ "node-1:6700 incarnation 3: killed by SIGSEGV, 31 MiB: Fatal Python error: Segmentation fault"."""
    memory = f", {row['rss_bytes'] >> 20} MiB" if row["rss_bytes"] else ""
    error = f": {row['error']}" if row["error"] else ""
    return f"{row['worker']} incarnation {row['incarnation']}: {row['reason']}{memory}{error}"


def _headline(document: dict[str, Any]) -> str:
    rates = document["rates"]
    workers = f"{len(document['workers'])} of {plural(document['workers_wanted'], 'worker')}"
    drained = "; drained: its spouts have nothing more to emit" if document["drained"] else ""
    return (
        f"{document['name']} is {document['status']}, up {document['uptime_secs']:.0f} s, {workers}{drained}\n"
        f"{emitted_text(document)}\n"
        f"{rates['emitted_per_sec']:,.0f} emitted/s, {rates['acked_per_sec']:,.0f} acked/s; "
        f"emit to ack: {latency_text(document['latency_ms'], ('p50', 'p99', 'max'))}"
    )


def _components(document: dict[str, Any]) -> str:
    rows = [
        [name, *(row[key] for key in _COMPONENT_COLUMNS.values())] for name, row in document["components"].items()
    ]
    return table(["component", *_COMPONENT_COLUMNS], rows)


def _workers(document: dict[str, Any]) -> str:
    rows = [
        [
            row["worker"], row["state"], str(row["pid"]), row["incarnation"], row["uptime_secs"] or 0.0,
            row["restarts"], ", ".join(_executors_of(document, row["worker"])),
        ]
        for row in document["workers"]
    ]
    return table(["worker", "state", "pid", "incarnation", "uptime s", "restarts", "executors"], rows)


def _executors_of(document: dict[str, Any], worker: str) -> list[str]:
    """ "count[3-4]" for the executor of tasks 3 and 4."""
    return [
        f"{row['component']}[{'-'.join(dict.fromkeys(map(str, row['tasks'])))}]"
        for row in document["executors"]
        if row["worker"] == worker
    ]
