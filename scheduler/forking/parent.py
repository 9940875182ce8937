"""The forking parent: a process that has imported everything and only forks workers.

Guarantees
    * It has one thread (checked before every fork) and no ZeroMQ context, so a child begins in a sane process.
    * It never imports user code: a worker's imports and crashes stay in that worker.
    * It reaps every child, and reports the exit status before it answers any later fork.
    * When its supervisor dies it ends; its workers live on.

Relies on: being started by `scheduler.forking.client`, with one end of a socket pair.

Forked from its supervisor, or run as ``python -m squall.scheduler.forking.parent --node NODE --fd N``.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import importlib.util
import logging
import os
import pkgutil
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from squall.engine.errors import ClusterError
from squall.ipc.private import UMASK
from squall.scheduler.common import process
from squall.scheduler.common.daemon import log_to_stderr
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.common.process_title import MODULES, Kind, Role, show_role
from squall.scheduler.forking.child import fork
from squall.scheduler.forking.wire import ChildExited, Forked, ForkingParentChannel, ForkRefused, ForkRequest
from squall.scheduler.forking.worker_child import run_child

PUBLIC_MODULE = "squall"
PRELOADED_MODULES = ("zmq", "msgspec", "cloudpickle", "squall.scheduler.worker.main", PUBLIC_MODULE)
PRELOADED_PACKAGES = ("squall.engine", "squall.ipc")

log = logging.getLogger(__name__)


def preload() -> None:
    """Import what workers need, then freeze it for the garbage collector, so that forks share its memory.

    All public names are loaded, because topology files import them, if only for their main program: those imports take
    up to 30 ms, half of the time to replace a worker.
    """
    names = list(PRELOADED_MODULES)
    for package in PRELOADED_PACKAGES:
        path = importlib.import_module(package).__path__
        names += (module.name for module in pkgutil.walk_packages(path, f"{package}."))
    for name in names:
        _try_to_load(name, importlib.import_module)
    public = sys.modules[PUBLIC_MODULE]
    for name in public.__all__:
        _try_to_load(name, partial(getattr, public))
    gc.collect()
    gc.freeze()


def _try_to_load(name: str, load: Callable[[str], Any]) -> None:
    try:
        load(name)
    except Exception:
        # A worker that needs the module will report the error to its supervisor; forking works without.
        log.exception("%s cannot be preloaded", name)


class ForkingLoop:
    """The loop: fork on request, reap on SIGCHLD, end with the supervisor."""

    def __init__(self, channel: ForkingParentChannel) -> None:
        self._channel = channel
        self._children: dict[int, int] = {}
        """pid -> pidfd of every child that was not reaped yet."""

    def run(self) -> None:
        """Run until the supervisor closes its end. Thread: main."""
        wake_in, wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Python writes to the wake-up descriptor only for signals that have a handler in Python.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(wake_in, select.POLLIN)
        poll.register(self._channel, select.POLLIN)
        try:
            while True:
                readable = {fd for fd, _ in poll.poll()}
                if wake_in in readable:
                    os.read(wake_in, 4096)
                    self._reap()
                if self._channel.fileno() in readable:
                    for frame, _ in self._channel.receive():
                        if isinstance(frame, ForkRequest):
                            self._fork(frame)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return

    def _fork(self, request: ForkRequest) -> None:
        boot = request.boot
        self._reap()
        try:
            pid = fork(lambda: run_child(boot, request.entry))
        except ClusterError as error:
            self._refuse(boot, str(error))
            return
        self._announce(boot, pid)

    def _announce(self, boot: WorkerBoot, pid: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            # Kill it, because nobody could watch it.
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._refuse(boot, f"cannot watch the new process: {error.strerror}")
            return
        self._children[pid] = pidfd
        self._channel.send(Forked(boot.port, boot.incarnation, pid), (pidfd,))

    def _refuse(self, boot: WorkerBoot, error: str) -> None:
        self._channel.send(ForkRefused(boot.port, boot.incarnation, error))

    def _reap(self) -> None:
        for pid, pidfd in list(self._children.items()):
            status = process.reap(pidfd)
            if status is not None:
                del self._children[pid]
                os.close(pidfd)
                self._channel.send(ChildExited(pid, status))


def main(arguments: Sequence[str] | None = None) -> int:
    prog = f"python -m {MODULES[Kind.FORKING_PARENT]}"
    parser = argparse.ArgumentParser(prog=prog, description="forks workers for a supervisor")
    parser.add_argument("--node", required=True, help="name of the supervisor's node")
    parser.add_argument("--fd", type=int, required=True, help="descriptor of the socket to the supervisor")
    options = parser.parse_args(arguments)
    show_role(Role(Kind.FORKING_PARENT, options.node))
    log_to_stderr()
    os.umask(UMASK)
    with contextlib.closing(ForkingParentChannel(socket.socket(fileno=options.fd))) as channel:
        preload()
        ForkingLoop(channel).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
