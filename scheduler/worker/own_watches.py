"""The watches of one worker: begins and ends them, and writes what is seen.

Guarantees: without a watch this costs a comparison of two integers in a look that is made every few milliseconds. A
full disk, or a folder that is gone, ends a watch and nothing else.

Thread: the worker's loop. Events may come from any.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from squall.engine.core.watch import Tap, Trace, watch
from squall.engine.core.worker_core import WorkerCore
from squall.ipc.board import HEADER_WATCHES, MARKS, SLOT_MARKS, Board
from squall.ipc.private import append_line
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.records.watches import FULL, MOST_BYTES, WatchFiles, WatchRequest

_MOST_EVENTS = 100_000
"""Most events between two looks; what is beyond is not noted."""


class _Marks:
    """An `engine.core.watch.Marked` on the status board."""

    def __init__(self, board: Board, slot: int) -> None:
        self._board, self._at, self._next = board, board.slot_at(slot) + SLOT_MARKS, 0

    @property
    def roots(self) -> set[int]:
        return self._board.marked()

    def mark(self, root: int) -> None:
        self._board.words[self._at + self._next % MARKS] = root
        self._next += 1


class _Shown:
    """What this worker sees for one watch."""

    def __init__(self, request: WatchRequest) -> None:
        self.request = request
        self.events: list[Sequence[Any]] = []
        self.is_full = False
        self.watch: Trace | Tap

    def note(self, event: Sequence[Any]) -> None:
        if len(self.events) < _MOST_EVENTS:
            self.events.append(event)


class WorkerWatches:
    """The watches of one worker."""

    def __init__(self, run_dir: RunDir, boot: WorkerBoot, board: Board, core: WorkerCore) -> None:
        self._files = WatchFiles(run_dir, boot.topology.id)
        self._slot, self._incarnation = boot.slot_index, boot.incarnation
        self._board, self._core = board, core
        self._marks = _Marks(board, boot.slot_index)
        self._seen = 0
        self._shown: dict[str, _Shown] = {}
        if self._files.directory.is_dir():
            self._follow()

    def look(self) -> None:
        """Begin and end watches, and write what was seen."""
        if self._board.words[HEADER_WATCHES] != self._seen:
            self._follow()
        if self._shown:
            self._write()

    @property
    def is_active(self) -> bool:
        """Return True if there are watches, whose end has to be looked for."""
        return bool(self._shown)

    def _follow(self) -> None:
        self._seen = self._board.words[HEADER_WATCHES]
        asked = {request.id: request for request in self._files.in_force() if self._is_for(request)}
        for watch_id in self._shown.keys() - asked.keys():
            del self._shown[watch_id]
        for watch_id in asked.keys() - self._shown.keys():
            self._shown[watch_id] = self._made(asked[watch_id])
        for watch_id, shown in self._shown.items():
            shown.request = asked[watch_id]
        self._attach()

    def _is_for(self, request: WatchRequest) -> bool:
        return not request.component or request.component in self._core.topology.components

    def _made(self, request: WatchRequest) -> _Shown:
        shown, now_ns = _Shown(request), time.monotonic_ns
        if request.component:
            shown.watch = Tap(self._core, shown.note, now_ns, request.component, request.most_per_sec)
        else:
            shown.watch = Trace(self._core, shown.note, now_ns, self._marks, request.every, request.message_id)
        return shown

    def _attach(self) -> None:
        watch(self._core, [shown.watch for shown in self._shown.values()])

    def _write(self) -> None:
        over = set()
        for watch_id, shown in self._shown.items():
            events, shown.events = shown.events, []
            try:
                if events and not shown.is_full:
                    path = self._files.seen_by(watch_id, self._slot, self._incarnation)
                    size = append_line(path, "\n".join(map(json.dumps, events)))
                    if size > MOST_BYTES:
                        shown.is_full = True
                        append_line(path, json.dumps([FULL, time.monotonic_ns()]))
            except OSError:
                # Nobody waits for it any more, or there is no room: the tuples go on.
                over.add(watch_id)
            if not shown.request.is_in_force():
                over.add(watch_id)
        for watch_id in over:
            del self._shown[watch_id]
        if over:
            self._attach()
