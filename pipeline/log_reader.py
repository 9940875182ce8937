"""LogReader: the lines of a log that is rotated, in order, each with its number: the bytes of the log before it.

Guarantees
    * Each line of each generation (`pipeline.generations`) is given, the generations in the order in which they were at
      PATH; the next one when there is one and this one has not grown for `quiet_secs`. Lines that come to an earlier
      one later are given as soon as they are seen.
    * A file that is not read to its end is held open: removed or compressed, it is read nevertheless.
    * What cannot be read any more is reported: a file that went while none held it, or was cut before it was read.
    * After a death, the same number is given to the same line. What was begun is stored before a line of it is given:
      *segments*, each so many bytes of one generation, one after the other.

Thread: the caller's.
"""

from __future__ import annotations

import json
import os
import secrets
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError
from squall.engine.foreign.text import text_of_error
from squall.pipeline.generations import Generation, is_copy, recognise
from squall.pipeline.rotation import (
    LogFile,
    beginning_of_compressed,
    compressed_files,
    held_file,
    hold,
    log_files,
    read_lines,
)

#: A generation whose file is gone is known for so long, for the sake of its compressed file.
FORGET_NS = 60 * NS_PER_SEC
#: So many files are held open at most.
HELD_FILES = 64


class Segment(NamedTuple):
    first: int
    """The number of its first line; those below that of the next segment are in this one."""
    generation: Generation
    offset: int
    """Where the first line is in the file."""


