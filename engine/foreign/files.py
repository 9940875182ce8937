"""Files: on disk, so that they survive a power loss, as far as the disk keeps its word (fsync); locked; and executed,
as one of a user's with a topology that is named on the command line.

Guarantees: what stands in a file now is what is executed, as with `python FILE`. Python's own imports may take a cached
compilation of an earlier version: if the file changed within a second, and kept its size.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType


def sync(path: str | os.PathLike[str]) -> None:
    """Have a file on disk, or the names in a directory. OSError as the system raises it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directories(path: str | os.PathLike[str]) -> None:
    """Have the names in a directory on disk, and in all above it: who made those may not have synced them."""
    real = Path(os.path.realpath(path))
    for directory in (real, *real.parents):
        with contextlib.suppress(PermissionError):  # nothing was made there by this user
            sync(directory)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], operation: int = fcntl.LOCK_EX, flags: int = 0) -> Iterator[int]:
    """Hold the lock of a file or directory, which ends with the process at the latest; as a descriptor, opened with
    `flags`. A file that they make is for its owner alone. BlockingIOError if others hold it and LOCK_NB is asked."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, operation)
        yield fd
    finally:
        # Unlock: a process that was forked meanwhile shares the lock and would hold it.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def replace_file(path: str | os.PathLike[str], data: bytes, is_synced: bool = True) -> None:
    """Write a file, whole or not at all; if synced, also after a power loss, which else may leave it empty. Only one
    process may do so. OSError if it fails."""
    new = f"{os.fspath(path)}.new"
    with open(new, "wb") as file:
        file.write(data)
        if is_synced:
            file.flush()
            os.fsync(file.fileno())
    os.replace(new, path)


class _FromSource(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def spec_of_script(name: str, path: Path) -> ModuleSpec | None:
    """How to import a file under a name; None if it is no Python source (.py)."""
    if path.suffix != ".py":
        return None
    return spec_from_file_location(name, path, loader=_FromSource(name, str(path)))
