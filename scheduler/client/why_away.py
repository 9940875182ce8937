"""Why a cluster's Nimbus is away, as far as files tell: for commands that waited for it in vain.

Guarantees: one line, "" if nothing is known. Nothing of what it looks at is changed.
"""

from __future__ import annotations

import contextlib
import os

from squall.ipc.private import opener
from squall.ipc.rundir import RunDir
from squall.scheduler.records.nimbus_words import words_of

_PROBE_BYTES = 65536
"""More than the store needs for a change."""


def why_away(run_dir: RunDir) -> str:
    """A disk that takes nothing keeps Nimbus away, and cannot take its last words either: it is tried first."""
    return room_error(run_dir) or words_of(run_dir)


def room_error(run_dir: RunDir) -> str:
    """What the system says, with the directory, if nothing can be written where the store is; "" if it can."""
    probe = run_dir.durable / f".room-{os.getpid()}"
    try:
        # As the store does it: some file systems take a wish for room (fallocate) for no more than a length, others
        # find out that there is none only when it is to be on disk.
        with open(probe, "xb", opener=opener) as file:
            file.write(bytes(range(256)) * (_PROBE_BYTES // 256))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"cannot write to {run_dir.durable}: {error.strerror}"
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return ""
