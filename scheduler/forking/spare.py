"""A spare: a child that has done the first part of its work, loading a topology's code, and waits for the word to do
the rest. It cannot be forked from, because users' modules have started threads: it does the rest itself, once.

Guarantees
    * Its parent never waits for it. One that does not come to the end of its first part in time is killed.
    * It ends with its parent until it is given its work, even if users' code hangs; then it is a child like any.
    * What is printed meanwhile is kept in memory, up to `OUTPUT_BYTES`, and is first in the log of its work.

Relies on: both ends of the socket being closed in all other processes (`run_forked` does so).

The word is one packet: a boot that does not fit into the socket's buffer is refused, and its worker forked.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from squall.engine.foreign.text import text_of_error
from squall.scheduler.common import process
from squall.scheduler.common.log_output import log_output
from squall.scheduler.forking.child import EXIT_EXCEPTION, fork, open_log, output_to, run_forked

OUTPUT_BYTES = 1 << 20
_TEXT_BYTES = 2000
"""The most that is told of an error."""
_PACKET_BYTES = 1 << 20
_LOADED = b"\0"


class SpareOutput:
    """The standard output of a spare. Process: the spare."""

    def __init__(self) -> None:
        self._parents = os.dup(2)
        held = os.memfd_create("squall-spare", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(held, OUTPUT_BYTES)
        fcntl.fcntl(held, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        output_to(held)
        # The same objects until the end of the process: users' handlers keep them.
        self._logs = log_output(None)

    def move_to(self, path: str, rotate_bytes: int) -> None:
        """Send all output, and what was kept, to a log."""
        held, log = os.dup(1), open_log(path)
        output_to(self._parents if log is None else log)
        if log is not None:
            os.close(self._parents)
            for each in self._logs:
                each.turn_over_at(path, rotate_bytes)
        kept = os.pread(held, os.lseek(held, 0, os.SEEK_CUR), 0)
        os.close(held)
        if kept:
            self._logs[0].write(kept)


class Spare:
    """The parent's side of a spare."""

    def __init__(
        self, first: Callable[[], Any], rest: Callable[[Any, SpareOutput, bytes], object], deadline_secs: float
    ) -> None:
        """Fork one, which calls `first` and, with its result and the word, `rest`. ClusterError if the fork fails."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self.pid = fork(lambda: _be_spare(theirs, first, rest))
            except BaseException:
                self._socket.close()
                raise
        self._socket.setblocking(False)
        self.deadline: float | None = deadline_secs
        """When its first part has to be done; None once it is."""
        self.error = ""
        """Why it ends, in its own words."""

    @property
    def fd(self) -> int:
        """Readable when `hear` has something."""
        return self._socket.fileno()

    def hear(self) -> None:
        """Take in what it says."""
        try:
            said = self._socket.recv(_PACKET_BYTES)
        except BlockingIOError:
            return
        self.deadline = None
        if said and said != _LOADED:
            self.error = said.decode(errors="replace")

    def give(self, word: bytes) -> bool:
        """Give it its work, and forget it. False if it cannot take any: then it is killed."""
        self.hear()
        try:
            taken = self.deadline is None and not self.error and not process.is_stopped(self.pid)
            taken = taken and self._socket.send(word) == len(word)
        except OSError:
            taken = False
        if not taken:
            self.kill()
        self.close()
        return taken

    def kill(self) -> None:
        """Kill it, with what users' code has started."""
        process.send_signal_to_group(self.pid, signal.SIGKILL)
        # It leads no group yet if it was just forked.
        pidfd = process.open_pidfd(self.pid)
        process.send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)

    def close(self) -> None:
        self._socket.close()


def _be_spare(
    sock: socket.socket, first: Callable[[], Any], rest: Callable[[Any, SpareOutput, bytes], object]
) -> NoReturn:
    """Be the spare. Does not return."""

    def work() -> object:
        process.die_with_parent()
        output = SpareOutput()
        try:
            result = first()
        except BaseException as error:  # users' code
            sock.send(text_of_error(error).encode(errors="replace")[:_TEXT_BYTES])
            return EXIT_EXCEPTION
        # Or else the collection when the worker is ready takes most of the time that was saved.
        gc.collect()
        gc.freeze()
        sock.send(_LOADED)
        word = sock.recv(_PACKET_BYTES)
        if not word:
            return 0
        process.outlive_parent()
        sock.close()
        return rest(result, output, word)

    run_forked(work, None, pass_fds=(sock.fileno(),))
