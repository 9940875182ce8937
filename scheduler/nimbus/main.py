"""The process of Nimbus: wiring, loop and end.

Guarantees
    * One Nimbus per run directory: a second one is refused with the pid of the first, or, if the store is in ZooKeeper,
      stands by (`scheduler.nimbus.zookeeper`).
    * On a shutdown request, on SIGTERM, when the lifeline's other end closes (the launcher died, in whatever way), and
      within seconds after the run directory was removed, Nimbus tells every supervisor to leave, waits for it, and
      ends.
    * If it fails or refuses to serve, it says why on its stderr.
    * If Nimbus fails or is killed, nothing else is stopped or removed: workers go on, and the next Nimbus continues
      from the files on disk. The same holds for SIGTERM and SIGINT if it was started with `--alone`.

Relies on: the run directory being there. Thread: main.
"""

from __future__ import annotations

import argparse
import io
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Sequence

import zmq

from squall.ipc.control import ControlServer
from squall.ipc.rundir import Presence, RunDir
from squall.scheduler.common.daemon import SignalInbox, daemon_parser, run_daemon, tell_ready, write_record
from squall.scheduler.common.process import exists
from squall.scheduler.common.role import RoleKind, processes_of, signal_marked
from squall.scheduler.nimbus.books import Books
from squall.scheduler.nimbus.service import NimbusService
from squall.scheduler.nimbus.store import open_store

DEFAULT_GRACE_SECS = 5.0
"""Time for workers to stop unless the request gives one: long enough for `cleanup`, short enough to wait for."""
LEAVE_PATIENCE_SECS = 2.0
"""On top of the workers' grace, time for supervisors to kill, reap and end."""
REPLY_LINGER_SECS = 0.5
"""Longest wait for the last replies to leave. A client that reads takes less than a millisecond."""
DIRECTORY_LOOK_SECS = 2.0
"""Between two looks whether the run directory is still there: rarely removed, and a cluster may outlive it briefly."""
END_LOOK_SECS = 0.005
"""Between two looks whether the supervisors that were told to leave have ended."""

log = logging.getLogger("squall.scheduler.nimbus")


class NimbusProcess:
    """Makes and connects the parts of Nimbus. Thread: main."""

    def __init__(
        self, run_dir: RunDir, options: argparse.Namespace, inbox: SignalInbox, poller: zmq.Poller, lock: io.FileIO,
        store: Books,
    ) -> None:
        self._run_dir = run_dir
        self._lock = lock
        self._store = store
        self._presence = Presence(self._run_dir.path)
        self._look_at = 0.0
        self._leave_at: float | None = None
        self._awaited: dict[str, int] = {}
        """Node -> pid, of each supervisor that has yet to end."""
        self._poller = poller
        self._alone: bool = options.alone
        self._inbox = inbox
        self._server = ControlServer(self._run_dir.nimbus_socket, self._run_dir.key(), "nimbus")
        self._poller.register(self._server.socket, zmq.POLLIN)
        self._service = NimbusService(run_dir, self._store, self._server, self._leave)
        tell_ready(options.ready_fd)

    def run(self) -> None:
        """Run until told to leave."""
        log.info("Nimbus serves %s, pid %d", self._run_dir.path, os.getpid())
        try:
            while not self._has_left():
                self._turn()
            for node in self._awaited:
                log.warning("the supervisor of %s has not ended in time", node)
        finally:
            self._close()
        self._lock.close()

    def _turn(self) -> None:
        self._poller.poll(self._timeout_ms())
        signals = self._inbox.take()
        if signals and self._alone:
            log.info("leaving alone: supervisors and workers run on")
            self._leave_at = time.monotonic()
        elif signal.SIGTERM in signals:
            log.info("SIGTERM: leaving")
            self._leave(DEFAULT_GRACE_SECS if self._leave_at is None else 0.0)
        if self._inbox.lifeline_cut():
            log.info("lifeline cut: leaving")
            self._leave(DEFAULT_GRACE_SECS)
        # Tick only after all frames were read: heartbeats may have waited while this process was stopped.
        if self._service.serve():
            self._service.tick(time.monotonic())
        self._look_for_directory()

    def _timeout_ms(self) -> int:
        now = time.monotonic()
        ended_at = now + END_LOOK_SECS if self._awaited else None
        found = (self._service.next_deadline(), self._leave_at, self._look_at, ended_at)
        return max(0, math.ceil((min(at for at in found if at is not None) - now) * 1000))

    # ---- the end ----

    def _leave(self, grace_secs: float) -> None:
        """Begin to end, or end sooner."""
        leave_at = time.monotonic() + grace_secs + LEAVE_PATIENCE_SECS
        if self._leave_at is None:
            self._awaited = self._service.nimbus.supervisor_pids
        elif leave_at >= self._leave_at:
            return
        self._leave_at = leave_at
        if self._run_dir.zookeeper.exists():
            # Otherwise it would take over what is ending.
            for standby in processes_of(self._run_dir, RoleKind.NIMBUS):
                signal_marked(standby, self._run_dir, signal.SIGTERM)
        self._service.begin_shutdown(grace_secs)

    def _has_left(self) -> bool:
        if self._leave_at is None:
            return False
        self._awaited = {node: pid for node, pid in self._awaited.items() if exists(pid)}
        return not self._awaited or time.monotonic() >= self._leave_at

    def _close(self) -> None:
        self._server.close(REPLY_LINGER_SECS)
        self._store.close()
        self._inbox.close()

    # ---- parts ----

    def _look_for_directory(self) -> None:
        """Leave if the run directory is gone: no client can reach this cluster then, and nothing is stored."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + DIRECTORY_LOOK_SECS
        if self._leave_at is None and self._presence.is_gone():
            log.error("the run directory was removed: leaving")
            self._leave(DEFAULT_GRACE_SECS)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = daemon_parser(RoleKind.NIMBUS, "the cluster's Nimbus")
    parser.add_argument("--alone", action="store_true", help="signals end Nimbus only; supervisors and workers run on")
    return parser.parse_args(arguments)


def _work(options: argparse.Namespace) -> None:
    run_dir = RunDir.open(options.dir)
    poller = zmq.Poller()
    inbox = SignalInbox(poller, options.lifeline, [signal.SIGTERM, signal.SIGINT][: 1 + options.alone])
    if run_dir.zookeeper.exists():
        from squall.scheduler.nimbus.zookeeper import await_turn

        turn = await_turn(run_dir, options, inbox, poller)
        if turn is not None:
            NimbusProcess(run_dir, options, inbox, poller, *turn).run()
        return
    lock = run_dir.lock()
    write_record(run_dir.daemon_record("nimbus"))
    NimbusProcess(run_dir, options, inbox, poller, lock, open_store(run_dir)).run()


def main(arguments: Sequence[str] | None = None) -> int:
    return run_daemon(RoleKind.NIMBUS, lambda: parse(arguments), _work)


if __name__ == "__main__":
    sys.exit(main())
