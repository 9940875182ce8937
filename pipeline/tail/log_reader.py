"""LogReader: the lines of a log that is rotated, in order, each with its number.

Lines are given in *pieces*: bytes of one generation (`log_files.py`), one after the other. A line's number consists of
its piece's number and its place in the piece. A piece ends where the next one begins: with the next generation, with
lines that came late to an earlier one, or after a line that has no end.

Guarantees
    * Each line of each generation is given, the generations in the order in which they were at PATH; the next one when
      there is one and this one has not grown for `quiet_secs`. Late lines are given as soon as they are seen.
    * A file that is not read to its end is held open: removed or compressed, it is read nevertheless. A file that was
      seen and went before it was read to its end is reported.
    * After a death, the same line has the same number, and no number is given to two lines: a piece is stored before a
      line of it is given, and its end before the next piece.

Thread: the caller's.
"""

from __future__ import annotations

import json
import os
import secrets
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError
from squall.engine.foreign.text import text_of_error
from squall.pipeline.tail.log_files import (
    Generation,
    LogFile,
    is_copy,
    log_file,
    log_files,
    opened,
    read_lines,
    recognise,
)

#: Numbers of a piece: more than any file has bytes.
PIECE = 1 << 40
HELD_FILES = 64
"""Most files that are held open."""


@dataclass
class Piece:
    index: int
    generation: Generation
    start: int
    end: int | None = None
    """None of the last one, which grows."""


