"""The deaths of a cluster's daemons, as its keepers noted them, for `squall status`.

A line is a `DaemonDeath` as JSON.

Guarantees: a line is whole or absent. Bounded: one older file is kept. Daemons that were started singly have no keeper,
and are not in it.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass

import msgspec

from squall.ipc.line_file import append_line, read_lines
from squall.ipc.rundir import RunDir

_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class DaemonDeath:
    """A death of a daemon."""

    daemon: str
    """nimbus, supervisor NODE, or keeper, whose death the next one notes."""
    reason: str
    error: str
    """Its last words: the last line of its log, unless it was killed."""
    at_unix_secs: float
    """When it was noted."""


def note_death(run_dir: RunDir, daemon: str, reason: str, error: str = "") -> None:
    """Note a death. On a full disk it is only in the keeper's log, if there."""
    death = DaemonDeath(daemon, reason, error, time.time())
    with contextlib.suppress(OSError):
        if append_line(run_dir.daemon_deaths, json.dumps(vars(death))) > _MOST_BYTES:
            run_dir.daemon_deaths.rename(run_dir.daemon_deaths.with_suffix(".old"))


def read_deaths(run_dir: RunDir) -> list[DaemonDeath]:
    """The newest deaths, oldest first."""
    return msgspec.convert(list(map(json.loads, read_lines(run_dir.daemon_deaths))), list[DaemonDeath])
