"""Which files of an input a feed holds already, and which are new: what makes prepare incremental.

::

    FEED/sources/<increment>.jsonl   a line for each file that the increment read

Guarantees that a file is new, known, longer, changed or gone, and nothing else: known if its size and time of change
are as when it was read, or if its bytes still have their checksum. A text file is longer if it still begins with the
bytes that were read, and these end with a line; then what follows them is new. A file that could not be read is tried
again when its problem is another one. Relies on names: a file that is renamed is new.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from squall.engine.foreign.text import text_of_error
from squall.pipeline.feed.manifest import Manifest, damaged
from squall.pipeline.read.input_files import PIECE_BYTES, Digested, InputFile, is_compressed


@dataclass(frozen=True)
class SourceFile:
    """A file as an increment read it."""

    path: str
    """Relative to the input; bytes that are not UTF-8 as Python's surrogates."""
    size_bytes: int
    mtime_ns: int
    sha256: str = ""
    """Empty if it could not be read to its end."""
    problem: str = ""
    lines: int = 0
    """The lines of a text file that were read; of a file with a problem, the lines before it."""


@dataclass
class Change:
    """What is different from the sources of a feed."""

    new: list[InputFile] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    """A line about each."""
    vanished: list[str] = field(default_factory=list)
    known: int = 0


def path_in(root: str, file: InputFile) -> str:
    """The path of a file relative to its input, by which increments know it."""
    relative = os.path.relpath(file.location, os.path.abspath(root))
    return os.path.basename(file.location) if relative == "." else relative


def compare(
    root: str, found: Iterable[InputFile], known: Mapping[str, SourceFile], *, may_grow: bool = False
) -> Change:
    """Compare the files of an input with the sources of a feed. Reads those whose time of change is another one.
    `may_grow`: the files are text, so their new lines may be taken alone."""
    change = Change()
    seen = set()
    for file in found:
        path = path_in(root, file)
        seen.add(path)
        before = known.get(path)
        if before is None or (before.problem and not before.lines and before.problem != file.problem):
            change.new.append(file)
        elif _is_as_before(before, file):
            change.known += 1
        elif not (may_grow and _is_longer(before, file)):
            change.changed.append(file.name)
        elif before.size_bytes and not _is_end_of_line(file.location, before.size_bytes - 1):
            change.changed.append(f"{file.name} (its last line had no end when it was read)")
        else:
            begin, line, sha256 = before.size_bytes, before.lines, before.sha256
            change.new.append(replace(file, start_bytes=begin, start_line=line, start_sha256=sha256))
    change.vanished = sorted(os.fsencode(path).decode("utf-8", "backslashreplace") for path in known.keys() - seen)
    return change


def _is_as_before(before: SourceFile, file: InputFile) -> bool:
    if file.problem or file.size_bytes != before.size_bytes:
        return file.problem != "" and file.problem == before.problem
    return file.mtime_ns == before.mtime_ns or sha256_of(file.location) == before.sha256


def _is_longer(before: SourceFile, file: InputFile) -> bool:
    """Return True if a file begins with all that was read of it, and more follows."""
    if file.size_bytes <= before.size_bytes or before.problem or file.problem or is_compressed(file.location):
        return False
    return sha256_of(file.location, before.size_bytes) == before.sha256


def _is_end_of_line(path: str, at: int) -> bool:
    with open(path, "rb") as file:
        file.seek(at)
        return file.read(1) == b"\n"


def sha256_of(path: str | Path, size_bytes: int | None = None) -> str:
    """The checksum of a file, or of its first bytes; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            digested = Digested(file, sys.maxsize if size_bytes is None else size_bytes)
            while digested.read(PIECE_BYTES):
                pass
            return digested.sha256
    except OSError:
        return ""


def changed_since(file: InputFile, *, may_grow: bool) -> bool:
    """Return True if a file was written after it was found. `may_grow`: growing does not count, as what was found is
    still there, and no more was read."""
    try:
        now = os.stat(file.location)
    except OSError:
        return True
    if may_grow and now.st_size > file.size_bytes:
        return False
    return (now.st_size, now.st_mtime_ns) != (file.size_bytes, file.mtime_ns)


def load_sources(feed: Path, manifest: Manifest) -> dict[str, SourceFile]:
    """The sources of a feed by path. UsageError if a list of them is missing or damaged."""
    sources: dict[str, SourceFile] = {}
    for increment in manifest.increments:
        name = increment.sources.name
        try:
            data = (feed / name).read_bytes()
            if hashlib.sha256(data).hexdigest() != increment.sources.sha256:
                raise ValueError("its checksum is another one")
            for line in data.splitlines():
                source = SourceFile(**json.loads(line))
                sources[source.path] = source
        except (OSError, TypeError, ValueError, RecursionError) as error:
            raise damaged(feed, f"{name}: {text_of_error(error)}") from error
    return sources


def sources_bytes(sources: Iterable[SourceFile]) -> bytes:
    """The content of a list of sources."""
    return b"".join(json.dumps(asdict(source)).encode("ascii") + b"\n" for source in sources)
