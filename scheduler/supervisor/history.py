"""The history of a node's slots: every step of their lives, on disk.

Guarantees: one line per step, written in one piece before the step is reported; the file is bounded (a second, older
one is kept). The records alone tell whether a supervisor followed the rules: `tests/history_rules.py` judges them.

Relies on: one supervisor per node at a time. Times are of the monotonic clock, which all processes of the machine
share.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from squall.ipc.line_file import append_line, read_lines

MAX_BYTES = 4 << 20
BEGIN = "supervisor"
"""Event: a supervisor begins. Steps of workers while there was none are not on record."""


@dataclass(frozen=True)
class Step:
    """One step of a slot's life."""

    at_secs: float
    node: str
    port: int
    event: str
    """"started", "ready", "died", "stopped", "failed"; "supervisor" (port 0)."""
    topology_id: str = ""
    slot_index: int = -1
    incarnation: int = 0
    pid: int = 0
    reason: str = ""
    excused: bool = False
    """Whether the restart policy does not count this death."""

    @property
    def slot(self) -> str:
        return f"{self.node}:{self.port}"


class History:
    """The writing end. Thread: the supervisor's loop."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, step: Step) -> None:
        """Write a step; OSError if the disk is full."""
        if append_line(self._path, json.dumps(asdict(step))) > MAX_BYTES:
            os.rename(self._path, self._path.with_suffix(".old"))


def read_history(directory: Path) -> list[Step]:
    """The steps of all nodes, in order of time."""
    return sorted(_read(directory), key=lambda step: step.at_secs)


def _read(directory: Path) -> Iterator[Step]:
    for name in sorted(directory.glob("history-*.old")) + sorted(directory.glob("history-*.jsonl")):
        for line in read_lines(name):
            yield Step(**json.loads(line))
