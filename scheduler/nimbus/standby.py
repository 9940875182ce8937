"""A Nimbus whose store is in ZooKeeper, before it is its turn.

Guarantees
    * Nobody becomes Nimbus without the run directory's lock. It takes that as soon as its holder has ended, and when
      the holder's session is gone: a Nimbus that stands still, or is cut off from ZooKeeper, is killed.
    * While ZooKeeper is away it waits, and ends if it is told to.

Relies on: every Nimbus being listed in ZooKeeper before it takes the lock, so that one which holds it and is not listed
has lost its session. Thread: main.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import time

import zmq

from squall.engine.errors import UsageError
from squall.ipc.rundir import RunDir, RunLock
from squall.scheduler.common.daemon import SignalInbox, read_record, tell_ready, write_record
from squall.scheduler.common.process import send_signal_proven
from squall.scheduler.common.role import STANDBY, Role, RoleKind, show_role
from squall.scheduler.nimbus.zookeeper_store import Session, ZooKeeperStore

LOCK_LOOK_MS = 50
SESSION_LOOK_SECS = 1.0

log = logging.getLogger("squall.scheduler.nimbus")


def await_turn(
    run_dir: RunDir, options: argparse.Namespace, inbox: SignalInbox, poller: zmq.Poller
) -> tuple[RunLock, ZooKeeperStore] | None:
    """The run directory's lock and its store, once it is this process's turn; None if it is told to end."""
    show_role(STANDBY)
    session = Session(run_dir)
    look_at = time.monotonic() + SESSION_LOOK_SECS
    while True:
        poller.poll(LOCK_LOOK_MS)
        if inbox.take() or inbox.lifeline_cut():
            return None
        if not session.is_listed_itself():
            continue
        if run_dir.lock_holder() is None:
            with contextlib.suppress(UsageError):  # another one was faster
                lock = run_dir.lock()
                break
        tell_ready(options.ready_fd)
        options.ready_fd = None
        if time.monotonic() >= look_at:
            look_at = time.monotonic() + SESSION_LOOK_SECS
            _end_lost(run_dir, session)
    show_role(Role(RoleKind.NIMBUS))
    write_record(run_dir.daemon_record("nimbus"))
    return lock, ZooKeeperStore(run_dir, session.client)


def _end_lost(run_dir: RunDir, session: Session) -> None:
    """Kill the Nimbus that holds the lock if it is not listed in ZooKeeper."""
    holder = read_record(run_dir.daemon_record("nimbus"))
    if (
        holder is not None
        and session.has_lost(holder)
        and send_signal_proven(holder.pid, holder.started_ticks, signal.SIGKILL)
    ):
        log.warning("Nimbus (pid %d) was killed: its session with ZooKeeper is gone", holder.pid)
