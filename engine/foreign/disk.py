"""Files and directories that are on disk, and so survive a power loss, as far as the disk keeps its word (fsync)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


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
