"""What test workers do instead of `scheduler.worker.main`: take a WorkerBoot, return an exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from squall.ipc.control import ControlClient
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import WorkerBoot, WorkerFailed, WorkerReady

WAIT_SECS = 30.0
"""No test worker outlives its test by more, whatever goes wrong."""

IMPORTED_BY = os.getpid()
"""Stands for user code: nobody but a worker imports this module."""


def sleeper(boot: WorkerBoot) -> int:
    """Live until killed."""
    signal.alarm(round(WAIT_SECS))
    signal.pause()
    return 0


def code_5(boot: WorkerBoot) -> int:
    print("printed")
    print("complained", file=sys.stderr)
    return 5


def raiser(boot: WorkerBoot) -> int:
    raise RuntimeError("boom in the entry point")


def segfaulter(boot: WorkerBoot) -> int:
    os.kill(os.getpid(), signal.SIGSEGV)
    return 0


def sys_exiter(boot: WorkerBoot) -> int:
    sys.exit("no way")


def describer(boot: WorkerBoot) -> int:
    """Print what kind of process this is."""
    fds = {int(fd): os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) < 3}
    listing = os.open("/", os.O_RDONLY)
    os.close(listing)
    handlers = [signal.Signals(n).name for n in signal.valid_signals() if callable(signal.getsignal(n))]
    facts = {
        "fds": fds,
        "lowest_free_fd": listing,
        "leads": os.getpid() == os.getsid(0) == os.getpgid(0),
        "mask": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "handlers": handlers,
        "port": boot.port,
        "imported_here": os.getpid() == IMPORTED_BY,
        "preloaded": "zmq" in sys.modules,
    }
    print(json.dumps(facts))
    return 0


def grandparent(boot: WorkerBoot) -> int:
    """Start a process that stays in our group, then live until killed."""
    child = subprocess.Popen(["sleep", str(WAIT_SECS)])
    print(child.pid, flush=True)
    return sleeper(boot)


class ReadyWorker:
    """Talks to its supervisor as a real worker does."""

    def __init__(self, boot: WorkerBoot) -> None:
        self._boot = boot
        run_dir = RunDir(boot.run_dir)
        name = boot.sender
        self._control = ControlClient(run_dir.node_socket(boot.node), run_dir.key(), name)

    def tell_ready(self) -> None:
        self._control.send_event(WorkerReady(self._boot.port, self._boot.incarnation, os.getpid()))

    def tell_failed(self, error: str) -> None:
        boot = self._boot
        self._control.send_event(WorkerFailed(boot.port, boot.incarnation, error, "the traceback"))
        self._control.close()

    def wait_for_stop(self) -> int:
        """Print events until told to stop."""
        signal.alarm(round(WAIT_SECS))
        while self._control.socket.poll(round(WAIT_SECS * 1000)):
            while (event := self._control.recv_event()) is not None:
                print(event.method, flush=True)
                if event.method == "StopWorker":
                    self._control.close()
                    return 0
        return 1


def ready(boot: WorkerBoot) -> int:
    worker = ReadyWorker(boot)
    worker.tell_ready()
    return worker.wait_for_stop()


def deaf(boot: WorkerBoot) -> int:
    """Ready, but does not stop when told."""
    worker = ReadyWorker(boot)
    worker.tell_ready()
    return sleeper(boot)


def fails_while_opening(boot: WorkerBoot) -> int:
    ReadyWorker(boot).tell_failed("split[3] raised ValueError: bad in prepare")
    return 1
