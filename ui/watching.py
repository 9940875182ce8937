"""Watches on running topologies, seen from whoever began them; and those that pages and programs have begun.

Guarantees: what is begun at a `WatchDesk` ends at its time, and its files with it; there are at most MOST at once.

Process: any of the owner's. Thread: of a `Watching` the one of its Job; of a `WatchDesk` any, one at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from squall.engine.errors import UsageError
from squall.scheduler.client.job import Job
from squall.scheduler.records.watches import Event, WatchFiles
from squall.ui.sampler import Unknown
from squall.ui.way import ways_of

MOST = 16
_KEPT_SECS = 600.0
"""How long the result of a watch is kept after its end."""
_MOST_PER_SEC = 10
"""Most tuples of a tap that each worker shows."""
_ROWS = 200
"""Most tuples of a tap that are kept."""
_LEASE_SECS = 20.0


class Watching:
    """Begins with the object, and goes on for at most `secs` seconds, or until `end`."""

    def __init__(self, job: Job, secs: float, *, kept: bool = False, **what: Any) -> None:
        """`kept`: it ends some seconds after the last call of `keep`, so that it does not outlive a process that is
        killed. `what`: the fields of `scheduler.records.watches.WatchRequest`. UsageError if the topology does not
        run, for a trace if it has no ackers, for a tap if it has no such component."""
        view = job.view()
        if view is None:
            raise UsageError(f"{job.name} waits for a free slot: there is nothing to watch")
        component, self._component_of = what.get("component"), view.component_of
        if component is None and job.record.conf["ackers"] == 0:
            raise UsageError(f"{job.name} has no ackers (setting ackers): its messages have no trees to follow")
        known = list(dict.fromkeys(view.component_of.values()))
        if component is not None and component not in known:
            raise Unknown(f"{job.name} has no component {component!r:.80}; components: {', '.join(known)}")
        self._files = WatchFiles(job.run_dir, job.id)
        self._job, self._ends_secs = job, time.monotonic() + secs
        self._request = self._files.begin(view.board, min(secs, _LEASE_SECS) if kept else secs, **what)

    @property
    def id(self) -> str:
        return self._request.id

    def component_of(self, task: int) -> str:
        """The component of a task."""
        return self._component_of.get(task, "?")

    def keep(self) -> None:
        """Let it go on, if it may. Call it every few seconds."""
        now, ends_secs = time.monotonic(), self._request.until_secs
        if ends_secs < self._ends_secs and ends_secs - now < _LEASE_SECS / 2 and (view := self._job.view()) is not None:
            left_secs = min(_LEASE_SECS, self._ends_secs - now)
            self._request = self._files.extend(self._request, view.board, left_secs)

    def events(self) -> list[Event]:
        """What was seen since the last call."""
        return self._files.events(self._request.id)

    def end(self) -> None:
        """End it, and remove what was seen."""
        self._files.end(self._request.id)


@dataclass
class _Begun:
    topology: str
    watching: Watching
    ends_secs: float
    component: str
    events: list[Event] = field(default_factory=list)
    ended: bool = False


class WatchDesk:
    """Begins watches on the topologies of one cluster, and keeps what they have shown."""

    def __init__(self, job_of: Callable[[str], Job]) -> None:
        """`job_of` connects to a topology; UsageError if there is none of this name."""
        self._job_of = job_of
        self._begun: dict[str, _Begun] = {}
        self._lock = threading.Lock()

    def begin_trace(self, name: str, message_id: str, sample: float, secs: float) -> str:
        """Follow a message, or a share of the messages; returns the id of the trace. UsageError for both or none."""
        if bool(message_id) == bool(sample) or not 0.0 <= sample <= 1.0:
            raise UsageError("a trace needs either a message_id or a sample above 0 up to 1")
        every = max(1, round(1 / sample)) if sample else 0
        return self._begin(name, secs, message_id=message_id, every=every)

    def begin_tap(self, name: str, component: str, secs: float) -> str:
        """Show tuples of a component; returns the id of the tap."""
        return self._begin(name, secs, component=component, most_per_sec=_MOST_PER_SEC)

    def _begin(self, name: str, secs: float, **what: Any) -> str:
        with self._lock:
            self._forget()
            if len(self._begun) >= MOST:
                raise UsageError(f"there are {MOST} traces and taps already: end one, or wait")
            job = self._job_of(name)
            try:
                watching = Watching(job, secs, **what)
            finally:
                job.close()
            self._begun[watching.id] = _Begun(name, watching, time.monotonic() + secs, what.get("component", ""))
            return watching.id

    def trace(self, trace_id: str) -> dict[str, Any]:
        """The ways of the messages that were followed so far, oldest first, and whether it has ended."""
        with self._lock:
            begun = self._of(trace_id, is_tap=False)
            ways = ways_of(begun.events, begun.watching.component_of)
            return {"id": trace_id, "topology": begun.topology, "ended": begun.ended, "messages": ways}

    def tap(self, tap_id: str) -> dict[str, Any]:
        """The last tuples that were shown, oldest first, and whether it has ended."""
        with self._lock:
            begun = self._of(tap_id, is_tap=True)
            begun.events.sort(key=lambda event: event[1])
            del begun.events[:-_ROWS]
            rows = [
                {"component": begun.component, "task": task, "stream": stream, "values": values, "how": how}
                for kind, _, task, stream, values, how in (event for event in begun.events if event[0] == "tuple")
            ]
            return {"id": tap_id, "topology": begun.topology, "ended": begun.ended, "tuples": rows}

    def end(self, watch_id: str) -> None:
        """End a trace or a tap, and forget it."""
        with self._lock:
            if (begun := self._begun.pop(watch_id, None)) is not None and not begun.ended:
                begun.watching.end()

    def close(self) -> None:
        """End all."""
        for watch_id in list(self._begun):
            self.end(watch_id)

    def _of(self, watch_id: str, is_tap: bool) -> _Begun:
        self._forget()
        begun = self._begun.get(watch_id)
        if begun is None or bool(begun.component) != is_tap:
            what = "tap" if is_tap else "trace"
            raise Unknown(f"there is no {what} {watch_id!r:.80}: it ended long ago, or never was")
        self._read(begun)
        return begun

    def _read(self, begun: _Begun) -> None:
        if begun.ended:
            return
        is_over = time.monotonic() > begun.ends_secs
        begun.events += begun.watching.events()
        if is_over:
            begun.watching.end()
            begun.ended = True

    def _forget(self) -> None:
        """Read what has ended before its files go, and forget what ended long ago."""
        now = time.monotonic()
        for watch_id, begun in list(self._begun.items()):
            if now > begun.ends_secs:
                self._read(begun)
            if now > begun.ends_secs + _KEPT_SECS:
                del self._begun[watch_id]
