"""Files and directories that only their owner can enter; files that are put in place whole; errors that name them.

Guarantees
    * What is made here has mode 0600 or 0700, whatever the umask is: that of a user's own program is not ours to set.
    * `replace_file` leaves the old file or the new one, whatever dies in between.
    * An OSError names the file, also one of a call on a descriptor.

Process: any. Two processes must not replace one file at once.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

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


def sync_directory(path: str | Path) -> None:
    """Have the names in a directory on disk, after a rename. OSError as the system raises it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    if sync:
        sync_directory(path.parent)


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
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"cannot write to {directory}: {error.strerror}"
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return ""
