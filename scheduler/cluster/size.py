"""Limits the nodes and slots of a cluster to the machine's memory, so that a typing error does not exhaust it.

Guarantees: the default cluster, one node with `SMALLEST_SLOTS` slots, is never refused: memory may become free in time.
The needs of components are not known before they run, and do not count.
"""

from __future__ import annotations

import psutil

from squall.engine.errors import UsageError

SMALLEST_SLOTS = 4
FIRST_PORT, LAST_PORT = 6700, 65535
NODE_MB, WORKER_MB = 64, 32
"""A supervisor with its forking parent occupies 30 to 60 MB, a worker without components 10 to 30, depending on the
part that is shared."""


def check_cluster(nodes: int, slots: int) -> None:
    """UsageError unless the machine has room for so many nodes with so many slots each. Call it before any start."""
    for what, count in (("nodes", nodes), ("slots", slots)):
        if not isinstance(count, int) or count < 1:
            raise UsageError(f"{what} is {count!r}; allowed: an integer from 1 up")
    most = LAST_PORT - FIRST_PORT + 1
    if slots > most:
        raise UsageError(f"slots is {slots}; a node has at most {most}, one for each port from {FIRST_PORT} up")
    needed, available = nodes * (NODE_MB + slots * WORKER_MB), psutil.virtual_memory().available >> 20
    if needed > available and (nodes > 1 or slots > SMALLEST_SLOTS):
        raise UsageError(
            f"nodes is {nodes}, with {slots} slots each: that takes {needed} MB of memory, and {available} MB are "
            "available; choose fewer"
        )


def check_workers(workers: int, nodes: int) -> None:
    """UsageError unless the machine has room for so many workers on so many nodes."""
    check_cluster(nodes, -(-workers // max(1, nodes)))
