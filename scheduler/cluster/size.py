"""Limits the nodes, slots and workers of a cluster to the machine's room, so that a typing error does not exhaust it.

Guarantees
    * A size that passes needs no more memory, threads and descriptors than the machine has free, for Squall's own
      processes; the needs of components are not known before they run.
    * The default cluster, one node with `SMALLEST_SLOTS` slots, is never refused for lack of memory or threads: both
      may become free in time. Descriptors do not, and a daemon that runs out of them ends.

Relies on: Linux. The limits are pure functions of a `Machine`; only `this_machine` reads the system.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import NamedTuple

import psutil

from squall.engine.errors import UsageError

SMALLEST_SLOTS = 4
FIRST_PORT, LAST_PORT = 6700, 65535
NODE_BYTES, WORKER_BYTES = 64 << 20, 32 << 20
"""A supervisor with its forking parent occupies 30 to 60 MB, a worker without components 10 to 30, depending on the
part that is shared."""
NODE_THREADS, WORKER_THREADS = 4, 4
FIRST_THREADS = 8
"""Threads of Nimbus, the keeper and the command itself."""
NODE_DESCRIPTORS, WORKER_DESCRIPTORS = 4, 4
"""Cost of one more node for Nimbus, and of one more worker for its supervisor: connection, pidfd, new sockets."""
FIRST_DESCRIPTORS = 32
_NO_LIMIT = 1 << 62


class Machine(NamedTuple):
    """The free resources of a machine."""

    memory_bytes: int
    threads: int
    descriptors: int
    """Of one process."""


class Limit(NamedTuple):
    """The largest allowed number, and the reason."""

    most: int
    reason: str


def node_limit(machine: Machine) -> Limit:
    """The limit of nodes with one slot each."""
    room = min(
        _by_memory(machine.memory_bytes, NODE_BYTES + WORKER_BYTES, "a node with one worker"),
        _by_threads(machine.threads - FIRST_THREADS, NODE_THREADS + WORKER_THREADS, "a node with one worker"),
    )
    descriptors = _by_descriptors(machine.descriptors, NODE_DESCRIPTORS, "Nimbus", "node")
    return min(room._replace(most=max(1, room.most)), descriptors)


def slot_limit(machine: Machine, nodes: int) -> Limit:
    """The limit of slots on each of so many nodes."""
    memory = machine.memory_bytes - nodes * NODE_BYTES
    threads = machine.threads - FIRST_THREADS - nodes * NODE_THREADS
    every = "" if nodes == 1 else f" on each of {nodes} nodes"
    room = min(
        _by_memory(memory, nodes * WORKER_BYTES, f"a worker{every}"),
        _by_threads(threads, nodes * WORKER_THREADS, f"a worker{every}"),
    )
    return min(
        room._replace(most=max(SMALLEST_SLOTS if nodes == 1 else 1, room.most)),
        _by_descriptors(machine.descriptors, WORKER_DESCRIPTORS, "a supervisor", "worker"),
        Limit(LAST_PORT - FIRST_PORT + 1, f"ports are numbered from {FIRST_PORT} to {LAST_PORT}"),
    )


def check_cluster(nodes: int, slots: int, machine: Machine) -> None:
    """UsageError unless the machine has room for so many nodes with so many slots each. Call it before any start."""
    for what, count in (("nodes", nodes), ("slots", slots)):
        if not isinstance(count, int) or count < 1:
            raise UsageError(f"{what} is {count!r}; allowed: an integer from 1 up")
    _check("nodes", nodes, node_limit(machine))
    _check("slots" if nodes == 1 else "slots per node", slots, slot_limit(machine, nodes))


def check_workers(workers: int, nodes: int, machine: Machine) -> None:
    """UsageError unless the machine has room for so many workers on so many nodes."""
    _check("nodes", nodes, node_limit(machine))
    limit = slot_limit(machine, nodes)
    _check("workers", workers, limit._replace(most=limit.most * nodes))


def this_machine() -> Machine:
    """Read the resources free for this process and its children, by the limits of system, control group and user."""
    _, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    # RLIMIT_NPROC does not hold for root.
    processes = resource.RLIM_INFINITY if os.geteuid() == 0 else resource.getrlimit(resource.RLIMIT_NPROC)[0]
    group = _control_group()
    return Machine(
        min(psutil.virtual_memory().available, _number_in(group / "memory.max")),
        min(
            _finite(processes), _number_in(group / "pids.max"), _number_in(Path("/proc/sys/kernel/threads-max")),
            _number_in(Path("/proc/sys/kernel/pid_max")),
        ),
        _finite(descriptors),
    )


def _check(what: str, count: int, limit: Limit) -> None:
    if count > limit.most:
        if not limit.most:
            raise UsageError(f"{what} is {count}; not even one can be started, because {limit.reason}")
        raise UsageError(f"{what} is {count}; allowed: 1 to {limit.most}, because {limit.reason}")


def _by_memory(there: int, each: int, what: str) -> Limit:
    reason = f"{max(0, there) >> 20} MB of memory are available for them, and {what} takes {each >> 20} MB"
    return Limit(there // each, reason)


def _by_threads(there: int, each: int, what: str) -> Limit:
    return Limit(there // each, f"{max(0, there)} threads are allowed for them, and {what} takes {each}")


def _by_descriptors(there: int, each: int, who: str, unit: str) -> Limit:
    reason = f"a process may open {there} files, and {who} needs {FIRST_DESCRIPTORS} and {each} for each {unit}"
    return Limit(max(0, (there - FIRST_DESCRIPTORS) // each), reason)


def _control_group() -> Path:
    """The directory of this process's control group (version 2); if there is none, a directory without limits."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except FileNotFoundError:
        lines = []
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    return Path("/sys/fs/cgroup") / path.lstrip("/")


def _number_in(path: Path) -> int:
    """The number in a file; no limit if the file is missing or says "max"."""
    try:
        text = path.read_text().strip()
    except (FileNotFoundError, PermissionError):
        return _NO_LIMIT
    return int(text) if text.isdecimal() else _NO_LIMIT


def _finite(limit: int) -> int:
    return _NO_LIMIT if limit == resource.RLIM_INFINITY else limit
