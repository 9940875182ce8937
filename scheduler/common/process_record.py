"""A daemon's record of itself, in a file: which process it is, and how it ended.

Guarantees
    * Room for the end is reserved at the beginning, so a full disk does not lose it.
    * A process without an end in its record was killed, or its machine went down.

Relies on: one process per record at a time, which a lock or an address ensures.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.private import make_levels, naming
from squall.scheduler.common import process

_END_AT_BYTE = 8192
"""Offset of the exit code: behind the longest command line of a keeper."""
_END_BYTES = 4
_NO_END = b"    "

EXIT_WRONG_USE = 2
"""Exit code of a daemon that refused its arguments or its directory: it would refuse them again."""

log = logging.getLogger(__name__)


class ProcessRecord(msgspec.Struct, frozen=True):
    """Pid, command and end of one process."""

    pid: int
    started_ticks: int
    command: tuple[str, ...] = ()
    """The command line of its successor; for a keeper only."""
    end_code: int | None = None
    """Its exit code, which it has written itself; None while it runs, or if it was killed."""

    @property
    def lives(self) -> bool:
        return process.lives(self.pid, self.started_ticks)


def begin_record(path: Path, command: tuple[str, ...] = ()) -> None:
    """Make the record this process's. OSError if there was none before, and the disk has no room."""
    me = os.getpid()
    text = msgspec.json.encode({"pid": me, "started_ticks": process.start_time_ticks(me), "command": command})
    if len(text) > _END_AT_BYTE:
        raise ClusterError(f"the command line of process {me} has {len(text)} bytes, {_END_AT_BYTE} are room for it")
    make_levels(path.parent, 1)
    with naming(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # In place, with one call: the room is reserved already, and no reader sees half of it.
            os.pwrite(fd, text.ljust(_END_AT_BYTE) + _NO_END, 0)
        finally:
            os.close(fd)


def end_record(path: Path, code: int) -> None:
    """Write the exit code: the process ends now, or must not be replaced any more."""
    # If the directory was removed, no reader is left.
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.pwrite(fd, str(code).encode().ljust(_END_BYTES), _END_AT_BYTE)
        finally:
            os.close(fd)


def exit_code(error: BaseException) -> int:
    """The exit code of a daemon that ends by an error."""
    return EXIT_WRONG_USE if isinstance(error, UsageError) else 1


def note_begin(path: Path) -> None:
    """As `begin_record`, but on a full disk a daemon goes on without."""
    try:
        begin_record(path)
    except OSError as error:
        log.warning("cannot write %s: %s", path, error.strerror)


@contextlib.contextmanager
def ending(path: Path) -> Iterator[None]:
    """Run a daemon's work, and write how it ends to its record."""
    code = 0
    try:
        yield
    except BaseException as error:
        code = exit_code(error)
        raise
    finally:
        try:
            end_record(path, code)
        except OSError as error:
            # As if there had been no room at the beginning.
            log.warning("cannot write %s: %s", path, error.strerror)


def read_record(path: Path) -> ProcessRecord | None:
    """The record; None if there is none, or it cannot be read."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        record = msgspec.json.decode(data[:_END_AT_BYTE], type=ProcessRecord)
    except msgspec.MsgspecError:
        return None
    end = data[_END_AT_BYTE:].strip()
    return msgspec.structs.replace(record, end_code=int(end)) if end.isdigit() else record


def present_record(path: Path) -> ProcessRecord | None:
    """The record of a process that runs, or was killed: one without an end; None if there is none."""
    record = read_record(path)
    return None if record is None or record.end_code is not None else record
