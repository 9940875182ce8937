"""The common parts of Nimbus and supervisors as processes: signals, the lifeline, the descriptor limit.

Guarantees: a signal or the launcher's death wakes the poller at once; signal handlers do nothing.

Relies on: Linux, which sends POLLHUP to every reader of a pipe when all write ends are closed, also by a kill. Thread:
main, where Python handles signals.
"""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Iterable

import zmq


class SignalInbox:
    """Makes signals and the lifeline pollable.

    Ignores SIGINT unless it is among `signals`: the launcher decides what it means.
    """

    def __init__(self, poller: zmq.Poller, lifeline: int | None, signals: Iterable[int]) -> None:
        self._fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poller = poller
        self._lifeline = lifeline
        poller.register(self._fd, zmq.POLLIN)
        if lifeline is not None:
            poller.register(lifeline, zmq.POLLIN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for signum in signals:
            # Python writes to the wake-up descriptor only for signals that have a handler in Python.
            signal.signal(signum, lambda *_: None)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def take(self) -> bytes:
        """Numbers of the signals that arrived since the last call."""
        try:
            return os.read(self._fd, 4096)
        except BlockingIOError:
            return b""

    def lifeline_cut(self) -> bool:
        """True once, when the lifeline's other end has closed."""
        if self._lifeline is None:
            return False
        # Poll instead of reading: other daemons hold the same pipe, and a read of an empty one would block.
        poll = select.poll()
        poll.register(self._lifeline, 0)
        cut = bool(poll.poll(0))
        if cut:
            self._poller.unregister(self._lifeline)
            os.close(self._lifeline)
            self._lifeline = None
        return cut

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self._fd)
        os.close(self._write_fd)


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard one: ZeroMQ aborts a process that runs out of descriptors on ipc."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
