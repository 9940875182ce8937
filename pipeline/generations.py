"""Which file of a rotated log is which: what was at PATH one after the other, and the files that hold it now.

A *generation* is what a writer wrote at PATH between two rotations. Its file keeps its inode when it is renamed and its
content when it is copied; names only say in which order those come that were never seen at PATH.

Guarantees: a file is taken for that of a known generation only if it begins with all that is known of that one's first
4 KiB and is not shorter than what was read, and it is told from another one that begins alike by its inode. Every other
file becomes a generation of its own, so nothing is passed over. Relies on: two logs that differ do so in their first
4 KiB, or were renamed. Thread: the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from squall.pipeline.rotation import BEGINNING_BYTES, LogFile


@dataclass(eq=False)
class Generation:
    inodes: tuple[int, ...]
    """Of its file, and of copies of it."""
    beginning: bytes
    read: int = 0
    """So many bytes of it were read."""
    end: int = 0
    """If it was left: so many were read in any life."""
    is_left: bool = False
    """Whether those after it are read; lines that come to it nevertheless are read, too."""
    file: LogFile | None = None
    """None if there is none at the moment, or it is empty."""
    busy_ns: int = 0
    """When it had last grown, or was the newest."""
    missing_ns: int | None = None
    """Since when there is no file."""

    def fits(self, file: LogFile) -> bool:
        return file.size >= self.read and file.beginning.startswith(self.beginning)

    def may_become(self, file: LogFile) -> bool:
        """Whether a copy of it that is not complete yet looks so."""
        return self.beginning.startswith(file.beginning) or (
            file.size < self.read and file.beginning.startswith(self.beginning)
        )


def recognise(generations: Sequence[Generation], files: Iterable[LogFile], path: Path) -> list[LogFile]:
    """Set `file` of each generation, and give the files that are of none, in their order."""
    found: dict[int, list[LogFile]] = {}
    strangers = []
    for file in files:
        own = _longest(one for one in generations if file.inode in one.inodes and one.fits(file))
        if own is None:
            strangers.append(file)
        else:
            found.setdefault(id(own), []).append(file)
    unknown = []
    for file in strangers:
        own = _longest(one for one in generations if one.fits(file) and _may_hold(file, found.get(id(one), []), path))
        if own is None:
            unknown.append(file)
        else:
            found.setdefault(id(own), []).append(file)
    for one in generations:
        mine = found.get(id(one), [])
        unknown += _choose(one, mine, path)
    return unknown


def is_copy(file: LogFile, newest: LogFile) -> bool:
    """Whether a file may be a copy of the one at PATH, which was not cut yet."""
    return file.size <= newest.size and newest.beginning.startswith(file.beginning)


def _longest(generations: Iterable[Generation]) -> Generation | None:
    return max(generations, key=lambda one: len(one.beginning), default=None)


def _may_hold(file: LogFile, others: Sequence[LogFile], path: Path) -> bool:
    """Whether a file of another inode may be that of a generation, or a copy, given the files which are. What is at
    PATH is no copy. Only it is copied; but one that is alike for 4 KiB is taken for a copy of any."""
    if not others:
        return True
    return file.path != path and any(
        other.path == path or (len(file.beginning) == BEGINNING_BYTES and file.beginning == other.beginning)
        for other in others
    )


def _choose(one: Generation, mine: list[LogFile], path: Path) -> list[LogFile]:
    """Set the file of a generation out of its copies; gives what is none. As long as it was not cut, what is at PATH
    begins with all that was copied, and is the one that grows."""
    newest = next((file for file in mine if file.path == path), None)
    copies = [file for file in mine if file is not newest]
    is_cut = newest is not None and not all(is_copy(copy, newest) for copy in copies)
    if newest is None or is_cut:
        one.file = max(copies, key=lambda copy: copy.size, default=None)
    else:
        one.file = newest
    if one.file is not None:
        one.inodes = tuple(file.inode for file in mine if not (is_cut and file is newest))
        one.beginning = one.file.beginning
    return [newest] if newest is not None and is_cut else []
