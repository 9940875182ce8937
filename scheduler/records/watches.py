"""Watches: what clients ask the workers of a topology to show, and what these have shown.

A watch is a trace or a tap (`engine.core.watch`). It is begun without Nimbus: by its file, and a word on the status
board at which workers look for it. Each worker appends what it sees to a file of its own::

    RUN/watches/<topology id>/<watch id>.json                        the watch
    RUN/watches/<topology id>/<watch id>/<slot>-<incarnation>.jsonl  what a worker saw

Guarantees
    * A watch ends at its time, even if whoever began it is dead.
    * A worker writes at most MOST_BYTES for a watch, and says so in the last line.

Process: any of the owner's.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from squall.engine.errors import UsageError
from squall.ipc.board import HEADER_WATCHES, Board
from squall.ipc.private import make_levels, read_lines, replace_file
from squall.ipc.rundir import RunDir

MOST_BYTES = 16 << 20
MOST_SECS = 3600.0
FULL = "full"
"""Kind of the event that says that nothing is written any more."""
Event = list[Any]
"""Its kind, and what `engine.core.watch` says of that kind."""


class WatchRequest(msgspec.Struct, frozen=True):
    """A watch."""

    id: str
    until_secs: float
    """When it ends, in seconds of the monotonic clock."""
    every: int = 0
    """Trace: follow one message in so many."""
    message_id: str = ""
    """Trace: follow the messages whose id has this text."""
    component: str = ""
    """Tap: show tuples of this component."""
    most_per_sec: int = 0
    """Tap: most tuples of each worker."""

    def is_in_force(self) -> bool:
        """Return True if it has not ended; one from before a reboot has."""
        return 0.0 < self.until_secs - time.monotonic() <= MOST_SECS


class WatchFiles:
    """The watches of one topology."""

    def __init__(self, run_dir: RunDir, topology_id: str) -> None:
        self.directory = run_dir.watches(topology_id)
        self._read: dict[Path, int] = {}
        """File -> lines of it that `events` has returned."""

    def begin(self, board: Board, secs: float, **what: Any) -> WatchRequest:
        """Begin a watch for `secs` seconds, and forget those that have ended. UsageError if it would be too long."""
        if not 0.0 < secs <= MOST_SECS:
            raise UsageError(f"a watch of {secs:g} s; allowed: above 0 up to {MOST_SECS:g} s")
        known = {watch.id for watch in self.in_force()}
        for path in self.directory.glob("*.json"):
            if path.stem not in known:
                self.end(path.stem)
        request = WatchRequest(os.urandom(4).hex(), time.monotonic() + secs, **what)
        make_levels(self._folder(request.id), 3)
        self._write(request, board)
        return request

    def extend(self, request: WatchRequest, board: Board, secs: float) -> WatchRequest:
        """Let a watch end in `secs` seconds from now."""
        request = replace(request, until_secs=time.monotonic() + secs)
        self._write(request, board)
        return request

    def _write(self, request: WatchRequest, board: Board) -> None:
        replace_file(self.directory / f"{request.id}.json", msgspec.json.encode(request))
        board.words[HEADER_WATCHES] = time.monotonic_ns()

    def in_force(self) -> list[WatchRequest]:
        """The watches that have not ended."""
        found = []
        for path in sorted(self.directory.glob("*.json")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=WatchRequest))
            except FileNotFoundError:  # it was ended meanwhile
                continue
        return [watch for watch in found if watch.is_in_force()]

    def end(self, watch_id: str) -> None:
        """End a watch, and remove what was seen."""
        (self.directory / f"{watch_id}.json").unlink(missing_ok=True)
        shutil.rmtree(self._folder(watch_id), ignore_errors=True)

    def seen_by(self, watch_id: str, slot: int, incarnation: int) -> Path:
        """The file of a worker."""
        return self._folder(watch_id) / f"{slot}-{incarnation}.jsonl"

    def events(self, watch_id: str) -> list[Event]:
        """What was seen since the last call, for each worker in order."""
        found: list[Event] = []
        for path in sorted(self._folder(watch_id).glob("*.jsonl")):
            lines = read_lines(path)
            found += map(json.loads, lines[self._read.get(path, 0):])
            self._read[path] = len(lines)
        return found

    def _folder(self, watch_id: str) -> Path:
        return self.directory / watch_id
