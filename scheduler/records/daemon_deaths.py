"""The deaths of a cluster's daemons, as its keepers noted them, for `squall status`.

A line is a JSON object: `daemon` ("nimbus", "supervisor node-1", or "keeper", whose death the next one notes), `reason`
("killed by SIGKILL"), `error` (the last line of its log, unless it was killed), `at_unix_secs` (when it was noted).

Guarantees: a line is whole or absent. Bounded: one older file is kept. Daemons that were started singly have no keeper,
and are not in it.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from squall.ipc.line_file import append_line, read_lines
from squall.ipc.rundir import RunDir

_MOST_BYTES = 1 << 20


def note_death(run_dir: RunDir, daemon: str, reason: str, error: str = "") -> None:
    """Note a death. On a full disk it is only in the keeper's log, if there."""
    death = {"daemon": daemon, "reason": reason, "error": error, "at_unix_secs": time.time()}
    with contextlib.suppress(OSError):
        if append_line(run_dir.daemon_deaths, json.dumps(death)) > _MOST_BYTES:
            run_dir.daemon_deaths.rename(run_dir.daemon_deaths.with_suffix(".old"))


def read_deaths(run_dir: RunDir) -> list[dict[str, Any]]:
    """The newest deaths, oldest first."""
    return list(map(json.loads, read_lines(run_dir.daemon_deaths)))