class LogReader:
    """What of a log was read, and what comes next."""

    def __init__(
        self, path: Path, state: Path, position: int, quiet_secs: float, report: Callable[[str], None]
    ) -> None:
        """`state`: the file in which it keeps what it must know after a death. `position`: the number of the first line
        to give. ClusterError if the state is damaged."""
        self.path, self.next = path, position
        """`next`: a number up to which all lines were given."""
        self._state, self._report = state, report
        self._quiet_ns = round(quiet_secs * NS_PER_SEC)
        self._generations: list[Generation] = []
        self._pieces: list[Piece] = []
        self._held: dict[int, int] = {}
        """Descriptors by inode."""
        weakref.finalize(self, _close, self._held)
        self._doubtful: dict[int, tuple[int, int]] = {}
        """Of files by inode that may become copies: the size, and since when it is so."""
        self._resumes = False
        """Whether the last piece may have been given up to anywhere in an earlier life."""
        self._saved = ""
        self.life = self._load()

    def look(self, now_ns: int, stored: int) -> tuple[int, list[bytes]]:
        """The number of the next line, and the lines; none if there are none at the moment. Below `stored` no line will
        be asked for. OSError if something cannot be read or stored: then look again."""
        self._sight(now_ns)
        self._forget(now_ns, stored)
        self._save()
        for piece in self._pieces:
            if piece.end is not None and self.next < piece.index * PIECE + piece.end - piece.start:
                return self._again(piece, piece.end, now_ns)
        if self._resumes:
            last = self._pieces[-1]
            if last.generation.file is None and not self._is_quiet(last.generation, now_ns):
                return self.next, []
            lines = self._lines_of(last.generation, to_end=False)
            self._resumes = bool(lines)
            if lines:
                return self._give(last.generation, lines)
        for one in self._generations:
            is_newest = one is self._generations[-1]
            is_quiet = not is_newest and self._is_quiet(one, now_ns)
            if lines := self._lines_of(one, to_end=is_quiet):
                return self._give(one, lines)
            if one.is_left:
                continue
            if one.file is None and self._is_quiet(one, now_ns):
                self._miss(one)
            elif is_newest or not is_quiet:
                break
            one.is_left = True
            if self._pieces and self._pieces[-1].generation is one:
                self._end_piece()
        return self.next, []

    def close(self) -> None:
        _close(self._held)

    # Which files there are.

    def _sight(self, now_ns: int) -> None:
        files = log_files(self.path)
        inodes = {file.inode for file in files}
        held = [log_file(Path(f"/proc/self/fd/{fd}")) for fd in self._held.values()]
        files = [*(file for file in held if file and file.inode not in inodes), *files]
        before = {id(one): one.file for one in self._generations}
        self._begin(recognise(self._generations, files, self.path), now_ns)
        for one in self._generations:
            known = before.get(id(one))
            has_changed = known and (one.file is None or one.file.size != known.size)
            if has_changed or (one is self._generations[-1] and one.file) or id(one) not in before or not one.busy_ns:
                one.busy_ns = now_ns
        self._hold()

    def _begin(self, unknown: list[LogFile], now_ns: int) -> None:
        """Make generations of files that belong to none: before the newest, but for what is at PATH."""
        current = [one for one in self._generations[-1:] if one.file and one.file.path == self.path]
        for file in unknown:
            if file.path == self.path:
                copies = [other.inode for other in unknown if other is not file and is_copy(other, file)]
                current = [Generation((file.inode, *copies), file.beginning, file=file)]
                self._generations += current
        known, self._doubtful = self._doubtful, {}
        for file in unknown:
            if current and file.inode in current[0].inodes:
                continue
            if any(one.may_become(file) for one in self._generations):
                # Perhaps a copy that is being made; a file that does not grow is none.
                size, since_ns = known.get(file.inode, (-1, now_ns))
                since_ns = since_ns if size == file.size else now_ns
                self._doubtful[file.inode] = file.size, since_ns
                if now_ns - since_ns <= self._quiet_ns:
                    continue
            place = len(self._generations) - len(current)
            self._generations.insert(place, Generation((file.inode,), file.beginning, file=file))

    def _hold(self) -> None:
        """Hold the files open that are not read to their end, so that they can be read when their names are gone."""
        wanted = {
            one.file.inode: one.file.path
            for one in self._generations
            if one.file and (not one.is_left or one.read < one.file.size)
        }
        for inode in self._held.keys() - wanted.keys():
            os.close(self._held.pop(inode))
        for inode in wanted.keys() - self._held.keys():
            if len(self._held) < HELD_FILES:
                with opened(wanted[inode]) as fd:
                    if os.fstat(fd).st_ino == inode:
                        self._held[inode] = os.dup(fd)

    def _is_quiet(self, one: Generation, now_ns: int) -> bool:
        return now_ns - one.busy_ns > self._quiet_ns

    # Which lines come next.

    def _lines_of(self, one: Generation, *, to_end: bool) -> list[bytes]:
        return read_lines(one.file, one.read, None, to_end=to_end) if one.file and one.read < one.file.size else []

    def _give(self, one: Generation, lines: list[bytes]) -> tuple[int, list[bytes]]:
        """Count lines as given. OSError if it cannot be stored which they are; then they are not given."""
        last = self._pieces[-1] if self._pieces else None
        pieces, size = list(self._pieces), sum(map(len, lines))
        if last is None or last.generation is not one or last.end is not None:
            self._end_piece()
            last = Piece(last.index + 1 if last else 0, one, one.read)
            self._pieces.append(last)
        if not lines[-1].endswith(b"\n"):
            # It may go on. In another life it must end there again.
            self._pieces[-1] = Piece(last.index, one, last.start, one.read + size)
        number = last.index * PIECE + one.read - last.start
        one.read += size
        try:
            self._save()
        except OSError:
            self._pieces = pieces
            one.read -= size
            raise
        self.next = number + size
        return number, lines

    def _end_piece(self) -> None:
        """From here on, lines of the last piece's generation are in another one."""
        if self._pieces and self._pieces[-1].end is None:
            last = self._pieces[-1]
            self._pieces[-1] = Piece(last.index, last.generation, last.start, last.generation.read)

    def _again(self, piece: Piece, end: int, now_ns: int) -> tuple[int, list[bytes]]:
        """Lines of a piece that was given in an earlier life."""
        number = max(self.next, piece.index * PIECE)
        offset = piece.start + number - piece.index * PIECE
        one, lines = piece.generation, list[bytes]()
        if one.file is not None:
            lines = read_lines(one.file, offset, end - offset, to_end=True)
            self.next = number + sum(map(len, lines))
        elif self._is_quiet(one, now_ns):
            self._report(
                f"the file of {end - offset} bytes that were read before is gone, before all of them were acked; the "
                "lines that were not are lost"
            )
            self.next = number + end - offset
        return number, lines

    def _miss(self, one: Generation) -> None:
        line = one.beginning.partition(b"\n")[0][:80].decode("utf-8", "replace")
        what = (
            f"that was read up to its byte {one.read} is gone, perhaps before all of it was read"
            if one.read
            else "of which nothing was read is gone: its lines are lost"
        )
        self._report(f"the file {what}; it was removed, compressed or cut; it began with {line!r}")

    # What outlives a death.

    def _forget(self, now_ns: int, stored: int) -> None:
        while len(self._pieces) > 1 and self._pieces[1].index * PIECE <= stored:
            del self._pieces[0]
        needed = {id(piece.generation) for piece in self._pieces}
        self._generations = [
            one for one in self._generations
            if one.file or not one.is_left or id(one) in needed or not self._is_quiet(one, now_ns)
        ]

    def _save(self) -> None:
        """Store what changed. OSError if it cannot be stored."""
        places = {id(one): place for place, one in enumerate(self._generations)}
        grows = self._pieces[-1] if self._pieces and self._pieces[-1].end is None else None
        state = json.dumps({
            "life": self.life,
            "files": [
                # How far the last piece was read is told by the position, so that it is not stored at each look.
                (one.inodes, one.beginning.decode("latin-1"),
                 grows.start if grows and grows.generation is one else one.read, one.is_left)
                for one in self._generations
            ],
            "pieces": [(piece.index, places[id(piece.generation)], piece.start, piece.end) for piece in self._pieces],
        })
        if state != self._saved:
            new = self._state.with_name(self._state.name + ".new")
            new.write_text(state)
            os.replace(new, self._state)
            self._saved = state

    def _load(self) -> int:
        """The life, which is the same until one begins anew."""
        try:
            data: dict[str, Any] = json.loads(self._state.read_bytes())
            self._generations = [
                Generation(tuple(map(int, inodes)), text.encode("latin-1"), int(read), bool(left))
                for inodes, text, read, left in data["files"]
            ]
            self._pieces = [
                Piece(int(index), self._generations[place], int(start), None if end is None else int(end))
                for index, place, start, end in data["pieces"]
            ]
            if self._pieces and self._pieces[-1].end is None:
                last, self._resumes = self._pieces[-1], True
                last.generation.read = last.start + max(0, self.next - last.index * PIECE)
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
