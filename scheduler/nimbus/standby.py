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
import os
import signal
import time
from functools import partial

import zmq
from kazoo.exceptions import ConnectionLoss, KazooException, NodeExistsError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState

from squall.engine.errors import UsageError
from squall.ipc.rundir import RunDir, RunLock
from squall.scheduler.common.daemon import DaemonRecord, SignalInbox, read_record, tell_ready, write_record
from squall.scheduler.common.process import send_signal_proven
from squall.scheduler.common.role import STANDBY, Role, RoleKind, show_role
from squall.scheduler.nimbus.store import BUSY_TIMEOUT_SECS
from squall.scheduler.nimbus.zookeeper_store import TOLD_SECS, ZooKeeperStore, client_of, place_of, told

LOCK_LOOK_MS = 50
SESSION_LOOK_SECS = 1.0

log = logging.getLogger("squall.scheduler.nimbus")


class Session:
    """Of a Nimbus, for the life of its process, which ends when ZooKeeper has given it up."""

    def __init__(self, run_dir: RunDir) -> None:
        hosts, path = place_of(run_dir)
        self.client = client_of(hosts)
        self._listing = f"{path}/nimbus"
        self._is_listed = False
        self.client.add_listener(partial(self._take_state, hosts))
        if not self.client.start_async().wait(TOLD_SECS):
            log.warning("waiting for ZooKeeper at %s", hosts)

    def is_listed_itself(self) -> bool:
        """Whether others can see that this process has a session. Waits a moment for ZooKeeper's answer."""
        if self.client.connected and not self._is_listed:
            with told(self._listing), contextlib.suppress(ConnectionLoss, KazooTimeoutError):
                here = self._place(DaemonRecord.of_process())
                with contextlib.suppress(NodeExistsError):  # the answer to an earlier try was lost
                    self.client.create_async(here, makepath=True, ephemeral=True).get(timeout=BUSY_TIMEOUT_SECS)
                self._is_listed = True
        return self.client.connected and self._is_listed

    def has_lost(self, nimbus: DaemonRecord) -> bool:
        """Whether ZooKeeper answers, and says that this process has no session any more."""
        with contextlib.suppress(KazooException, KazooTimeoutError):
            # So that a server that lags behind the others does not answer from what was.
            self.client.sync_async(self._listing).get(timeout=BUSY_TIMEOUT_SECS)
            return self.client.exists_async(self._place(nimbus)).get(timeout=BUSY_TIMEOUT_SECS) is None
        return False

    def _place(self, nimbus: DaemonRecord) -> str:
        return f"{self._listing}/{nimbus.pid}-{nimbus.started_ticks}"

    def _take_state(self, hosts: str, state: str) -> None:
        log.warning("ZooKeeper at %s: %s", hosts, state)
        if self.client.client_state == KeeperState.EXPIRED_SESSION:
            # Here, whatever the loop does: the standby may have its turn by now. All is stored that was answered.
            log.error("the session with ZooKeeper is lost: ending")
            os._exit(1)


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
