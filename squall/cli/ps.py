"""`squall ps`: the processes of a standing cluster, by role."""

from __future__ import annotations

import contextlib
from typing import Any

import click
import psutil

from squall.cli.shown.screen import Block, Grid, plain_number, show
from squall.cli.standing import directory_option, json_option
from squall.engine.errors import UsageError
from squall.engine.report.document import with_schema
from squall.scheduler.client.standing import open_cluster, start_hint
from squall.scheduler.common.process import secs_since, start_time_ticks
from squall.scheduler.common.role import RoleKind, processes_of, role_of

OTHER = "other"
"""Role of a process that users' code has started."""
_ORDER = [*RoleKind, OTHER]


@click.command("ps")
@directory_option
@json_option
def ps_command(directory: str | None, as_json: bool) -> None:
    """List every process of the cluster: role, node, port, topology, pid. Needs no Nimbus."""
    run_dir = open_cluster(directory)
    rows = described(processes_of(run_dir))
    if not rows:
        raise UsageError(f"no process of a cluster runs in {run_dir.path}: {start_hint(directory)}")
    show(as_json, with_schema("ps", {"dir": str(run_dir.path), "processes": rows}), [_grid(rows)])


def described(processes: list[psutil.Process]) -> list[dict[str, Any]]:
    """Return a row for each process of a cluster, in the order of roles, nodes and ports."""
    rows = []
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError), process.oneshot():
            role, parent = role_of(process), process.parent()
            if role is not None and role.kind is RoleKind.WORKER and parent is not None and role_of(parent) == role:
                # A child of a worker that did not execute anything shows the worker's role.
                role = None
            node, _, port = ("" if role is None else role.name).partition(":")
            rows.append({
                "role": OTHER if role is None else str(role.kind),
                "node": node or None, "port": int(port) if port.isdecimal() else None,
                "topology": (role.topology if role is not None else "") or None,
                "pid": process.pid, "parent_pid": process.ppid(),
                "uptime_secs": round(secs_since(start_time_ticks(process.pid)), 1),
                "rss_bytes": process.memory_info().rss, "command": " ".join(process.cmdline()).rstrip(),
            })
    return sorted(rows, key=lambda row: (
        _ORDER.index(row["role"]), row["node"] or "", row["port"] or 0, row["pid"],
    ))


def _grid(rows: list[dict[str, Any]]) -> Block:
    head = ["role", "node", "port", "topology", "pid", "uptime s", "MiB"]
    return Grid(head, [
        [
            row["role"] if row["role"] != OTHER else f"{OTHER}: {row['command']}", row["node"],
            plain_number(row["port"]), row["topology"], plain_number(row["pid"]),
            round(row["uptime_secs"]), row["rss_bytes"] >> 20,
        ]
        for row in rows
    ])
