"""The last hour of each topology, in memory: what the charts show until the rings on disk answer.

Thread: `note` is called by the sampler's, `history` by any.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from squall.ui.sampler import Sample

_HOUR_SECS = 3600
_LATENCIES = {"p50_ms": "p50", "p99_ms": "p99"}


class Past:
    """What was seen of the topologies, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points: dict[str, deque[dict[str, Any]]] = {}
        self._ids: dict[str, str] = {}
        self._marks: dict[str, dict[Any, dict[str, Any]]] = {}

    def note(self, topology_id: str, sample: Sample) -> None:
        """Keep what a look has shown."""
        document, before, secs = sample.document, sample.before, max(sample.secs, 1e-3)
        point: dict[str, Any] = {
            "at_unix_secs": sample.at_unix_secs,
            **{f"{key}_per_sec": max(0, document[key] - before[key]) / secs for key in ("emitted", "acked", "failed")},
            "pending": document["pending"],
            **{key: document["latency_ms"][name] for key, name in _LATENCIES.items()},
        }
        with self._lock:
            name = document["name"]
            if self._ids.get(name) != topology_id:
                self._ids[name], self._points[name], self._marks[name] = topology_id, deque(maxlen=_HOUR_SECS), {}
            if sample.secs:
                self._points[name].append(point)
            marks, began = self._marks[name], sample.at_unix_secs - document["uptime_secs"]
            for restart in document["restarts"]:
                text = f"{restart['slot']} died: {restart['reason']}"
                mark = {"at_unix_secs": began + restart["at_secs"], "kind": "restart", "text": text}
                marks.setdefault((restart["slot"], restart["at_secs"]), mark)
            for fault in document["faults"]:
                text = f"{fault['kind']} {fault['hits']}"
                marks.setdefault(fault["id"], {"at_unix_secs": sample.at_unix_secs, "kind": "fault", "text": text})

    def history(self, name: str, window_secs: float, points: int) -> dict[str, Any]:
        """What was seen in the last `window_secs`, as at most so many points, each the mean of its span."""
        with self._lock:
            found, marks = list(self._points.get(name, ())), list(self._marks.get(name, {}).values())
        since = found[-1]["at_unix_secs"] - window_secs if found else 0.0
        spans: dict[int, list[dict[str, Any]]] = {}
        for point in found:
            if point["at_unix_secs"] > since:
                spans.setdefault(int(point["at_unix_secs"] * points / window_secs), []).append(point)
        return {
            "points": [_mean(span) for span in spans.values()],
            "marks": [mark for mark in marks if mark["at_unix_secs"] > since][-100:],
        }


def _mean(span: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"at_unix_secs": round(span[-1]["at_unix_secs"], 1)}
    for key in span[0].keys() - found.keys():
        values = [point[key] for point in span if point[key] is not None]
        found[key] = round(sum(values) / len(values), 2) if values else None
    return found
