"""The ways of messages through a topology, put together from what its workers saw (`engine.core.watch.Trace`).

Guarantees: the same events give the same ways, in whatever order the files of the workers are read. What was not seen
is None: a tuple that never arrived, an execution that a dead worker did not write down.

Relies on: one clock for all workers. Pure. Thread: any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = Sequence[Any]
Place = Callable[[int], tuple[str, int]]
"""Task -> its component and the task."""


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


@dataclass
class Attempt:
    """One emit of a message, and what came of it."""

    root: int
    task: int
    emitted_ns: int
    hops: list[Hop] = field(default_factory=list)
    outcome: str = "open"
    """"acked", "failed", or "open"."""
    ended_ns: int | None = None
    failure: dict[str, Any] | None = None
    """Reason, component, task, error and number of the attempt."""


@dataclass
class Way:
    """A message, with all its attempts that were seen, oldest first."""

    message_id: str
    values: str
    task: int
    attempts: list[Attempt] = field(default_factory=list)


def ways_of(events: Iterable[Event]) -> list[Way]:
    """The ways of all messages in the events of a trace, oldest first."""
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
    ways: dict[tuple[int, str], Way] = {}
    for _, emitted_ns, root, task, message_id, values in emits:
        way = ways.setdefault((task, message_id), Way(message_id, values, task))
        way.attempts.append(_attempt(root, task, emitted_ns, by_root[root]))
    return list(ways.values())


def _attempt(root: int, task: int, emitted_ns: int, events: list[Event]) -> Attempt:
    attempt = Attempt(root, task, emitted_ns)
    hops = attempt.hops
    for event in events:
        kind = event[0]
        if kind == "left":
            _, left_ns, _, edge, source, stream, target, tuples = event
            hops.append(Hop(source, target, stream, tuples, left_ns, edge))
        elif kind == "acked":
            attempt.outcome, attempt.ended_ns = "acked", event[1]
        elif kind == "failed":
            attempt.outcome, attempt.ended_ns = "failed", event[1]
            attempt.failure = dict(zip(("reason", "component", "task", "error", "attempt"), event[4:], strict=True))
    for event in events:
        if event[0] == "arrived":
            _, arrived_ns, _, edge, source, stream, target = event
            way = source, stream, target
            fit = [hop for hop in hops if (hop.source, hop.stream, hop.target) == way and hop.arrived_ns is None]
            if (hop := _of_edge(fit, edge)) is not None:
                hop.arrived_ns = arrived_ns
    for event in events:
        if event[0] == "executed":
            _, begun_ns, ended_ns, _, edge, task, _, together, failed = event
            fit = [hop for hop in hops if hop.target == task and hop.left_ns <= begun_ns]
            if (hop := _of_edge(fit, edge)) is not None:
                hop.begun_ns = begun_ns if hop.begun_ns is None else hop.begun_ns
                hop.ended_ns, hop.failed = ended_ns, hop.failed or failed
                hop.execute_ns += ended_ns - begun_ns
                hop.together += together
    for hop in hops:
        hop.parent = max(
            (index for index, other in enumerate(hops)
             if other.target == hop.source and other.begun_ns is not None and other.begun_ns <= hop.left_ns),
            key=lambda index: hops[index].begun_ns or 0, default=None,
        )
    return attempt


def _of_edge(hops: list[Hop], edge: int) -> Hop | None:
    """The hop with this edge; of tuples whose run was cut on the way, which changes the edge, the last one."""
    return next((hop for hop in hops if hop.edge == edge), hops[-1] if hops else None)


def described(way: Way, place: Place) -> dict[str, Any]:
    """A way as a document of the types that JSON knows; times in ms, `began_ms` counts from the emit."""
    component, task = place(way.task)
    return {
        "message_id": way.message_id, "values": way.values, "spout": component, "task": task,
        "attempts": [
            {
                "root": f"{attempt.root:016x}", "outcome": attempt.outcome, "failure": attempt.failure,
                "took_ms": _ms(attempt.emitted_ns, attempt.ended_ns),
                "began_ms": _ms(way.attempts[0].emitted_ns, attempt.emitted_ns),
                "hops": [_described_hop(hop, attempt, place) for hop in attempt.hops],
            }
            for attempt in way.attempts
        ],
    }


def _described_hop(hop: Hop, attempt: Attempt, place: Place) -> dict[str, Any]:
    source, target = place(hop.source), place(hop.target)
    emitted_ns = before_ns = attempt.emitted_ns
    if hop.parent is not None:
        before_ns = attempt.hops[hop.parent].ended_ns or hop.left_ns
    # Its way begins where the execution ends that emitted it: it waits to be sent, with others. One that left before
    # that end was sent by a full batch.
    ready_ns = min(before_ns, hop.left_ns)
    return {
        "from": source[0], "from_task": source[1], "stream": hop.stream, "to": target[0], "to_task": target[1],
        "tuples": hop.tuples, "together": hop.together, "parent": hop.parent, "failed": hop.failed,
        "began_ms": _ms(emitted_ns, ready_ns),
        "transport_ms": _ms(ready_ns, hop.arrived_ns), "queue_ms": _ms(hop.arrived_ns, hop.begun_ns),
        "execute_ms": round(hop.execute_ns / 1e6, 3) if hop.begun_ns is not None else None,
    }


def _ms(begin_ns: int | None, end_ns: int | None) -> float | None:
    return None if begin_ns is None or end_ns is None else round((end_ns - begin_ns) / 1e6, 3)


def perfetto(ways: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Described ways as a trace in the JSON format that ui.perfetto.dev and chrome://tracing open: a process for each
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
