"""The supervisor's process: ``python -m squall.scheduler.supervisor.main --dir RUN --node node-1 --ports 6700,6701``.

Guarantees
    * On SIGTERM, on Nimbus's Shutdown and when the lifeline's other end closes, the workers are stopped politely, then
      by force, and the process ends with code 0. A second SIGTERM leaves no grace.
    * With `--drain-secs` the first SIGTERM or SIGINT makes Nimbus move the work away, drained, in that time, if it
      answers; then it goes on as above. Otherwise SIGINT has no effect.
    * Killed by SIGKILL, it leaves its workers running, and the next supervisor of the node adopts them.

Relies on: a launcher to make the run directory and to start Nimbus, before the supervisor or after it.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Sequence

import zmq

from squall.engine.errors import UsageError
from squall.ipc.control import ControlClient, ControlServer
from squall.ipc.rundir import RunDir
from squall.scheduler.breaking.daemon_faults import DaemonFaults
from squall.scheduler.common import process
from squall.scheduler.common.daemon import SignalInbox, daemon_parser, run_daemon, tell_ready, write_record
from squall.scheduler.common.messages import RegisterSupervisor
from squall.scheduler.common.node_name import check_node_name
from squall.scheduler.common.process_title import Kind
from squall.scheduler.common.restart_policy import RestartPolicyOptions
from squall.scheduler.forking.client import WORKER_ENTRY
from squall.scheduler.records.worker_ledger import WorkerLedger
from squall.scheduler.supervisor.decisions import Supervisor
from squall.scheduler.supervisor.forking_parent import ForkingParent
from squall.scheduler.supervisor.history import BEGIN, History, Step
from squall.scheduler.supervisor.loop import SupervisorLoop
from squall.scheduler.supervisor.nimbus_link import NimbusLink
from squall.scheduler.supervisor.node_boards import NodeBoards
from squall.scheduler.supervisor.parts import Parts
from squall.scheduler.supervisor.prospects import ProspectOptions, Prospects
from squall.scheduler.supervisor.slot import Slot
from squall.scheduler.supervisor.worker_life import SlotAddress, SlotOptions
from squall.scheduler.supervisor.worker_watch import WorkerWatch

log = logging.getLogger(__name__)


class SupervisorProcess:
    """Makes and connects the parts of a supervisor. Thread: main."""

    def __init__(self, options: argparse.Namespace) -> None:
        run_dir = RunDir.open(options.dir)
        node: str = options.node
        run_dir.socket_length_check(node)
        key = run_dir.key()
        rng = random.Random()
        self._grace_secs = SlotOptions().stop_grace_secs
        self._ready_fd: int | None = options.ready_fd
        self._asked_to_leave = False
        self._poller = zmq.Poller()
        self._drain_secs: float | None = options.drain_secs
        self._stop_signals = {signal.SIGTERM} if self._drain_secs is None else {signal.SIGTERM, signal.SIGINT}
        self._inbox = SignalInbox(self._poller, options.lifeline, [*self._stop_signals, signal.SIGCHLD])
        self._boards = NodeBoards(run_dir)
        # Before the ZeroMQ context: no process that has one may fork.
        self._forking_parent = ForkingParent(
            self._poller, node, options.entry, rng, time.monotonic(), run_dir.text_seed()
        )
        limits = ProspectOptions(RestartPolicyOptions(max_deaths=options.max_deaths))
        prospects = Prospects(limits, rng, self._boards.totals)
        slots = [
            Slot(
                SlotAddress(str(run_dir.path), node, port),
                SlotOptions(),
                prospects,
                self._boards.last_incarnation,
                self._boards.nearer,
                self._boards.unended,
                self._boards.opening,
            )
            for port in options.ports
        ]
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._server = ControlServer(run_dir.node_socket(node), key, f"supervisor:{node}", self._context)
        client = ControlClient(run_dir.nimbus_socket, key, f"supervisor:{node}", self._context)
        write_record(run_dir.daemon_record(f"supervisor-{node}"))
        started_ticks = process.start_time_ticks(os.getpid())
        registration = RegisterSupervisor(node, options.ports, os.getpid(), started_ticks=started_ticks)
        self._nimbus = NimbusLink(client, registration)
        history = History(run_dir.history(node))
        history.append(Step(time.monotonic(), node, 0, BEGIN, pid=os.getpid()))
        parts = Parts(
            node=node,
            supervisor=Supervisor(slots),
            boards=self._boards,
            prospects=prospects,
            server=self._server,
            nimbus=self._nimbus,
            forking_parent=self._forking_parent,
            watch=WorkerWatch(self._poller),
            ledger=WorkerLedger(run_dir, node),
            history=history,
            faults=DaemonFaults(run_dir, node),
            run_dir=run_dir,
        )
        self._loop = SupervisorLoop(parts, self._poller)

    def run(self) -> None:
        """Run until told to leave."""
        try:
            self._loop.adopt()
            self._loop.run(self._take_signals, self._tell_ready)
        finally:
            self._close()

    def _take_signals(self) -> None:
        signals = self._inbox.take()
        if signal.SIGCHLD in signals:
            self._loop.reap_strays()
        for _ in filter(self._stop_signals.__contains__, signals):
            self._take_stop()
        if self._inbox.lifeline_cut():
            log.info("lifeline cut: leaving")
            self._loop.leave(self._grace_secs)

    def _take_stop(self) -> None:
        if not self._asked_to_leave and self._drain_secs:
            log.info("told to stop: draining for up to %g s; told again, it leaves at once", self._drain_secs)
            self._loop.depart(self._drain_secs)
        else:
            log.info("told to stop: leaving")
            self._loop.leave(0.0 if self._asked_to_leave else self._grace_secs)
        self._asked_to_leave = True

    def _tell_ready(self) -> None:
        tell_ready(self._ready_fd)
        self._ready_fd = None

    def _close(self) -> None:
        self._loop.close()
        self._forking_parent.close()
        self._nimbus.close()
        self._server.close()
        self._context.term()
        self._boards.keep_only(())
        self._inbox.close()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = daemon_parser(Kind.SUPERVISOR, "one node's supervisor")
    parser.add_argument("--node", required=True, help="name of this node")
    parser.add_argument("--ports", required=True, help="slots: port numbers, separated by commas")
    parser.add_argument("--drain-secs", type=float, help="a signal drains the node for so long; SIGINT is one, too")
    parser.add_argument("--max-deaths", type=int, default=RestartPolicyOptions.max_deaths, help="see squall supervisor")
    parser.add_argument("--entry", default=WORKER_ENTRY, help="module:function that a worker runs")
    options = parser.parse_args(arguments)
    options.ports = parse_ports(options.ports)
    check_node_name(options.node)
    return options


def parse_ports(text: str) -> list[int]:
    """Parse ports such as "6700,6701"; UsageError if one is no port, or repeats."""
    entries = text.split(",")
    if not all(entry.isdecimal() and 0 < int(entry) < 65536 for entry in entries) or len(set(entries)) < len(entries):
        raise UsageError(f"ports are {text!r}; allowed: different numbers from 1 to 65535, separated by commas")
    return [int(entry) for entry in entries]


def main(arguments: Sequence[str] | None = None) -> int:
    if os.getsid(0) != os.getpid():
        # A process group's leader cannot found a session; its group is its own already.
        with contextlib.suppress(PermissionError):
            os.setsid()
    return run_daemon(Kind.SUPERVISOR, lambda: parse(arguments), _work)


def _work(options: argparse.Namespace) -> None:
    process.become_subreaper()
    SupervisorProcess(options).run()


if __name__ == "__main__":
    sys.exit(main())
