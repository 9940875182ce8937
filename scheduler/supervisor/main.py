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
import os
import random
import signal
import sys
import time
from collections.abc import Sequence

import zmq

from squall.engine.errors import UsageError
from squall.ipc.control import Context, ControlClient, ControlServer
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.daemon import SignalInbox, daemon_parser, run_daemon, tell_ready, write_record
from squall.scheduler.common.messages import RegisterSupervisor, SlotChanged
from squall.scheduler.common.restart_policy import RestartPolicyOptions
from squall.scheduler.common.role import RoleKind, check_node_name
from squall.scheduler.faults.in_force import DaemonFaults
from squall.scheduler.records.worker_ledger import BEGIN, WorkerLedger
from squall.scheduler.supervisor.death_judge import DeathJudge
from squall.scheduler.supervisor.decisions import Supervisor
from squall.scheduler.supervisor.dispatcher import SupervisorParts, WorkerWatch
from squall.scheduler.supervisor.forking_parent import WORKER_ENTRY, ForkingParent
from squall.scheduler.supervisor.loop import SupervisorLoop
from squall.scheduler.supervisor.nimbus_link import NimbusLink
from squall.scheduler.supervisor.node_boards import NodeBoards
from squall.scheduler.supervisor.slot import Slot
from squall.scheduler.supervisor.worker_life import SlotAddress


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = daemon_parser(RoleKind.SUPERVISOR, "one node's supervisor")
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
    return run_daemon(RoleKind.SUPERVISOR, lambda: parse(arguments), _work)


def _work(options: argparse.Namespace) -> None:
    process.become_subreaper()
    with contextlib.ExitStack() as closing:
        loop = _loop(options, closing)
        loop.adopt()
        loop.run(lambda: tell_ready(options.ready_fd))


def _loop(options: argparse.Namespace, closing: contextlib.ExitStack) -> SupervisorLoop:
    """Make and connect the parts of a supervisor. `closing` closes them."""
    run_dir = RunDir.open(options.dir)
    node: str = options.node
    run_dir.socket_length_check(node)
    rng = random.Random()
    poller = zmq.Poller()
    stop_signals = {signal.SIGTERM} if options.drain_secs is None else {signal.SIGTERM, signal.SIGINT}
    inbox = SignalInbox(poller, options.lifeline, [*stop_signals, signal.SIGCHLD])
    closing.callback(inbox.close)
    boards = NodeBoards(run_dir)
    closing.callback(boards.keep_only, ())
    # Before the ZeroMQ context: no process that has one may fork.
    forking_parent = ForkingParent(poller, node, options.entry, rng, time.monotonic(), run_dir.hash_seed())
    judge = DeathJudge(RestartPolicyOptions(max_deaths=options.max_deaths), rng, boards.totals)
    slots = [Slot(SlotAddress(str(run_dir.path), node, port), judge, boards.look) for port in options.ports]
    context: Context = zmq.Context()
    closing.callback(context.term)
    server = ControlServer(run_dir.node_socket(node), run_dir.key(), f"supervisor:{node}", context)
    closing.callback(server.close)
    write_record(run_dir.daemon_record(f"supervisor-{node}"))
    started_ticks = process.start_time_ticks(os.getpid())
    nimbus = NimbusLink(
        ControlClient(run_dir.nimbus_socket, run_dir.key(), f"supervisor:{node}", context),
        RegisterSupervisor(node, options.ports, os.getpid(), started_ticks=started_ticks),
    )
    closing.callback(nimbus.close)
    closing.callback(forking_parent.close)
    watch = WorkerWatch(poller)
    closing.callback(watch.close)
    ledger = WorkerLedger(run_dir, node)
    ledger.note_step(SlotChanged(node, 0, "", 0, BEGIN, os.getpid(), time.monotonic()))
    parts = SupervisorParts(
        node=node, supervisor=Supervisor(slots), boards=boards, judge=judge, server=server, nimbus=nimbus,
        forking_parent=forking_parent, watch=watch, ledger=ledger, faults=DaemonFaults(run_dir, node),
        run_dir=run_dir,
    )
    return SupervisorLoop(parts, poller, inbox, stop_signals, options.drain_secs)


if __name__ == "__main__":
    sys.exit(main())
