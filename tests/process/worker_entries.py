"""What test workers do instead of `scheduler.worker.main`: take a WorkerBoot, return an exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from squall.scheduler.common.messages import TopologyRecord, WorkerBoot

WAIT_SECS = 150.0
"""No test worker lives longer, whatever goes wrong."""

IMPORTED_BY = os.getpid()
"""Stands for user code: nobody but a worker imports this module."""


def loader(run_dir: str, topology: TopologyRecord) -> str:
    """What a spare does first, in a limited time."""
    print("loaded", topology.name, "in time" if signal.getitimer(signal.ITIMER_REAL)[0] else "")
    return "code"


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


def describer(boot: WorkerBoot, loaded: str = "") -> int:
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
        "loaded": loaded,
        "time_left": signal.getitimer(signal.ITIMER_REAL)[0],
    }
    print(json.dumps(facts))
    return 0


def grandparent(boot: WorkerBoot) -> int:
    """Start a process that stays in our group, then live until killed."""
    child = subprocess.Popen(["sleep", str(WAIT_SECS)])
    print(child.pid, flush=True)
    return sleeper(boot)
