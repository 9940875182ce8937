"""The process around the one that imports a topology file: ``python -m squall.cli.load_guard ANSWER LIFELINE``.

Guarantees: when it ends, no process that the file started is left, whatever sessions and process groups those made. It
ends when the importing process has ended, with the same status, or when LIFELINE's other end closes, for any reason.

Relies on: its descendants not killing it. It is their subreaper: a process whose parent has ended becomes its child, so
it has a child as long as it has a descendant. It can signal its children safely: no pid is reused before it is reaped.
Thread: main, the only one.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from squall.cli.load_child import import_and_answer
from squall.scheduler.common import process

_PAUSE_MS = 1
"""Time between two checks for children that have yet to end."""


def main(answer: int, lifeline: int) -> None:
    process.become_subreaper()
    for fd in (answer, lifeline):
        # The file's own children must not keep the answer open.
        os.set_inheritable(fd, False)
    pid = os.fork()
    if pid == 0:
        process.die_with_parent()
        os.setsid()
        os.close(lifeline)
        import_and_answer(answer)
    # The caller waits for the answer's end; and the file's output must not block us.
    os.close(answer)
    status = _await(pid, lifeline)
    _end_children()
    _end_like(status)


def _await(pid: int, lifeline: int) -> int:
    """Wait for the importing process, and kill it if the lifeline is cut first. Returns its exit status."""
    pidfd = process.open_pidfd(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(lifeline, select.POLLIN)
    if pidfd not in {fd for fd, _ in poll.poll()}:
        process.send_signal(pidfd, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(pidfd)
    return status


def _end_children() -> None:
    """Kill and reap children until there are none: grandchildren become children when their parents die."""
    poll = select.poll()
    while True:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        poll.poll(_PAUSE_MS)


def _children() -> Iterator[int]:
    """Pids of our children; some may be missed while others start and end."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    if listed.exists():
        yield from map(int, listed.read_text().split())
        return
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and process.parent_of(int(entry)) == os.getpid():
            yield int(entry)


def _end_like(status: int) -> None:
    """End as the importing process did: its status is what the caller reports."""
    if os.WIFSIGNALED(status):
        signum = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if signum != signal.SIGKILL:
            signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
