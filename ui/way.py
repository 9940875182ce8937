"""The ways of messages through a topology, put together from what its workers saw (`engine.core.watch.Trace`).

Guarantees: the same events give the same ways, in whatever order the files of the workers are read. What was not seen
is None: a tuple that never arrived, an execution that a dead worker did not write down.

Relies on: one clock for all workers. Pure. Thread: any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Event = Sequence[Any]


@dataclass
class Hop:
    """Tuples of one message that one task sent to another in one batch."""

    source: int
    target: int
    stream: str
    tuples: int
    left_ns: int
    edge: int
    parent: int | None = None
    """Index of the hop in whose execution they were emitted; None: by the spout."""
    arrived_ns: int | None = None
    begun_ns: int | None = None
    ended_ns: int | None = None
    execute_ns: int = 0
    together: int = 0
    """Tuples that were executed in the same calls; more than `tuples` for a batch bolt."""
    failed: bool = False


def ways_of(events: Iterable[Event], component_of: Callable[[int], str]) -> list[dict[str, Any]]:
    """Describe the ways of all messages in the events of a trace, oldest first, as documents; times in ms, `began_ms`
    counts from the emit."""
    by_root: dict[int, list[Event]] = defaultdict(list)
    emits = []
    for event in sorted(events, key=lambda event: event[1]):
        kind = event[0]
        if kind == "emit":
            emits.append(event)
        elif kind == "executed":
            by_root[event[3]].append(event)
        elif kind in ("left", "arrived", "acked", "failed"):
            by_root[event[2]].append(event)
    ways: dict[tuple[int, str], dict[str, Any]] = {}
    first_ns: dict[tuple[int, str], int] = {}
    for _, emitted_ns, root, task, message_id, values in emits:
        key = task, message_id
        way = ways.setdefault(key, {
            "message_id": message_id, "values": values, "spout": component_of(task), "task": task, "attempts": [],
        })
        began_ms = _ms(first_ns.setdefault(key, emitted_ns), emitted_ns)
        attempt = _attempt(emitted_ns, by_root[root], component_of)
        way["attempts"].append({"root": f"{root:016x}", "began_ms": began_ms, **attempt})
    return list(ways.values())


def _attempt(emitted_ns: int, events: list[Event], component_of: Callable[[int], str]) -> dict[str, Any]:
    hops: list[Hop] = []
    outcome, ended_ns, failure = "open", None, None
    for event in events:
        kind = event[0]
        if kind == "left":
            _, left_ns, _, edge, source, stream, target, tuples = event
            hops.append(Hop(source, target, stream, tuples, left_ns, edge))
        elif kind in ("acked", "failed"):
            outcome, ended_ns = kind, event[1]
        if kind == "failed":
            failure = dict(zip(("reason", "component", "task", "error", "attempt"), event[4:], strict=True))
    for event in events:
        if event[0] == "arrived":
            _, arrived_ns, _, edge, source, stream, target = event
            way = source, stream, target
            fit = [hop for hop in hops if (hop.source, hop.stream, hop.target) == way and hop.arrived_ns is None]
            if (hop := _of_edge(fit, edge)) is not None:
                hop.arrived_ns = arrived_ns
    for event in events:
        if event[0] == "executed":
            _, begun_ns, ended, _, edge, task, _, together, failed = event
            fit = [hop for hop in hops if hop.target == task and hop.left_ns <= begun_ns]
            if (hop := _of_edge(fit, edge)) is not None:
                hop.begun_ns = begun_ns if hop.begun_ns is None else hop.begun_ns
                hop.ended_ns, hop.failed = ended, hop.failed or failed
                hop.execute_ns += ended - begun_ns
                hop.together += together
    for hop in hops:
        hop.parent = max(
            (index for index, other in enumerate(hops)
             if other.target == hop.source and other.begun_ns is not None and other.begun_ns <= hop.left_ns),
            key=lambda index: hops[index].begun_ns or 0, default=None,
        )
    return {
        "outcome": outcome, "failure": failure, "took_ms": _ms(emitted_ns, ended_ns),
        "hops": [_described(hop, hops, emitted_ns, component_of) for hop in hops],
    }


def _of_edge(hops: list[Hop], edge: int) -> Hop | None:
    """The hop with this edge; of tuples whose run was cut on the way, which changes the edge, the last one."""
    return next((hop for hop in hops if hop.edge == edge), hops[-1] if hops else None)


def _described(hop: Hop, hops: list[Hop], emitted_ns: int, component_of: Callable[[int], str]) -> dict[str, Any]:
    before_ns = emitted_ns
    if hop.parent is not None:
        before_ns = hops[hop.parent].ended_ns or hop.left_ns
    # Its way begins where the execution ends that emitted it: it waits to be sent, with others. One that left before
    # that end was sent by a full batch.
    ready_ns = min(before_ns, hop.left_ns)
    return {
        "from": component_of(hop.source), "from_task": hop.source, "stream": hop.stream,
        "to": component_of(hop.target), "to_task": hop.target,
        "tuples": hop.tuples, "together": hop.together, "parent": hop.parent, "failed": hop.failed,
        "began_ms": _ms(emitted_ns, ready_ns),
        "transport_ms": _ms(ready_ns, hop.arrived_ns), "queue_ms": _ms(hop.arrived_ns, hop.begun_ns),
        "execute_ms": round(hop.execute_ns / 1e6, 3) if hop.begun_ns is not None else None,
    }


def _ms(begin_ns: int | None, end_ns: int | None) -> float | None:
    return None if begin_ns is None or end_ns is None else round((end_ns - begin_ns) / 1e6, 3)


def outcome_of(attempt: Mapping[str, Any]) -> str:
    """Say what came of an attempt, after how long, and why it failed."""
    took = "" if attempt["took_ms"] is None else f" after {attempt['took_ms']:,.2f} ms"
    why = attempt["failure"]
    where = f": {why['reason']} in {why['component']}[{why['task']}]: {why['error']}" if why else ""
    return f"{attempt['outcome']}{took}{where}"


def perfetto(ways: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Ways as a trace in the JSON format that ui.perfetto.dev and chrome://tracing open: a process for each
    message and attempt, a track for each task; times in us since its first emit."""
    events: list[dict[str, Any]] = []
    for number, way in enumerate(ways, 1):
        for attempt_number, attempt in enumerate(way["attempts"], 1):
            pid, since_us = number * 1000 + attempt_number, 1000 * attempt["began_ms"]
            name = f"{way['message_id']} of {way['spout']}[{way['task']}], attempt {attempt_number}"
            events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
            whole = {"ph": "X", "name": attempt["outcome"], "pid": pid, "tid": way["task"], "ts": since_us}
            events.append({**whole, "dur": 1000 * (attempt["took_ms"] or 0.0), "args": attempt["failure"] or {}})
            for hop in attempt["hops"]:
                at_us, track = since_us + 1000 * hop["began_ms"], {"pid": pid, "tid": hop["to_task"]}
                who = {"name": f"{hop['to']}[{hop['to_task']}]"}
                events.append({"ph": "M", "name": "thread_name", **track, "args": who})
                for part in ("transport", "queue", "execute"):
                    dur_us = 1000 * (hop[f"{part}_ms"] or 0.0)
                    args = {key: hop[key] for key in ("from", "stream", "tuples", "failed")}
                    event = {"ph": "X", "name": part, "cat": hop["to"], **track, "ts": at_us, "dur": dur_us}
                    events.append({**event, "args": args})
                    at_us += dur_us
    return {"displayTimeUnit": "ms", "traceEvents": events}
