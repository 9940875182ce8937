"""Becomes the program of a ShellSpout or ShellBolt: PARENT COMMAND [ARGUMENT ...].

Guarantees: the program does not outlive the thread that started it, however that ended; it has no signal blocked or
ignored. Run as a file by an interpreter of its own, because what a thread does between fork and exec may deadlock.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
NOT_STARTED, CANNOT = 127, "cannot be started (install it, or give the path of a program)"
"""The exit code if there is no such program, and how stderr says so."""

if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("its worker has died")
    for signum in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} {CANNOT}: {error.strerror}\n".encode(errors="replace"))
        sys.exit(NOT_STARTED)
