"""The shell around Nimbus and supervisors: options, log, signals, lifeline, exit code; who they are, and their deaths.

Guarantees
    * A signal or the launcher's death wakes the poller at once; signal handlers do nothing.
    * An error that a user can mend is one line on stderr: code 2 for wrong use, 1 for others.
    * A line in the list of daemons' deaths, which their keeper notes for `squall status`, is whole or absent; one older
      file is kept. Daemons that were started singly have no keeper, and are not in it.
    * A log message is one line; a traceback keeps its lines. Neither holds a control character, whatever it quotes.

Relies on: Linux, which sends POLLHUP to every reader of a pipe when all write ends are closed, also by a kill. Thread:
main, where Python handles signals.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import zmq

from squall.engine.errors import SquallError, UsageError
from squall.engine.foreign.text import plain, plain_lines, plural
from squall.ipc.private import UMASK, append_bounded, make_levels, naming, opener, read_lines
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.role import MODULES, Role, RoleKind, show_role

log = logging.getLogger(__name__)
FILE_BYTES = 16 << 20  # a worker's metrics alone take 4 MiB
_FILES, _FILES_PER_WORKER = 64, 4  # of 12 workers each has 52 open, 3 for each other; a store of state is 3


def daemon_parser(kind: RoleKind, description: str) -> argparse.ArgumentParser:
    """A parser of the options that all daemons have."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULES[kind]}", description=description)
    parser.add_argument("--dir", required=True, help="run directory")
    parser.add_argument("--lifeline", type=int, help="descriptor whose end of file means: stop everything")
    parser.add_argument("--ready-fd", type=int, help="descriptor that gets one byte when the daemon is ready")
    return parser


def run_daemon(
    kind: RoleKind, parse: Callable[[], argparse.Namespace], work: Callable[[argparse.Namespace], None]
) -> int:
    """Run a daemon's work; returns its exit code. `parse` gives its options; a supervisor's have its node."""
    log_to_stderr()
    os.umask(UMASK)
    try:
        options = parse()
        show_role(Role(kind, getattr(options, "node", "")))
        raise_files_limit(len(getattr(options, "ports", ())))
        if 0 <= (most := resource.getrlimit(resource.RLIMIT_FSIZE)[0]) < FILE_BYTES:  # "disk I/O error", says SQLite
            raise UsageError(f"files may have {most:,} bytes at most, {FILE_BYTES:,} are needed: ulimit -f unlimited")
        work(options)
    except SquallError as error:
        sys.stderr.write(f"{kind}: {plain(error)}\n")
        return process.EXIT_WRONG_USE if isinstance(error, UsageError) else 1
    return 0


def raise_files_limit(workers: int) -> None:
    """Let this process open as many files as it may. UsageError if too few: ZeroMQ aborts a process without one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < (needed := _FILES + _FILES_PER_WORKER * workers):
        whom = plural(workers, "worker") if workers else "a daemon"
        raise UsageError(f"{hard:,} files may be open at most, {needed:,} are needed for {whom}: ulimit -n {needed}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def tell_ready(fd: int | None) -> None:
    """Tell the launcher, if it waits, that this daemon is ready."""
    if fd is not None:
        # If the launcher has gone, the lifeline tells.
        with contextlib.suppress(BrokenPipeError):
            os.write(fd, b"+")
        os.close(fd)


class DaemonRecord(msgspec.Struct, frozen=True):
    """Which process a daemon is, for those who watch it from outside."""

    pid: int
    started_ticks: int

    @staticmethod
    def of_process() -> DaemonRecord:
        """That of this process."""
        return DaemonRecord(os.getpid(), process.start_time_ticks(os.getpid()))


def write_record(path: Path) -> None:
    """Make the record this process's; on a full disk the daemon goes on without."""
    record = DaemonRecord.of_process()
    try:
        make_levels(path.parent, 1)
        with naming(path), open(path, "wb", opener=opener) as file:
            file.write(msgspec.json.encode(record))
    except OSError as error:
        log.warning("cannot write %s: %s", path, error.strerror)


def read_record(path: Path) -> DaemonRecord | None:
    """The record; None if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=DaemonRecord)
    except (OSError, ValueError):
        return None


_DEATHS_BYTES = 1 << 20


@dataclass(frozen=True)
class DaemonDeath:
    """A death of a daemon."""

    daemon: str
    """nimbus, supervisor NODE, or keeper, whose death the next one notes."""
    reason: str
    error: str
    """Its last words: the last line of its log, unless it was killed."""
    at_unix_secs: float
    """When it was noted."""


def note_death(run_dir: RunDir, daemon: str, reason: str, error: str = "") -> None:
    """Note a death. On a full disk it is only in the keeper's log, if there."""
    death = DaemonDeath(daemon, reason, error, time.time())
    with contextlib.suppress(OSError):
        append_bounded(run_dir.daemon_deaths, json.dumps(vars(death)), _DEATHS_BYTES)


def read_deaths(run_dir: RunDir) -> list[DaemonDeath]:
    """The newest deaths, oldest first."""
    return msgspec.convert(list(map(json.loads, read_lines(run_dir.daemon_deaths))), list[DaemonDeath])


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


class PlainFormatter(logging.Formatter):
    """Makes messages plain, because they quote users' code."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        record.message = plain(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return plain_lines(super().format(record))


def log_to_stderr() -> None:
    """Log to stderr. Called once, by the daemon's main."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
