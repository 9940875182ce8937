"""Files and directories that only their owner can enter; files that are put in place whole; files of lines, which
processes append to while others read; errors that name them.

Guarantees
    * What is made here has mode 0600 or 0700, whatever the umask is: that of a user's own program is not ours to set.
    * `replace_file` leaves the old file or the new one, whatever dies in between.
    * A line is whole or absent: a reader sees no line that is being written, and the fragment of a writer that died is
      removed before the next line is written. One that does not fit (full disk, limit on the size of files) leaves
      nothing behind.
    * An OSError names the file, also one of a call on a descriptor.

Process: any. Two processes must not replace one file at once; who appends waits for another, for the time of a write.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from squall.engine.foreign.files import locked
from squall.engine.foreign.files import sync as sync_to_disk

UMASK = 0o077
"""Of daemons and workers: their files are for the owner alone."""


@contextlib.contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Name this file in an OSError that names none, as those of calls on descriptors do."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def opener(path: str, flags: int) -> int:
    """Opener for `open` that creates files with mode 0600."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def make_levels(path: str | Path, levels: int) -> None:
    """Make a directory of mode 0700 and at most `levels - 1` above it. FileNotFoundError if more are missing, so that a
    run directory that was removed does not come back."""
    made = Path(path)
    for missing in reversed([made, *made.parents][:levels]):
        missing.mkdir(mode=0o700, exist_ok=True)


def make_directory(path: Path, *, exist_ok: bool = True) -> None:
    """Make a directory of mode 0700, and missing parents with the same mode: `mkdir` would leave those to the umask."""
    for missing in reversed([parent for parent in path.parents if not parent.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=exist_ok)


@contextlib.contextmanager
def gone_if_failed(temporary: str | Path) -> Iterator[None]:
    """Remove a temporary file if the block, which writes it and puts it in place, raises. Raises that. The file of a
    process that dies in between is written over by the next."""
    try:
        yield
    except Exception:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def replace_file(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write a file, whole or not at all; with `sync` it is on disk when this returns. OSError if there is no room."""
    temporary = path.with_name(f"{path.name}.new")
    with naming(path), gone_if_failed(temporary):
        with open(temporary, "wb", opener=opener) as file:
            file.write(data)
        if sync:
            sync_to_disk(temporary)
        os.replace(temporary, path)
    if sync:
        sync_to_disk(path.parent)


_PROBE_BYTES = 65536
"""Size of a trial write: more than Nimbus's store needs for a change."""


def room_error(directory: Path) -> str:
    """The system's error, with the directory, if its file system takes no write; "" if it does. Changes no file."""
    probe = directory / f".room-{threading.get_native_id()}"
    try:
        # Write and sync as the store does: for some file systems reserving room (fallocate) just sets a length, others
        # notice only at the sync that there is none.
        with open(probe, "xb", opener=opener) as file:
            file.write(bytes(range(256)) * (_PROBE_BYTES // 256))
        sync_to_disk(probe)
    except OSError as error:
        return f"cannot write to {directory}: {error.strerror}"
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return ""


_BLOCK_BYTES = 4096


def append_line(path: Path, line: str) -> int:
    """Append a line, which holds no newline, to a file that may not exist yet; returns the file's size with it. OSError
    if there is no room."""
    left = line.encode() + b"\n"
    with locked(path, flags=os.O_RDWR | os.O_APPEND | os.O_CREAT) as fd:
        before = _end_of_lines(fd)
        size = before + len(left)
        os.ftruncate(fd, before)
        try:
            # A death, or a full disk, may interrupt the write between pages.
            with naming(path):
                while left:
                    left = left[os.write(fd, left) :]
        except OSError:
            os.ftruncate(fd, before)
            raise
        return size


def append_bounded(path: Path, line: str, most_bytes: int) -> None:
    """Append a line. A file that is longer then becomes the older one, which is kept instead of the one before."""
    if append_line(path, line) > most_bytes:
        path.rename(path.with_suffix(".old"))


def _end_of_lines(fd: int) -> int:
    """Offset of the end of the last whole line."""
    end = os.fstat(fd).st_size
    while end:
        begin = max(0, end - _BLOCK_BYTES)
        newline = os.pread(fd, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def read_lines(path: Path) -> list[bytes]:
    """Every whole line, without its newline; none if there is no such file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return data.split(b"\n")[:-1]


def read_lines_and_tail(path: Path) -> tuple[list[bytes], bytes]:
    """As `read_lines`, and the fragment after the last whole line, which a cut or the death of its writer has left."""
    try:
        with locked(path, fcntl.LOCK_SH) as fd, open(fd, "rb", closefd=False) as file:
            *lines, rest = file.read().split(b"\n")
    except FileNotFoundError:
        return [], b""
    return lines, rest
