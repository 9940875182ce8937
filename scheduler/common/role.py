"""What each process of a cluster is for, as `ps`, `top` and `pgrep` show it ("squall: worker node-1:6700 words"), and
the mark of its cluster that it carries: by both, running processes are found, signalled, and ended without Nimbus. The
run directory need not be there any more for that.

Guarantees
    * A process that has called `show_role` shows its role as its command line and, cut to 15 bytes, as its name;
      `role_in` reads the same role back. It also tells a daemon that was executed and has not come so far yet.
    * A process carries the mark when it is signalled here; another one with a reused pid is never hit.

Relies on: every process of a cluster being executed with `daemon_environment`, or forked from such a process; Linux,
which reads the command line from the process's own memory, where `setproctitle` writes; command lines of `python -m
MODULE`, which have room for every title but for the end of a long topology's name.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import psutil
from setproctitle import getproctitle, setproctitle

from squall.engine.errors import ClusterError, UsageError
from squall.ipc import hash_seed
from squall.ipc.private import room_error
from squall.ipc.rundir import RunDir
from squall.scheduler.common.process import open_pidfd, send_signal

_PREFIX = "squall: "
STOP_GRACE_SECS = 5.0
"""Longest time for workers' `close` and `cleanup` before they are killed."""
STOP_MARGIN_SECS = 5.0
_POLL_SECS = 0.02
"""Between two looks at the cluster's processes: a look reads every process of the machine."""
_SPARE = "SPT_NOENV"
"""Variable that tells setproctitle not to write over the environment, which follows the command line in memory."""


class RoleKind(StrEnum):
    """What a process is."""

    KEEPER = "keeper"
    NIMBUS = "nimbus"
    SUPERVISOR = "supervisor"
    FORKING_PARENT = "forking parent"
    WORKER = "worker"
    SPARE = "spare"
    UI = "ui"


MODULES = {
    RoleKind.KEEPER: "squall.scheduler.cluster.keeper_main",
    RoleKind.NIMBUS: "squall.scheduler.nimbus.main",
    RoleKind.SUPERVISOR: "squall.scheduler.supervisor.main",
    RoleKind.FORKING_PARENT: "squall.scheduler.forking.parent",
    RoleKind.UI: "squall.ui.server",
}
"""The module that each runs; workers and spares are forked by a forking parent."""


def interpreter(module: str) -> list[str]:
    """The beginning of a command line that runs one of Squall's modules.

    -P takes the current directory off the import path: a daemon that imports the standard library's `queue` must not
    execute a user's file of that name.
    """
    return [sys.executable, "-P", "-m", module]


class Role(NamedTuple):
    """A process's kind, and which one of that kind it is."""

    kind: RoleKind
    name: str = ""
    """Node of a supervisor, forking parent or spare, node and port of a worker."""
    topology: str = ""
    """Of a worker, and of a spare that has loaded its code; cut if it is long."""


STANDBY = Role(RoleKind.NIMBUS, "standby")
"""A Nimbus that waits for its turn."""


def find_command_line() -> None:
    """Find the memory that titles are written to. Call it before the environment is replaced: `setproctitle` searches
    from the environment that the process was executed with, once, and otherwise shows nothing. A fork inherits it.
    Thread: main."""
    before = os.environ.get(_SPARE)
    os.environ[_SPARE] = "1"
    try:
        getproctitle()
    finally:
        # Users' code must not find a variable that nobody has set.
        del os.environ[_SPARE]
        if before is not None:
            os.environ[_SPARE] = before


def show_role(role: Role) -> None:
    """Show this role from now on. Thread: main."""
    find_command_line()
    setproctitle(_PREFIX + " ".join(part for part in role if part))


def role_in(command: Sequence[str]) -> Role | None:
    """The role that a command line tells."""
    # psutil may have split a title that fills its room.
    text = " ".join(command).rstrip()
    if text.startswith(_PREFIX):
        return _role_titled(text.removeprefix(_PREFIX))
    for kind, module in MODULES.items():
        if module in command:
            return Role(kind, _after("--node", command))
    return None


def _role_titled(text: str) -> Role | None:
    for kind in RoleKind:
        if text == kind or text.startswith(f"{kind} "):
            name, _, topology = text[len(kind) + 1 :].partition(" ")
            return Role(kind, name, topology)
    return None


def _after(option: str, command: Sequence[str]) -> str:
    """The argument of an option; "" if it is not there."""
    following = dict(itertools.pairwise(command))
    return following.get(option, "")


_NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def check_node_name(name: str) -> None:
    """UsageError unless a node may have this name, which becomes part of file names."""
    if not _NODE_NAME.fullmatch(name):
        raise UsageError(f"node name {name!r:.80} is not allowed: 1 to 64 letters, digits, '_', '-', '.'")


RUN_DIR_MARK = "SQUALL_RUN_DIR"
"""Environment variable of every process of a cluster, by which strays are known."""


def processes_of(run_dir: RunDir, *roles: Role | RoleKind) -> list[psutil.Process]:
    """All other running processes of a cluster of this user, or those of these roles or kinds."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            marked = process.pid != os.getpid() and is_marked(process, run_dir)
            if marked and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return [one for one in found if not roles or ((role := role_of(one)) and not {role, role.kind}.isdisjoint(roles))]


def is_marked(process: psutil.Process, run_dir: RunDir) -> bool:
    """Whether a process is this user's and of this cluster. psutil.Error if it has ended."""
    ours = process.uids().effective == os.geteuid()
    return ours and process.environ().get(RUN_DIR_MARK) == str(run_dir.path)


def signal_marked(process: psutil.Process, run_dir: RunDir, signum: int) -> None:
    """Signal a process that `processes_of` found, unless it has ended: another one with its pid is never hit."""
    with contextlib.suppress(psutil.Error, ClusterError):
        pidfd = open_pidfd(process.pid)
        try:
            # Check after opening the pidfd: if the pid is the cluster's now, the descriptor is too.
            if is_marked(process, run_dir):
                send_signal(pidfd, signum)
        finally:
            os.close(pidfd)


def role_of(process: psutil.Process) -> Role | None:
    """The role of a process; None if it has none of a cluster, or has ended."""
    try:
        return role_in(process.cmdline())
    except psutil.Error:
        return None


def daemon_environment(run_dir: RunDir) -> dict[str, str]:
    """A daemon's environment: that of this process, the mark, and the seed of its cluster."""
    return {**os.environ, RUN_DIR_MARK: str(run_dir.path), **hash_seed.environment(run_dir.hash_seed())}


def end_lost(run_dir: RunDir) -> int:
    """End the processes of a cluster without Nimbus: by SIGTERM (supervisors stop workers), then by force. Return
    their number. Its run directory may have been removed."""
    # The keeper first: it restarts daemons.
    run_dir.keeper_lock.unlink(missing_ok=True)
    await_none(run_dir, STOP_MARGIN_SECS, RoleKind.KEEPER, kills=True)
    found = processes_of(run_dir)
    # Nimbus too: if its directory or its key is gone, it may still run, and would be waited for in vain.
    daemons = processes_of(run_dir, RoleKind.SUPERVISOR, RoleKind.NIMBUS)
    for process in daemons:
        signal_marked(process, run_dir, signal.SIGTERM)
    for process in found:
        # A stopped process takes no other signal until it is continued.
        signal_marked(process, run_dir, signal.SIGCONT)
    if daemons:
        await_none(run_dir, STOP_GRACE_SECS + STOP_MARGIN_SECS)
    kill(run_dir)
    run_dir.remove_sockets()
    return len(found)


def kill(run_dir: RunDir, *roles: Role | RoleKind) -> None:
    """Kill the processes of these roles, or all. ClusterError if some do not end."""
    if left := await_none(run_dir, STOP_MARGIN_SECS, *roles, kills=True):
        raise ClusterError(f"processes {', '.join(str(process.pid) for process in left)} do not end")


def await_none(run_dir: RunDir, secs: float, *roles: Role | RoleKind, kills: bool = False) -> list[psutil.Process]:
    """Wait until no process of these roles is left, or none at all; if it `kills`, kill them meanwhile. Return those
    that are left after `secs`."""
    deadline = time.monotonic() + secs
    while (left := processes_of(run_dir, *roles)) and time.monotonic() < deadline:
        for process in left if kills else ():
            signal_marked(process, run_dir, signal.SIGKILL)
        time.sleep(_POLL_SECS)
    return left


def last_words(run_dir: RunDir, daemon: str, since_bytes: int = 0) -> str:
    """The last line of a daemon's log after its first `since_bytes`; without one, what keeps it from writing, or "".
    """
    try:
        lines = run_dir.daemon_log(daemon).read_bytes()[since_bytes:].decode(errors="replace").strip().splitlines()
    except FileNotFoundError:
        lines = []
    # On a full disk, there are no last words.
    return lines[-1] if lines else room_error(run_dir.durable)
