"""A spare: a child that has done the first part of its work, loading a topology's code, and waits for the word to do
the rest. It cannot be forked from, because users' modules have started threads: it does the rest itself, once.

Guarantees
    * Its parent never waits for it.
    * It ends with its parent until it has its word, even if users' code hangs; then it is a child like any other.
    * It is killed by SIGALRM if the first part takes longer than `LOAD_SECS`.
    * What it prints is kept in memory, up to `OUTPUT_BYTES`, until it has its word: then it comes first in its log.

Relies on: other processes not keeping copies of its socket (`run_forked` closes them). The word is one packet: one that
does not fit into the socket's buffer is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from squall.engine.foreign.text import text_of_error
from squall.scheduler.common import process
from squall.scheduler.common.logs import log_output
from squall.scheduler.forking.child import EXIT_EXCEPTION, fork, open_log, output_to, run_forked

LOAD_SECS = 60
OUTPUT_BYTES = 1 << 20
_TEXT_BYTES, _PACKET_BYTES = 2000, 1 << 20
"""The most that is told of an error, and that is read at once."""
_LOADED = b"\0"


class SpareOutput:
    """The standard output of a spare. Process: the spare."""

    def __init__(self) -> None:
        held = os.memfd_create("squall-spare", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(held, OUTPUT_BYTES)
        fcntl.fcntl(held, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        output_to(held)
        # The same objects until the end of the process: users' handlers keep them.
        self._logs = log_output(None)

    def move_to(self, path: str, rotate_bytes: int) -> None:
        """Send all output, and what was kept, to a log. If that cannot be opened, the memory takes it as before."""
        held, log = os.dup(1), open_log(path)
        if log is not None:
            output_to(log)
            for each in self._logs:
                each.turn_over_at(path, rotate_bytes)
            if kept := os.pread(held, os.lseek(held, 0, os.SEEK_CUR), 0):
                self._logs[0].write(kept)
        os.close(held)


class Spare:
    """The parent's side of a spare."""

    def __init__(self, first: Callable[[], Any], rest: Callable[[Any, SpareOutput, bytes], object]) -> None:
        """Fork one, which calls `first` and, with its result and the word, `rest`. ClusterError if the fork fails."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.pid = fork(lambda: run_forked(partial(_work, theirs, first, rest), None, (theirs.fileno(),)))
        self._socket.setblocking(False)

    def give(self, word: bytes) -> bool:
        """Give it its word. False if it cannot take any: then it is killed."""
        with contextlib.suppress(OSError):  # it is not loaded yet, it has ended, or the word is too long
            if self._socket.recv(_PACKET_BYTES) == _LOADED and not process.is_stopped(self.pid):
                self._socket.send(word)
                return True
        self.kill()
        return False

    def kill(self) -> None:
        """Kill it, with what users' code has started."""
        process.send_signal_to_group(self.pid, signal.SIGKILL)
        # If it leads no group yet, the end of file ends it.
        self._socket.close()

    def why_ended(self, status: int) -> str:
        """Why it has ended: its own words, or its exit status."""
        with contextlib.suppress(BlockingIOError):  # a process that users' code has forked holds the other end
            if said := self._socket.recv(_PACKET_BYTES).strip(_LOADED):
                return said.decode(errors="replace")
        return process.describe_status(status)


def _work(
    sock: socket.socket, first: Callable[[], Any], rest: Callable[[Any, SpareOutput, bytes], object]
) -> object:
    """Be the spare; returns its exit code."""
    process.die_with_parent()
    output = SpareOutput()
    signal.alarm(LOAD_SECS)
    try:
        result = first()
    except BaseException as error:  # users' code
        sock.send(text_of_error(error).encode(errors="replace")[:_TEXT_BYTES])
        return EXIT_EXCEPTION
    signal.alarm(0)
    # Or else the collection when the worker is ready takes a good part of the time that was saved.
    gc.collect()
    gc.freeze()
    sock.send(_LOADED)
    word = sock.recv(_PACKET_BYTES)
    sock.close()
    if not word:
        return 0
    process.outlive_parent()
    return rest(result, output, word)
