"""Files and directories that only their owner can enter, whatever the umask is; errors that name them; files that are
written beside their place and then put there.

For processes whose umask is not ours to set, the user's own program above all; daemons and workers have a umask of 077.
Process: any.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

UMASK = 0o077
"""Of daemons and workers: their files are for the owner alone."""


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
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


def make_levels(path: str | os.PathLike[str], levels: int) -> None:
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


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Have the names in a directory on disk, after a rename. OSError as the system raises it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def gone_if_failed(temporary: str | os.PathLike[str]) -> Iterator[None]:
    """Remove a temporary file if the block, which writes it and puts it in place, raises. Raises that. The file of a
    process that dies in between is written over by the next."""
    try:
        yield
    except Exception:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
