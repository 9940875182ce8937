"""What Nimbus and supervisors have in common as processes: signals, the lifeline, the descriptor limit.

Guarantees: a signal or the launcher's death wakes the poller at once; nothing happens inside a signal handler.

Relies on: being used by the main thread, where Python handles signals; Linux, where a pipe whose write ends are all
closed says so (POLLHUP) to every reader, also when the writer was killed.
"""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Iterable

import zmq


class SignalInbox:
    """Signals and the lifeline, turned into things to poll.

    SIGINT is ignored where it is none of `signals`: the launcher decides what it means.
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
            # Without a handler written in Python the wake-up descriptor would stay silent.
            signal.signal(signum, lambda *_: None)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def take(self) -> bytes:
        """Numbers of the signals that came since the last call."""
        try:
            return os.read(self._fd, 4096)
        except BlockingIOError:
            return b""

    def lifeline_cut(self) -> bool:
        """True once, when the lifeline's other end has closed."""
        if self._lifeline is None:
            return False
        # Not by reading: the other daemons hold the same pipe, and a read that finds nothing would block.
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
    """The soft limit up to the hard one: ZeroMQ aborts the process that runs out of descriptors on ipc."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
