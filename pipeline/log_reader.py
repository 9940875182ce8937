"""LogReader: the lines of a log that is rotated, in order.

A *generation* is what a writer wrote at PATH between two rotations. Its file keeps its inode when it is renamed, and
its content when it is copied and PATH is cut; names only say in which order files come that were never seen at PATH.

Guarantees
    * Each line of each generation is given, the generations in the order in which they were at PATH; the next one when
      there is one and this one has not grown for `quiet_secs`. Late lines are given as soon as they are seen.
    * A file is taken for a known generation only if it begins with all that is known of the generation's first 4 KiB
      and is not shorter than what was read of it. Every other file is a generation of its own.
    * A file that is not read to its end is held open: removed or compressed, it is read nevertheless. A file that was
      seen and went before it was read to its end is reported.
    * After a death, a line has the same place in the same generation: generations are stored before a line is given.

Two kinds of files keep what must be known after a death: STATE lists the generations, STATE-<life> says up to where
all lines of one are acked. Thread: the caller's.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from squall.engine.api.acked_prefix import PositionFile
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError
from squall.engine.foreign.files import replace_file, sync_directories
from squall.engine.foreign.text import text_of_error

BEGINNING_BYTES = 4096
#: Bytes read at a time; a longer line is cut into parts of this size.
READ_BYTES = 1 << 20
_DATE_DIGITS = 8
_ROTATED = re.compile(r"[.-](\d[\d_T:.-]*)", re.ASCII)
HELD_FILES = 64
"""Most files that are held open."""


class LogFile(NamedTuple):
    """A file that is not empty."""

    path: Path
    inode: int
    size: int
    beginning: bytes
    """Its first 4 KiB, or all of it."""


@dataclass(eq=False)
class Generation:
    life: int
    """Its name: random, and never another's."""
    inode: int
    """0 after its file was cut."""
    beginning: bytes
    end: int | None = None
    """How long it was when the next one was begun; lines that come to it nevertheless are read, too."""
    torn: list[int] = field(default_factory=list)
    """Where lines without an end were taken for whole."""
    read: int = 0
    """The bytes that were given; whoever gives a line raises it."""
    acked: int = 0
    """All lines below are acked."""
    file: LogFile | None = None
    """None while the file is missing or empty."""
    held: int | None = None
    """A descriptor of the file."""
    size: int = -1
    since_ns: int | None = None
    """Since when the file has this size, and is not the newest."""

    @property
    def is_left(self) -> bool:
        return self.end is not None and self.read >= self.end

    def fits(self, file: LogFile) -> bool:
        return file.size >= self.read and file.beginning.startswith(self.beginning)

    def may_become(self, file: LogFile) -> bool:
        """Return True if the file may be a copy of it that is not complete yet."""
        return self.beginning.startswith(file.beginning) or (
            file.size < self.read and file.beginning.startswith(self.beginning)
        )

    def meet(self, file: LogFile) -> None:
        self.file, self.inode, self.beginning = file, file.inode, file.beginning


#: What is stored of a generation: its first five attributes.
_Stored = tuple[int, int, bytes, int | None, list[int]]


