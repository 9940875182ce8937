"""Puts a complete feed in another's place, or adds files to it, or leaves everything as it was.

::

    new feed    TARGET.tmp-prepare-<pid> ◄──── change places ────► TARGET
    increment   TARGET.tmp-prepare-<pid>/rows/... ──► TARGET/rows/..., and at last the manifest, which names them

Guarantees that the target is always a feed that can be read, whenever this process is killed: the one that was, or the
new one. The next run clears what a killed run left; a directory that is no feed is never touched. Relies on the
target's parent being one file system that knows rename and flock. Where it cannot exchange two names (renameat2), a
kill between two renames leaves no feed at TARGET until the next run.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from squall.engine.errors import UsageError
from squall.pipeline.feed.manifest import MANIFEST_NAME, QUARANTINE_NAME, ROWS_NAME, SOURCES_NAME

#: Folder of a staging directory for what is read before it is cleaned. Format 1 of a feed had one.
LINES_NAME = "lines"
_FOLDERS = (ROWS_NAME, QUARANTINE_NAME, SOURCES_NAME)
_IN_FEED = frozenset({*_FOLDERS, MANIFEST_NAME, LINES_NAME})
#: Names in a staging directory: one beside the target counts as a dead run's only if it holds nothing else.
_OURS = _IN_FEED | {f"{MANIFEST_NAME}.tmp"}
#: Files that an increment adds.
_ADDED = re.compile(r"\d{5}(-\d{4})?-[0-9a-f]{8}\.(parquet|jsonl)")
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def staged(target: Path, overwrite: bool) -> Iterator[Path]:
    """Make a directory beside `target` whose content becomes part of it if the block succeeds, and is removed
    otherwise. Where there is a feed already, `overwrite` replaces it; else the files join it, and the manifest of the
    staging directory replaces its. A block that makes no manifest changes nothing."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging, lock = _claim(target)
    except OSError as error:
        raise UsageError(f"feed {target} cannot be written: {error.strerror} ({error.filename})") from error
    try:
        yield staging
        if (staging / MANIFEST_NAME).exists():
            _publish(staging, target, overwrite)
    finally:
        # After a publication, nothing has this name.
        shutil.rmtree(staging, ignore_errors=True)
        os.close(lock)


def siblings(target: Path) -> list[Path]:
    """Directories that runs of prepare hold beside `target`: incomplete new feeds, and old ones not removed yet."""
    name = re.compile(re.escape(target.name) + r"\.(tmp|old)-prepare-\d+")
    if not target.parent.is_dir():
        return []
    found = [path for path in target.parent.iterdir() if name.fullmatch(path.name) and path.is_dir()]
    return sorted(path for path in found if _OURS.issuperset(os.listdir(path)))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait for the lock of a folder, and hold it meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check_target(target: Path) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise UsageError(f"feed {target} exists and is no directory")
    try:
        names = set(os.listdir(target))
    except OSError as error:
        raise UsageError(f"feed {target} cannot be read: {error.strerror}") from error
    if not names:
        return
    if MANIFEST_NAME not in names:
        raise UsageError(f"{target} holds something other than a feed (no {MANIFEST_NAME}); choose another directory")
    strangers = sorted(names - _IN_FEED)
    if strangers:
        raise UsageError(f"feed {target} also holds {strangers[0]!r}, which prepare did not write; it is not changed")


def _claim(target: Path) -> tuple[Path, int]:
    """Make a staging directory. Returns it and its lock's descriptor: a dead run's directory is not locked."""
    with _locked(target.parent):
        for leftover in siblings(target):
            _clear(leftover, target)
        _check_target(target)
        staging = target.with_name(f"{target.name}.tmp-prepare-{os.getpid()}")
        staging.mkdir()
        lock = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return staging, lock


def _clear(leftover: Path, target: Path) -> None:
    lock = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if leftover.name.startswith(f"{target.name}.old-") and not target.exists():
            # A run was killed between the two renames of its publication: this is the last complete feed.
            leftover.rename(target)
        else:
            shutil.rmtree(leftover)
    except BlockingIOError:
        raise UsageError(f"feed {target} is in use: another squall prepare is writing it ({leftover.name})") from None
    finally:
        os.close(lock)


def _publish(staging: Path, target: Path, overwrite: bool) -> None:
    with _locked(target.parent):
        # Minutes may have passed since the first check.
        _check_target(target)
        try:
            if not (target / MANIFEST_NAME).exists():
                staging.rename(target)
            elif overwrite:
                _replace(staging, target)
            else:
                _join(staging, target)
        except OSError as error:
            raise UsageError(f"feed {target} cannot be replaced: {error.strerror}") from error


def _replace(staging: Path, target: Path) -> None:
    """Put a feed in another's place. What was there is removed."""
    if _exchanged(staging, target):
        shutil.rmtree(staging)
        return
    old = target.with_name(f"{target.name}.old-prepare-{os.getpid()}")
    target.rename(old)
    try:
        staging.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two directories change places, at once; False if the system cannot."""
    try:
        exchange = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    names = [_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other)]
    return bool(exchange(*names, ctypes.c_uint(_RENAME_EXCHANGE)) == 0)


def _join(staging: Path, target: Path) -> None:
    """Add the files of an increment to a feed."""
    for folder in _FOLDERS:
        if (staging / folder).is_dir():
            (target / folder).mkdir(exist_ok=True)
            for path in (staging / folder).iterdir():
                path.rename(target / folder / path.name)
    (staging / MANIFEST_NAME).rename(target / MANIFEST_NAME)


def clear_orphans(target: Path, named: set[str]) -> None:
    """Remove files that a killed run moved into a feed, and that its manifest does not name."""
    for folder in _FOLDERS:
        for path in (target / folder).glob("*"):
            if _ADDED.fullmatch(path.name) and f"{folder}/{path.name}" not in named:
                path.unlink()
