"""`squall ps`: the processes of a standing cluster, by role."""

from __future__ import annotations

from typing import Any, NamedTuple

import click
import psutil

from squall.cli.shown.screen import Block, Grid, plain_number, show
from squall.cli.standing import directory_option, json_option
from squall.engine.errors import UsageError
from squall.engine.report.schema import with_schema
from squall.scheduler.client.standing import open_cluster, start_hint
from squall.scheduler.common.mark import processes_of, role_of
from squall.scheduler.common.process import secs_since, start_time_ticks
from squall.scheduler.common.process_title import Kind, Role

OTHER = "other"
"""Role of a process that users' code has started."""
_ORDER = [*Kind, OTHER]


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


class _Process(NamedTuple):
    pid: int
    parent: int
    role: Role | None
    command: str
    uptime_secs: float
    rss_bytes: int


def described(processes: list[psutil.Process]) -> list[dict[str, Any]]:
    """A row for each process of a cluster, in the order of roles, nodes and ports."""
    found = {each.pid: each for process in processes if (each := _looked_at(process)) is not None}
    rows = []
    for each in found.values():
        owner, role = _owner(each, found), each.role
        name = owner.name if owner is not None else ""
        node, _, port = name.rpartition(":") if owner is not None and owner.kind is Kind.WORKER else (name, "", "")
        # A child of a worker that did not execute anything shows the worker's role.
        parent = found.get(each.parent)
        is_own = role is not None and (role.kind is not Kind.WORKER or parent is None or parent.role != role)
        rows.append({
            "role": str(role.kind) if role is not None and is_own else OTHER,
            "node": node or None, "port": int(port) if port.isdecimal() else None,
            "topology": (owner.topology if owner is not None else "") or None, "pid": each.pid,
            "parent_pid": each.parent, "uptime_secs": round(each.uptime_secs, 1), "rss_bytes": each.rss_bytes,
            "command": each.command,
        })
    return sorted(rows, key=lambda row: (
        _ORDER.index(row["role"]), row["node"] or "", row["port"] or 0, row["pid"],
    ))


def _looked_at(process: psutil.Process) -> _Process | None:
    """None if it has ended."""
    try:
        with process.oneshot():
            return _Process(
                process.pid, process.ppid(), role_of(process), " ".join(process.cmdline()).rstrip(),
                secs_since(start_time_ticks(process.pid)), process.memory_info().rss,
            )
    except (psutil.Error, OSError):
        return None


def _owner(process: _Process, found: dict[int, _Process]) -> Role | None:
    """Its own role, or that of the process of the cluster below which it was started."""
    seen = {process.pid}
    while process.role is None and process.parent in found and process.parent not in seen:
        seen.add(process.parent)
        process = found[process.parent]
    return process.role


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
