"""Makes a feed, or adds files to one, or leaves everything as it was.

::

    TARGET.tmp-prepare-<pid>/rows/... ──► TARGET/rows/..., and at last the manifest, which names them

Guarantees that the target is always a feed that can be read, whenever this process is killed: the one that was, or the
new one. The next run clears what a killed run left; a directory that is no feed is never touched. Relies on names that
no other run gives to files, and on the target's parent being one file system that knows rename and flock.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from squall.engine.errors import UsageError
from squall.engine.foreign.files import locked
from squall.pipeline.feed.manifest import MANIFEST_NAME, QUARANTINE_NAME, ROWS_NAME, SOURCES_NAME, load_manifest

#: Folder of a staging directory for what is read before it is cleaned.
LINES_NAME = "lines"
_FOLDERS = (ROWS_NAME, QUARANTINE_NAME, SOURCES_NAME)
#: Names in a staging directory: one beside the target counts as a dead run's only if it holds nothing else.
_OURS = frozenset({*_FOLDERS, MANIFEST_NAME, LINES_NAME})
#: Files that an increment adds.
_ADDED = re.compile(r"\d{5}(-\d{4})?-[0-9a-f]{8}\.(parquet|jsonl)")


@contextmanager
def staged(target: Path, overwrite: bool) -> Iterator[Path]:
    """Make a directory beside `target` whose content becomes part of it if the block succeeds, and is removed
    otherwise. Where there is a feed already, the files join it, and the manifest of the staging directory replaces its;
    with `overwrite`, its other files are removed then. A block that makes no manifest changes nothing."""
    staging = target.with_name(f"{target.name}.tmp-prepare-{os.getpid()}")
    with ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with locked(target.parent):
                for leftover in siblings(target):
                    _clear(leftover, target)
                _check_target(target)
                staging.mkdir()
                # A dead run's directory is not locked.
                stack.enter_context(locked(staging))
        except OSError as error:
            raise UsageError(f"feed {target} cannot be written: {error.strerror} ({error.filename})") from error
        # After a publication, nothing has this name.
        stack.callback(shutil.rmtree, staging, ignore_errors=True)
        yield staging
        if (staging / MANIFEST_NAME).exists():
            _publish(staging, target)
            if overwrite:
                clear_orphans(target, load_manifest(target).file_names)


def siblings(target: Path) -> list[Path]:
    """Directories that runs of prepare hold beside `target`, with what is not in a feed yet."""
    name = re.compile(re.escape(target.name) + r"\.tmp-prepare-\d+")
    if not target.parent.is_dir():
        return []
    found = [path for path in target.parent.iterdir() if name.fullmatch(path.name) and path.is_dir()]
    return sorted(path for path in found if _OURS.issuperset(os.listdir(path)))


def _check_target(target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise UsageError(f"feed {target} exists and is no directory")
    if target.exists() and not (target / MANIFEST_NAME).exists() and any(target.iterdir()):
        raise UsageError(f"{target} holds something other than a feed (no {MANIFEST_NAME}); choose another directory")


def _clear(leftover: Path, target: Path) -> None:
    try:
        with locked(leftover, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(leftover)
    except BlockingIOError:
        raise UsageError(f"feed {target} is in use: another squall prepare is writing it ({leftover.name})") from None


def _publish(staging: Path, target: Path) -> None:
    with locked(target.parent):
        # Minutes may have passed since the first check.
        _check_target(target)
        try:
            if not (target / MANIFEST_NAME).exists():
                staging.rename(target)
                return
            for folder in _FOLDERS:
                (target / folder).mkdir(exist_ok=True)
                for path in (staging / folder).glob("*"):
                    path.rename(target / folder / path.name)
            (staging / MANIFEST_NAME).rename(target / MANIFEST_NAME)
        except OSError as error:
            raise UsageError(f"feed {target} cannot be written: {error.strerror}") from error


def clear_orphans(target: Path, named: set[str]) -> None:
    """Remove files that a killed run moved into a feed, and that its manifest does not name."""
    for folder in _FOLDERS:
        for path in (target / folder).glob("*"):
            if _ADDED.fullmatch(path.name) and f"{folder}/{path.name}" not in named:
                path.unlink()
