"""The environment of a cluster's daemons, which all its processes have."""

from __future__ import annotations

import os

from squall.ipc import text_seed
from squall.ipc.rundir import RunDir
from squall.scheduler.common.mark import RUN_DIR_MARK


def daemon_environment(run_dir: RunDir) -> dict[str, str]:
    """A daemon's environment: that of this process, the mark, and the seed of its cluster."""
    return {**os.environ, RUN_DIR_MARK: str(run_dir.path), **text_seed.environment(run_dir.text_seed())}
