"""Puts a complete directory in another's place, or leaves everything as it was.

Guarantees that the target is never a half-written feed, whenever this process is killed: all is written to
TARGET.tmp-prepare-<pid> beside it, which is renamed when complete. The next run clears what a killed run left; a
directory that is no feed is never touched. Relies on the target's parent being one file system that knows
rename and flock.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from squall.engine.errors import UsageError
from squall.pipeline.feed import LINES_NAME, MANIFEST_NAME, QUARANTINE_NAME, load_manifest

#: Names in a feed: a directory beside the target counts as a dead run's only if it holds nothing else.
_OURS = frozenset({LINES_NAME, QUARANTINE_NAME, MANIFEST_NAME, f"{MANIFEST_NAME}.tmp"})


@contextmanager
def staged(target: Path, overwrite: bool) -> Iterator[Path]:
    """Make a directory beside `target` that replaces it if the block succeeds, and is removed otherwise."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging, lock = _claim(target, overwrite)
    except OSError as error:
        raise UsageError(f"feed {target} cannot be written: {error.strerror} ({error.filename})") from error
    try:
        yield staging
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


def _check_target(target: Path, overwrite: bool) -> None:
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
    strangers = sorted(names - {MANIFEST_NAME, LINES_NAME, QUARANTINE_NAME})
    if strangers:
        raise UsageError(f"feed {target} also holds {strangers[0]!r}, which prepare did not write; it is not replaced")
    if not overwrite:
        rows = load_manifest(target).rows
        raise UsageError(f"{target} holds a feed of {rows:,} lines already; --overwrite replaces it")


@contextmanager
def _neighbourhood(target: Path) -> Iterator[None]:
    """Lock the neighbourhood of `target`: one process at a time reads or changes it."""
    parent = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(parent, fcntl.LOCK_EX)
        yield
    finally:
        os.close(parent)


def _claim(target: Path, overwrite: bool) -> tuple[Path, int]:
    """Make a staging directory. Returns it and its lock's descriptor: a dead run's directory is not locked."""
    with _neighbourhood(target):
        for leftover in siblings(target):
            _clear(leftover, target)
        _check_target(target, overwrite)
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
    old = target.with_name(f"{target.name}.old-prepare-{os.getpid()}")
    with _neighbourhood(target):
        # Minutes may have passed since the first check.
        _check_target(target, overwrite)
        try:
            if target.exists():
                target.rename(old)
            staging.rename(target)
        except OSError as error:
            if old.exists() and not target.exists():
                old.rename(target)
            raise UsageError(f"feed {target} cannot be replaced: {error.strerror}") from error
        if old.exists():
            shutil.rmtree(old)
