"""Says whether the store's disk takes a write: a full one keeps Nimbus away, and silences its log, too.

Changes no file. Process: any of the owner's.
"""

from __future__ import annotations

import contextlib
import os

from squall.ipc.private import opener
from squall.ipc.rundir import RunDir

_PROBE_BYTES = 65536
"""Size of the trial write: more than the store needs for a change."""


def room_error(run_dir: RunDir) -> str:
    """The system's error, with the directory, if the store's file system takes no write; "" if it does."""
    probe = run_dir.durable / f".room-{os.getpid()}"
    try:
        # Write and sync as the store does: for some file systems reserving room (fallocate) just sets a length, others
        # notice only at the sync that there is none.
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
