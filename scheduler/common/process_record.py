"""What a daemon of a cluster says of itself in a file: which process it is, and how it ended.

Guarantees
    * Room for the end is taken at the beginning: a disk that is full by then loses no word of it.
    * One that ended without a word was killed, or its machine went down.

Relies on: one process at a time being what a record is of, which a lock or an address sees to.
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
"""Where the exit code is: behind the longest command line that a keeper has."""
_END_BYTES = 4
_NO_END = b"    "

log = logging.getLogger(__name__)


class ProcessRecord(msgspec.Struct, frozen=True):
    """One process."""

    pid: int
    started_ticks: int
    command: tuple[str, ...] = ()
    """The command line by which another one takes its place; a keeper's only."""
    end_code: int | None = None
    """Its exit code, as it said itself; None while it runs, or if it was killed."""

    @property
    def lives(self) -> bool:
        return process.lives(self.pid, self.started_ticks)


def begin_record(path: Path, command: tuple[str, ...] = ()) -> None:
    """This process is what the record is of, from now on. OSError without room on the disk, where there was no record
    before."""
    me = os.getpid()
    text = msgspec.json.encode({"pid": me, "started_ticks": process.start_time_ticks(me), "command": command})
    if len(text) > _END_AT_BYTE:
        raise ClusterError(f"the command line of process {me} has {len(text)} bytes, {_END_AT_BYTE} are room for it")
    make_levels(path.parent, 1)
    with naming(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # In place, with one call: the room is there already, and nobody reads half of it.
            os.pwrite(fd, text.ljust(_END_AT_BYTE) + _NO_END, 0)
        finally:
            os.close(fd)


def end_record(path: Path, code: int) -> None:
    """What the record is of ends now, with this exit code, or must not be replaced any more."""
    # Where the directory was removed, nobody is left to read it.
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.pwrite(fd, str(code).encode().ljust(_END_BYTES), _END_AT_BYTE)
        finally:
            os.close(fd)


def note_begin(path: Path) -> None:
    """As `begin_record`; a daemon works without, on a full disk."""
    try:
        begin_record(path)
    except OSError as error:
        log.warning("cannot write %s: %s", path, error.strerror)


@contextlib.contextmanager
def ending(path: Path) -> Iterator[None]:
    """Around all that a daemon does: how it ends is in its record then."""
    code = 1
    try:
        yield
        code = 0
    except UsageError:
        code = 2
        raise
    finally:
        try:
            end_record(path, code)
        except OSError as error:
            # As without room for it from the beginning on.
            log.warning("cannot write %s: %s", path, error.strerror)


def read_record(path: Path) -> ProcessRecord | None:
    """None if there is none, or if what is there says nothing."""
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