class LogReader:
    """Knows what of a log was read, and what comes next."""

    def __init__(self, path: Path, state: Path, quiet_secs: float, report: Callable[[str], None]) -> None:
        """ClusterError if the state is damaged."""
        self.path = path
        self._state, self._report = state, report
        self._quiet_ns = round(quiet_secs * NS_PER_SEC)
        self._doubtful: dict[int, tuple[int, int]] = {}
        """Of files by inode that may become copies: the size, and since when it is so."""
        self._saved = b""
        self._generations = self._load()
        weakref.finalize(self, _release, self._generations)

    def look(self, now_ns: int) -> tuple[Generation, list[bytes]] | None:
        """Return the next lines and their generation. OSError if something cannot be read or stored: then look again.
        """
        self._sight(now_ns)
        self._save()
        for one in self._generations:
            is_newest = one is self._generations[-1]
            is_quiet = self._is_quiet(one, now_ns)
            if one.file and one.read < one.file.size:
                end = min((place for place in one.torn if place > one.read), default=one.file.size)
                lines = read_lines(one.file, one.read, end, to_end=is_quiet or end in one.torn)
                if lines and is_quiet and not lines[-1].endswith(b"\n"):
                    # It may go on. In another life it must end there again.
                    one.torn = [*(place for place in one.torn if place > one.acked), one.read + sum(map(len, lines))]
                    self._save()
                if lines:
                    return one, lines
            if one.is_left:
                one.end = one.read
                continue
            if not is_quiet or (is_newest and one.file):
                break
            if one.file is None:
                self._miss(one)
            one.end = one.read
        return None

    @property
    def unread(self) -> list[Generation]:
        """The generations of which lines may come."""
        return [one for one in self._generations if not one.is_left]

    def store(self, unacked: Iterable[tuple[int, int]]) -> None:
        """Store up to where all lines are acked. `unacked`: the life and place of the lines that are not, in the order
        in which they were given. OSError if that fails."""
        rising = [one for one in self._generations if one.acked < one.read]
        first: dict[int, int] = {}
        for life, place in unacked:
            first.setdefault(life, place)
            if len(first) == len(rising):
                break
        for one in rising:
            acked = first.get(one.life, one.read)
            if acked != one.acked:
                self._position(one).store(acked)
                one.acked = acked

    def close(self) -> None:
        _release(self._generations)

    # Which files there are.

    def _sight(self, now_ns: int) -> None:
        files = log_files(self.path)
        inodes = {file.inode for file in files}
        held = [log_file(Path(f"/proc/self/fd/{one.held}")) for one in self._generations if one.held is not None]
        unknown = recognise(
            self._generations, [*(file for file in held if file and file.inode not in inodes), *files], self.path
        )
        self._begin(unknown, now_ns)
        for one in self._generations:
            size = one.file.size if one.file else 0
            if size != one.size or one.since_ns is None or (one is self._generations[-1] and one.file):
                one.size, one.since_ns = size, now_ns
        self._hold()
        self._forget(now_ns)

    def _begin(self, unknown: list[LogFile], now_ns: int) -> None:
        """Make generations of files that belong to none: before the newest, but for what is at PATH."""
        newest = next((file for file in unknown if file.path == self.path), None)
        if newest is not None:
            self._generations.append(Generation(secrets.randbits(62), newest.inode, newest.beginning, file=newest))
        known, self._doubtful = self._doubtful, {}
        for file in unknown:
            is_copy = newest and file.size <= newest.size and newest.beginning.startswith(file.beginning)
            if is_copy:
                continue
            if any(one.may_become(file) for one in self._generations):
                # Perhaps a copy that is being made; a file that does not grow is not a copy.
                size, since_ns = known.get(file.inode, (-1, now_ns))
                since_ns = since_ns if size == file.size else now_ns
                self._doubtful[file.inode] = file.size, since_ns
                if now_ns - since_ns <= self._quiet_ns:
                    continue
            last = self._generations[-1].file if self._generations else None
            place = len(self._generations) - bool(last and last.path == self.path)
            made = Generation(secrets.randbits(62), file.inode, file.beginning, file=file)
            self._generations.insert(place, made)

    def _hold(self) -> None:
        """Hold files open until they are read to their end, so that they can be read when their names are gone."""
        done: list[int] = []
        for one in self._generations:
            wanted = one.file if not one.is_left or (one.file and one.read < one.file.size) else None
            if one.held is not None and (wanted is None or os.fstat(one.held).st_ino != one.inode):
                done.append(one.held)
                one.held = None
            if wanted and one.held is None and sum(other.held is not None for other in self._generations) < HELD_FILES:
                with contextlib.suppress(FileNotFoundError):
                    one.held = os.open(wanted.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        # Not before: a file without a name may be another generation's now.
        for fd in done:
            os.close(fd)

    def _is_quiet(self, one: Generation, now_ns: int) -> bool:
        return one.since_ns is not None and now_ns - one.since_ns > self._quiet_ns

    def _miss(self, one: Generation) -> None:
        line = one.beginning.partition(b"\n")[0][:80].decode("utf-8", "replace")
        self._report(f"a file is gone (cut, compressed, removed), with only {one.read:,} bytes read; it began {line!r}")

    # What outlives a death.

    def _position(self, one: Generation) -> PositionFile:
        return PositionFile(f"{self._state}-{one.life:x}")

    def _forget(self, now_ns: int) -> None:
        """Forget what is read, acked and gone."""
        for one in list(self._generations):
            if one.file is None and one.is_left and one.acked == one.read and self._is_quiet(one, now_ns):
                self._generations.remove(one)
                Path(self._position(one).path).unlink(missing_ok=True)

    def _save(self) -> None:
        """Store what changed. OSError if it cannot be stored."""
        state = msgspec.json.encode(
            [(one.life, one.inode, one.beginning, one.end, one.torn) for one in self._generations]
        )
        if state != self._saved:
            # Another name of a generation would give its lines other identities.
            replace_file(self._state, state)
            sync_directories(self._state.parent)
            self._saved = state

    def _load(self) -> list[Generation]:
        try:
            stored = msgspec.json.decode(self._state.read_bytes(), type=list[_Stored])
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"{self._state} does not tell which files of {self.path} were read: {text_of_error(error)}; to begin "
                "anew, submit it with --fresh"
            ) from error
        generations = [Generation(*one) for one in stored]
        for one in generations:
            one.read = one.acked = self._position(one).load()
        return generations


