"""The directory that anonymous run directories live in: making them, and removing those that nobody owns any more.

Guarantees: `sweep_stale` never removes a directory that is being made, whose creator lives, or whose `lock` is held.
Making and sweeping exclude each other by a lock on the parent, and a directory's `creator` file is locked before that
lock is given up; it stays locked until the creator closes it or dies. Directories chosen by name have no `creator` file
and are never touched.

A standing cluster that was given no directory keeps its durable files elsewhere (`make_durable`): runtime directories
are emptied at logout, at reboot and by cleaners.

Relies on: flock, which the kernel drops when the last descriptor of its holder closes (descriptors are close-on-exec).
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.files import locked
from squall.ipc.private import make_directory

CREATOR_FILE = "creator"
STANDING = "cluster"
BACK_POINTER = "run-dir"
"""File in a durable directory that names the run directory."""
LOCK_FILE = "lock"
STORE = "nimbus.db"
REMOVE_ATTEMPTS = 20
"""Attempts of `remove_tree`, REMOVE_PAUSE_SECS apart: dying processes may still write a last log line."""
REMOVE_PAUSE_SECS = 0.01

_ANONYMOUS = re.compile(r"r-[0-9a-f]{8}")
_BURIED = ".dead-"


def default_parent() -> Path:
    """$XDG_RUNTIME_DIR/squall if that is writable, else <tempdir>/squall-<uid>."""
    runtime = _base_directory("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime) and os.access(runtime, os.W_OK | os.X_OK):
        return Path(runtime) / "squall"
    import tempfile  # needed by launchers only: workers and Nimbus start faster without it

    return Path(tempfile.gettempdir()) / f"squall-{os.geteuid()}"


def standing_directory() -> Path:
    """The directory of a cluster that was given none: the same for every command of one user.

    With another XDG_RUNTIME_DIR, or none, it is the one that was started last, if that still exists.
    """
    parent = default_parent()
    started = _started_last()
    if started is not None and started.is_dir() and not (parent / STANDING).exists():
        return started
    make_directory(parent)
    check_private(parent)
    return parent / STANDING


def is_standing(path: Path) -> bool:
    """Whether `path` is the directory of the cluster that was given none."""
    return path in (default_parent() / STANDING, _started_last())


def _started_last() -> Path | None:
    """The run directory that the durable one names; it may be gone."""
    with suppress(OSError):
        path = Path(os.fsdecode((durable_parents()[0] / STANDING / BACK_POINTER).read_bytes()).rstrip("\n"))
        return path if path.is_absolute() else None  # a power loss may have left the file empty
    return None


def durable_parents() -> list[Path]:
    """$XDG_STATE_HOME/squall (by default ~/.local/state/squall), where a standing cluster keeps its files; then
    /var/tmp, for dead letters in case that cannot be used."""
    home = _base_directory("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    # Without a home, or with a relative one, the place would depend on where a command is called.
    homes = [Path(home) / "squall"] if os.path.isabs(home) else []
    return [*homes, Path(f"/var/tmp/squall-{os.geteuid()}")]


def _base_directory(variable: str) -> str | None:
    """As the XDG Base Directory Specification asks, a relative path is ignored."""
    path = os.environ.get(variable, "")
    return path if os.path.isabs(path) else None


def make_durable() -> Path:
    """The durable directory of the cluster that was given none; made if it is missing."""
    path = durable_parents()[0] / STANDING
    try:
        make_directory(path)
    except OSError as error:
        raise ClusterError(f"cannot make {path} for what the cluster keeps: {error.strerror}; use --dir") from error
    check_private(path)
    return path


def make_anonymous(parent: Path) -> tuple[Path, int]:
    """A fresh directory, and the descriptor that protects it from sweeps while it is open."""
    make_directory(parent)
    check_private(parent)
    with locked(parent, flags=os.O_NOFOLLOW):
        path = parent / f"r-{os.urandom(4).hex()}"
        path.mkdir(mode=0o700)
        fd = try_flock(path / CREATOR_FILE)
    if fd is None:
        raise ClusterError(f"cannot lock {path / CREATOR_FILE}: another process has locked it")
    return path, fd


def sweep_stale(parent: Path | None = None) -> list[Path]:
    """Remove the anonymous run directories in `parent` that nobody owns; returns them. Process: any."""
    parent = default_parent() if parent is None else parent
    if not parent.is_dir():
        return []
    check_private(parent)
    stale = []
    try:
        with locked(parent, fcntl.LOCK_EX | fcntl.LOCK_NB, os.O_NOFOLLOW):
            stale = [path for path in sorted(parent.iterdir()) if _bury_if_abandoned(path)]
    except BlockingIOError:
        # Another process is making or sweeping right now: stale directories stay so until next time.
        return []
    # Include directories that an earlier sweep had buried when it was killed; several sweeps may remove the same one.
    for grave in sorted(parent.glob(_BURIED + "*")):
        remove_tree(grave)
    return stale


def check_private(path: Path) -> None:
    """UsageError unless `path` is a real directory of ours that nobody else can enter."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise UsageError(f"there is no run directory at {path}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path} is not a directory (links are not followed)")
    if found.st_uid != os.geteuid():
        raise UsageError(f"{path} belongs to uid {found.st_uid}, must belong to uid {os.geteuid()}")
    if found.st_mode & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        raise UsageError(f"{path} has mode {mode}, must be 0700: if it is a cluster's, chmod 700 mends it")


def try_flock(path: Path) -> int | None:
    """A descriptor that holds `path`'s lock, or None if another process does. The file is made if missing."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    held = False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A sweep may have moved the file between open and flock: the lock would protect nothing.
        held = os.path.samestat(os.fstat(fd), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return None
    finally:
        if not held:
            os.close(fd)
    return fd if held else None


def remove_tree(path: Path) -> None:
    """Delete `path`, which may be gone already, or be deleted by others at the same time."""
    import shutil  # here, so that Nimbus starts faster

    for _ in range(REMOVE_ATTEMPTS):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(REMOVE_PAUSE_SECS)
    raise ClusterError(f"cannot remove {path}: {sorted(os.listdir(path))[:5]} cannot be deleted")


def _bury_if_abandoned(path: Path) -> bool:
    """Move a directory that nobody owns out of sight. Call it with the parent's lock held."""
    try:
        return _bury(path)
    except FileNotFoundError:
        # Its owner, who needs no lock for that, has removed it meanwhile.
        return False


def _bury(path: Path) -> bool:
    if not _ANONYMOUS.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return False
    if not (path / CREATOR_FILE).exists() and any(path.iterdir()):
        return False
    fds: list[int] = []
    try:
        # Hold both locks until the directory has moved, so that no Nimbus can start in it meanwhile.
        for name in (CREATOR_FILE, LOCK_FILE):
            fd = try_flock(path / name)
            if fd is None:
                return False
            fds.append(fd)
        path.rename(path.with_name(_BURIED + path.name))
        return True
    finally:
        for fd in fds:
            os.close(fd)
