"""The starter's process (`scheduler.cluster.starter`): ``python -m ...starter_main --fd N --dir RUN``.

Guarantees: one thread and no ZeroMQ context, so that it may fork. It ends when the other end of its socket is closed,
leaves its children to the process that the kernel chooses, and removes the run directory if no order has come.

Relies on: its program reading an answer to each order before it sends the next.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import sys
from collections.abc import Sequence

import msgspec

from squall.engine.errors import ClusterError
from squall.ipc.private import UMASK
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster.starter import DONE, Answer, Order
from squall.scheduler.common.process_title import find_command_line
from squall.scheduler.forking.module import fork_module
from squall.scheduler.forking.parent import preload

# The daemons' modules, imported here once for all of them.
from squall.scheduler.nimbus import main as nimbus_main
from squall.scheduler.supervisor import main as supervisor_main

PRELOADED = (nimbus_main, supervisor_main)
_ORDER_BYTES = 1 << 22


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="forks the daemons of a cluster")
    parser.add_argument("--fd", type=int, required=True, help="descriptor of the socket to the program")
    parser.add_argument("--dir", required=True, help="run directory")
    options = parser.parse_args(arguments)
    # Each daemon gets an environment of its own.
    find_command_line()
    # The daemons set their own.
    umask = os.umask(UMASK)
    with socket.socket(fileno=options.fd) as orders:
        # If the program waits already, the forking parents do it, beside the start of the other daemons.
        if not select.select([orders], [], [], 0)[0]:
            preload()
        os.umask(umask)
        if not _follow(orders):
            RunDir(options.dir).remove()
    return 0


def _follow(orders: socket.socket) -> bool:
    """Carry out orders; False if the program has ended without one."""
    ordered = False
    while data := orders.recv(_ORDER_BYTES):
        ordered = True
        if data == DONE:
            break
        orders.sendall(msgspec.msgpack.encode(_fork(msgspec.msgpack.decode(data, type=Order))))
    return ordered


def _fork(order: Order) -> Answer:
    os.environb.clear()
    os.environb.update(order.environment)
    try:
        os.chdir(order.cwd)
        child = fork_module(order.module, order.arguments, order.pass_fds, os.fsdecode(order.log_path))  # type: ignore[arg-type]
    except ClusterError as error:
        return Answer(error=str(error))
    except OSError as error:
        return Answer(error=f"cannot use {os.fsdecode(order.cwd)}: {error.strerror}")
    return Answer(child.pid)


if __name__ == "__main__":
    sys.exit(main())