def recognise(generations: list[Generation], files: list[LogFile], path: Path) -> list[LogFile]:
    """Set `file` of each generation, and return the files that belong to none, in their order."""
    for one in generations:
        one.file = None
    strangers: list[LogFile] = []
    unknown: list[LogFile] = []
    for file in files:
        own = _longest(one for one in generations if one.inode == file.inode and not one.file and one.fits(file))
        if own:
            own.meet(file)
        else:
            strangers.append(file)
    for one in generations:
        if one.file is None and any(one.inode == file.inode for file in files):
            one.inode = 0
    for file in strangers:
        own = _longest(one for one in generations if one.fits(file) and _may_hold(one, file, path))
        if own is None:
            unknown.append(file)
        elif own.file is None:
            own.meet(file)
        elif own.file.path == path and file.size > own.file.size:
            # Cut since it was copied: what is at PATH now is another generation.
            unknown.append(own.file)
            own.meet(file)
    return unknown


def _may_hold(one: Generation, file: LogFile, path: Path) -> bool:
    """Return True if the file may hold the generation, or a copy of it. What is at PATH is no copy. Only it is copied;
    but a file that is alike for 4 KiB is taken for a copy of any."""
    if one.file is None:
        return True
    alike = len(file.beginning) == BEGINNING_BYTES and file.beginning == one.file.beginning
    return file.path != path and (one.file.path == path or alike)


def _longest(generations: Iterable[Generation]) -> Generation | None:
    return max(generations, key=lambda one: len(one.beginning), default=None)


def _release(generations: Iterable[Generation]) -> None:
    for one in generations:
        if one.held is not None:
            os.close(one.held)
            one.held = None


def log_files(path: Path) -> list[LogFile]:
    """The files of a log, the oldest first by their names, PATH last. OSError if one cannot be read."""
    rotated = []
    for other in path.parent.iterdir():
        number = _ROTATED.fullmatch(other.name.removeprefix(path.name))
        if number and other.name.startswith(path.name):
            digits = re.sub(r"\D", "", number[1])
            # A date is the older the lower, a number the older the higher.
            age = (0, int(digits)) if len(digits) >= _DATE_DIGITS else (1, -int(digits))
            rotated.append((age, other))
    found = [log_file(one) for one in (*(other for _, other in sorted(rotated)), path)]
    return [*{file.inode: file for file in found if file is not None}.values()]


def log_file(path: Path) -> LogFile | None:
    """None if there is no such file, or it is empty or no file of text. OSError if it cannot be read."""
    with contextlib.suppress(FileNotFoundError), opened(path) as fd:
        status = os.fstat(fd)
        beginning = os.pread(fd, min(status.st_size, BEGINNING_BYTES), 0) if stat.S_ISREG(status.st_mode) else b""
        return LogFile(path, status.st_ino, status.st_size, beginning) if beginning else None
    return None


def read_lines(file: LogFile, offset: int, end: int, *, to_end: bool) -> list[bytes]:
    """Read lines from `offset` to `end` with their ends, a megabyte together; with `to_end` also one that has no end
    yet. Empty if the file is another one by the time that they are read. OSError if it cannot be read."""
    with contextlib.suppress(FileNotFoundError), opened(file.path) as fd:
        limit = min(end - offset, READ_BYTES)
        data = os.pread(fd, limit, offset)
        if os.fstat(fd).st_ino != file.inode or os.pread(fd, len(file.beginning), 0) != file.beginning:
            return []
        *lines, rest = data.split(b"\n")
        ended = [line + b"\n" for line in lines]
        is_line = not ended if len(data) == READ_BYTES else to_end
        return [*ended, rest] if rest and is_line else ended
    return []


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe of such a name would be waited for
    try:
        yield fd
    finally:
        os.close(fd)
