"""The record of injected faults, with their times: `faults.jsonl` of a run directory.

Guarantees: append-only; a line is there whole or not at all. A fault is on record before it is carried out, with pid
and incarnation of the processes that it signals, so an injected death can be told from others.

::

    {"event": "begin", "at_secs": 812.4, "id": 3, "kind": "kill", "targets": ["node-1:6700"], "ends_secs": 812.4,
     "victims": [{"name": "node-1:6700", "pid": 4711, "started_ticks": 81234, "incarnation": 2}], ...}
    {"event": "hit", "at_secs": 815.0, "id": 4, "kind": "exit", "name": "node-1:6701", "pid": 4712, "incarnation": 1}
    {"event": "end", "at_secs": 822.4, "id": 4, "kind": "exit", "healed": false}

A `hit` is a fault that a worker carried out on itself, and may die of. Times are of the monotonic clock.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from squall.ipc.line_file import append_line, read_lines
from squall.ipc.rundir import RunDir
from squall.scheduler.faults.in_force import FaultInForce

BEGIN, HIT, END = "begin", "hit", "end"


def note_begin(run_dir: RunDir, fault: FaultInForce) -> None:
    """OSError if there is no room."""
    document: dict[str, Any] = msgspec.to_builtins(fault)
    _append(run_dir, {"event": BEGIN, "at_secs": document.pop("began_secs"), **document})


def note_hit(run_dir: RunDir, fault: FaultInForce, name: str, pid: int, incarnation: int, now: float) -> None:
    """OSError if there is no room."""
    event = {"event": HIT, "at_secs": now, "id": fault.id, "kind": fault.kind}
    _append(run_dir, {**event, "name": name, "pid": pid, "incarnation": incarnation})


def note_end(run_dir: RunDir, fault: FaultInForce, now: float, *, healed: bool) -> None:
    """OSError if there is no room."""
    _append(run_dir, {"event": END, "at_secs": now, "id": fault.id, "kind": fault.kind, "healed": healed})


def read_record(run_dir: RunDir) -> list[dict[str, Any]]:
    """All events, oldest first, without damaged lines. OSError if the record cannot be read."""
    return [event for line in read_lines(run_dir.fault_record) if (event := _event(line)) is not None]


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_one = isinstance(event, dict) and event.get("event") in (BEGIN, HIT, END) and type(event.get("id")) is int
    return event if is_one else None


def _append(run_dir: RunDir, document: dict[str, Any]) -> None:
    append_line(run_dir.fault_record, json.dumps(document))
