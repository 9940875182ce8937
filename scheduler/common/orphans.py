"""Reaps children that this process did not start.

The first process of a container inherits every process whose parent has died, as daemons outlive a killed keeper.
Those that it does not reap stay in the list of processes for ever.
"""

from __future__ import annotations

import os

from squall.scheduler.common.process import peek_dead_child

FIRST_PID = 1


def reap_orphans(spared: int) -> None:
    """Reap children that have ended, but the child `spared`: its exit code belongs to the object that waits for it."""
    while (pid := peek_dead_child()) is not None and pid != spared:
        os.waitpid(pid, os.WNOHANG)
