"""A watch on a running topology, seen from whoever began it.

Process: any of the owner's. Thread: the one of its Job.
"""

from __future__ import annotations

import time
from typing import Any

from squall.engine.errors import UsageError
from squall.scheduler.client.job import Job
from squall.scheduler.records.watches import Event, WatchFiles

_LEASE_SECS = 20.0


class Watching:
    """Begins with the object, and goes on for at most `secs` seconds, or until `end`."""

    def __init__(self, job: Job, secs: float, *, kept: bool = False, **what: Any) -> None:
        """`kept`: it ends some seconds after the last call of `keep`, so that it does not outlive a process that is
        killed. `what`: the fields of `scheduler.records.watches.WatchRequest`. UsageError if the topology does not
        run, or for a trace if it has no ackers."""
        view = job.view()
        if view is None:
            raise UsageError(f"{job.name} waits for a free slot: there is nothing to watch")
        if "component" not in what and job.record.conf["ackers"] == 0:
            raise UsageError(f"{job.name} has no ackers (setting ackers): its messages have no trees to follow")
        self._files = WatchFiles(job.run_dir, job.id)
        self._component_of = view.component_of
        self._job, self._ends_secs = job, time.monotonic() + secs
        self._request = self._files.begin(view.board, min(secs, _LEASE_SECS) if kept else secs, **what)

    @property
    def id(self) -> str:
        return self._request.id

    @property
    def components(self) -> list[str]:
        """The components of the topology."""
        return list(dict.fromkeys(self._component_of.values()))

    def place(self, task: int) -> tuple[str, int]:
        """The component of a task, and the task."""
        return self._component_of.get(task, "?"), task

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