class LogReader:
    """What of a log was read, and what comes next."""

    def __init__(
        self, path: Path, state: Path, position: int, quiet_secs: float, report: Callable[[str], None]
    ) -> None:
        """`state`: the file in which it keeps what it must know after a death. `position`: the number of the first line
        to give. ClusterError if the state is damaged."""
        self.path, self.next = path, position
        """`next` is the number of the next line."""
        self._state, self._report = state, report
        self._quiet_ns = round(quiet_secs * NS_PER_SEC)
        self._generations: list[Generation] = []
        self._segments: list[Segment] = []
        self._compressed: set[int] | None = None
        """Inodes of compressed files that are done; None before the first look of the first life."""
        self._held: dict[int, int] = {}
        """Descriptors by inode."""
        weakref.finalize(self, _close, self._held)
        self._doubtful: dict[int, tuple[int, int]] = {}
        """Of files by inode that may become copies, or of new compressed ones: the size, and since when it is so."""
        self._seen = self._doubtful
        """The same of the look before."""
        self._resumed: Generation | None = None
        """That of the last segment, until all is given that may have been given in an earlier life."""
        self._resumed_size: int | None = None
        """So much of it there was when it was first seen in this life."""
        self._saved: object = None
        self.life = self._load()

    def look(self, now_ns: int, stored: int) -> list[bytes]:
        """The next lines, those from number `next` on before this call; empty if there are none at the moment. Below
        `stored` no line will be asked for. OSError if something cannot be read or stored: then look again."""
        self._sight(now_ns)
        self._forget(now_ns, stored)
        self._save()
        following = next((one for one in self._segments if one.first > self.next), None)
        if following:
            return self._again(now_ns, following)
        if self._resumed:
            return self._resume(self._resumed, now_ns)
        return self._advance(now_ns)

    def close(self) -> None:
        _close(self._held)

    # Which files there are.

    def _sight(self, now_ns: int) -> None:
        files = log_files(self.path)
        self._doubtful, self._seen = {}, self._doubtful
        inodes = {file.inode for file in files}
        held = [file for fd in self._held.values() if (file := held_file(fd)) and file.inode not in inodes]
        sizes = {id(one): one.file.size if one.file else None for one in self._generations}
        self._begin(recognise(self._generations, [*held, *files], self.path), now_ns)
        for one in self._generations:
            if one.file is None:
                one.missing_ns = now_ns if one.missing_ns is None else one.missing_ns
            else:
                one.missing_ns = None
                if one is self._generations[-1] or sizes.get(id(one)) != one.file.size:
                    one.busy_ns = now_ns
        self._hold()
        self._look_at_compressed(now_ns)

    def _begin(self, unknown: list[LogFile], now_ns: int) -> None:
        """Make generations of files that are of none: before the newest, but for what is at PATH."""
        current = [one for one in self._generations[-1:] if one.file and one.file.path == self.path]
        for file in unknown:
            if file.path == self.path:
                copies = [other.inode for other in unknown if other is not file and is_copy(other, file)]
                current = [Generation((file.inode, *copies), file.beginning, file=file)]
                self._generations += current
        for file in unknown:
            if not (current and file.inode in current[0].inodes) and not self._is_doubtful(file, now_ns):
                place = len(self._generations) - len(current)
                self._generations.insert(place, Generation((file.inode,), file.beginning, file=file))

    def _is_doubtful(self, file: LogFile, now_ns: int) -> bool:
        """Whether it may be a copy that is being made. One that does not grow is none."""
        if not any(one.may_become(file) for one in self._generations):
            return False
        return not self._is_settled(file.inode, file.size, now_ns)

    def _is_settled(self, inode: int, size: int, now_ns: int) -> bool:
        known_size, since_ns = self._seen.get(inode, (-1, now_ns))
        if known_size != size:
            since_ns = now_ns
        self._doubtful[inode] = size, since_ns
        return now_ns - since_ns > self._quiet_ns

    def _hold(self) -> None:
        wanted = {
            one.file.inode: one.file
            for one in self._generations
            if one.file and (not one.is_left or one.read < one.file.size)
        }
        for inode in self._held.keys() - wanted.keys():
            os.close(self._held.pop(inode))
        for inode, file in wanted.items():
            if inode not in self._held and len(self._held) < HELD_FILES and (fd := hold(file)) is not None:
                self._held[inode] = fd

    def _look_at_compressed(self, now_ns: int) -> None:
        """Report each compressed file that is new and was none of those that are known."""
        files = compressed_files(self.path)
        if self._compressed is None:
            self._compressed = set(files)
        self._compressed &= files.keys()
        for inode in files.keys() - self._compressed:
            if not self._is_settled(inode, files[inode].stat().st_size, now_ns):
                continue
            self._compressed.add(inode)
            beginning = beginning_of_compressed(files[inode])
            if beginning and not any(beginning.startswith(one.beginning) for one in self._generations):
                self._report(f"{files[inode]} was compressed before any of it was read: its lines are lost")

    # Which lines come next.

    def _advance(self, now_ns: int) -> list[bytes]:
        for one in self._generations:
            is_newest = one is self._generations[-1]
            is_quiet = not is_newest and now_ns - one.busy_ns > self._quiet_ns
            if one.file is None:
                if one.missing_ns == now_ns and not one.is_left:
                    return []  # it may have got another name during the look
                self._miss(one, now_ns)
                continue
            if one.read < one.file.size and (lines := read_lines(one.file, one.read, None, to_end=is_quiet)):
                self._give(one, lines)
                return lines
            if not one.is_left:
                # Nobody writes to one that was rotated twice.
                is_old = is_quiet or one not in self._generations[-2:]
                if is_newest or not is_old or one.read < one.file.size:
                    return []
                one.is_left = True
        return []

    def _give(self, one: Generation, lines: list[bytes]) -> None:
        """Count lines as given. OSError if it cannot be stored which they are; then they are not given."""
        count = sum(map(len, lines))
        known = self._segments
        if not known or known[-1].generation is not one:
            self._segments = [*self._segments, Segment(self.next, one, one.read)]
        if not lines[-1].endswith(b"\n"):
            # It may go on. In another life it must end there again.
            self._segments = [*self._segments, Segment(self.next + count, one, one.read + count)]
        one.read += count
        one.end = max(one.end, one.read)
        try:
            self._save()
        except OSError:
            self._segments = known
            one.read -= count
            raise
        self.next += count

    def _again(self, now_ns: int, following: Segment) -> list[bytes]:
        """Lines that were given in an earlier life, up to the next segment."""
        first, one, offset = next((one for one in reversed(self._segments) if one.first <= self.next), following)
        if one.file is not None:
            lines = read_lines(one.file, offset + self.next - first, following.first - self.next, to_end=True)
            self.next += sum(map(len, lines))
            return lines
        if one.missing_ns is not None and now_ns - one.missing_ns > self._quiet_ns:
            self._report(
                f"the file of the lines with the numbers {self.next} to {following.first} is gone, before all of them "
                f"were acked; those that were not are lost"
            )
            self.next = following.first
        return []

    def _resume(self, one: Generation, now_ns: int) -> list[bytes]:
        """Lines of the last segment of an earlier life, however many of them were given in it."""
        if one.file is not None:
            if self._resumed_size is None:
                self._resumed_size = one.file.size
            if one.read < self._resumed_size and (lines := read_lines(one.file, one.read, None, to_end=False)):
                self._give(one, lines)
                return lines
            self._resumed = None
        elif one.is_left and one.read >= one.end:
            self._resumed = None
        else:
            one.is_left = False  # what was read and not acked is not done
            self._miss(one, now_ns)
            if one.is_left:
                # Lines that were given and are lost had numbers that no other line may get.
                self.life = secrets.randbits(63)
                self._resumed = None
        return []

    def _miss(self, one: Generation, now_ns: int) -> None:
        if not one.is_left and one.missing_ns is not None and now_ns - one.missing_ns > self._quiet_ns:
            one.is_left = True
            line = one.beginning.partition(b"\n")[0][:80].decode("utf-8", "replace")
            what = (
                f"that was read up to its byte {one.read} is gone, perhaps before all of it was read"
                if one.read
                else "of which nothing was read is gone: its lines are lost"
            )
            self._report(f"the file {what}; it was removed, compressed or cut; it began with {line!r}")

    # What outlives a death.

    def _forget(self, now_ns: int, stored: int) -> None:
        while len(self._segments) > 1 and self._segments[1].first <= stored:
            del self._segments[0]
        needed = {id(one.generation) for one in self._segments}
        self._generations = [
            one
            for one in self._generations
            if one.missing_ns is None
            or not one.is_left
            or id(one) in needed
            or now_ns - one.missing_ns <= FORGET_NS + self._quiet_ns
        ]

    def _save(self) -> None:
        """Store what changed. OSError if it cannot be stored."""
        _, last, offset = self._segments[-1] if self._segments else (0, None, 0)
        indices = {id(one): index for index, one in enumerate(self._generations)}
        files = [
            # How far the last one was read is told by the position, so that it is not stored at each look.
            (one.inodes, one.beginning, one.end if one is not last or one.is_left else offset, one.is_left)
            for one in self._generations
        ]
        segments = [(first, indices[id(one)], offset) for first, one, offset in self._segments]
        state = self.life, files, segments, sorted(self._compressed or ())
        if state != self._saved:
            data = {
                "life": self.life,
                "files": [[inodes, text.decode("latin-1"), end, left] for inodes, text, end, left in files],
                "segments": segments,
                "compressed": state[3],
            }
            new = self._state.with_name(self._state.name + ".new")
            new.write_text(json.dumps(data))
            os.replace(new, self._state)
            self._saved = state

    def _load(self) -> int:
        """The life, which is the same until one begins anew."""
        try:
            data: dict[str, Any] = json.loads(self._state.read_bytes())
            self._generations = [
                Generation(tuple(map(int, inodes)), text.encode("latin-1"), int(end), int(end), bool(left))
                for inodes, text, end, left in data["files"]
            ]
            self._segments = [
                Segment(int(first), self._generations[index], int(offset)) for first, index, offset in data["segments"]
            ]
            self._compressed = set(map(int, data["compressed"]))
            if self._segments:
                first, last, offset = self._segments[-1]
                last.read = offset + max(0, self.next - first)
                self._resumed = last
            return int(data["life"])
        except FileNotFoundError:
            return secrets.randbits(63)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ClusterError(
                f"{self._state} does not tell which files of {self.path} were read: {text_of_error(error)}; to begin "
                "anew, submit it with --fresh"
            ) from error


def _close(held: dict[int, int]) -> None:
    while held:
        os.close(held.popitem()[1])
