"""The deaths of a cluster's daemons, as its keepers noted them, for `squall status`.

Guarantees: a line is whole or absent. Bounded: one older file is kept. Daemons that were started singly have no keeper,
and are not in it.
"""

from __future__ import annotations

import contextlib
import time

import msgspec

from squall.ipc.line_file import append_line, read_lines
from squall.ipc.rundir import RunDir

_MOST_BYTES = 1 << 20


class DaemonDeath(msgspec.Struct, frozen=True):
    """An unrequested end of a daemon, or of the keeper itself, which the next keeper notes."""

    daemon: str
    """"nimbus", "supervisor node-1" or "keeper"."""
    reason: str
    """For example "killed by SIGKILL"."""
    error: str
    """The last line of its log, unless it was killed."""
    at_unix_secs: float
    """When it was noted."""


def note_death(run_dir: RunDir, daemon: str, reason: str, error: str = "") -> None:
    """Note a death. On a full disk it is only in the keeper's log, if there."""
    path = run_dir.daemon_deaths
    with contextlib.suppress(OSError):
        line = msgspec.json.encode(DaemonDeath(daemon, reason, error, time.time()))
        if append_line(path, line.decode()) > _MOST_BYTES:
            path.rename(path.with_suffix(".old"))


def read_deaths(run_dir: RunDir) -> list[DaemonDeath]:
    """The newest deaths, oldest first."""
    return [msgspec.json.decode(line, type=DaemonDeath) for line in read_lines(run_dir.daemon_deaths)]
