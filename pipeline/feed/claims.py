"""Keeps the claims of a spout's tasks: a file for each range, in a directory that the tasks share.

::

    00000000000000012288 5d1f3a09        the position and its checksum
    {"part": ..., "start": ..., ...}     the rest never changes

Guarantees that of several tasks, in whatever processes, one makes the claim of a range, also if it is killed in the
middle; that a claim is read whole; that its position survives every process, though not a power loss. Relies on a file
system that knows hard links, and on `engine.api.position_file` for the line. Thread: the task's; each task has an
object of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from squall.engine.api.prefix import position_line
from squall.engine.errors import ClusterError
from squall.engine.foreign.text import text_of_error
from squall.pipeline.feed.shares import Claim

SUFFIX = ".claim"
#: Times that a position is read before it counts as damaged.
READS = 10


class Claims:
    """The claims as one task sees them."""

    def __init__(self, directory: Path, task: int) -> None:
        self.directory = directory
        # Two lives of one task may be writing at the same time.
        self._draft = directory / f"task-{task}-{os.getpid()}.new"

    def load(self) -> list[Claim]:
        """Every task's claims. ClusterError if one cannot be read."""
        return [self._read(path) for path in sorted(self.directory.glob(f"*{SUFFIX}"))]

    def make(self, claim: Claim) -> Claim:
        """Claim a range, unless it is taken. The claim that it has now."""
        fixed = claim._asdict()
        del fixed["position"]
        # Not in place: a draft that was left may be linked to a claim.
        self._draft.unlink(missing_ok=True)
        self._draft.write_bytes(position_line(claim.position) + json.dumps(fixed).encode())
        try:
            os.link(self._draft, self._path(claim))
        except FileExistsError:
            return self._read(self._path(claim))
        return claim

    def store(self, claim: Claim) -> None:
        """Store the position of a claim."""
        fd = os.open(self._path(claim), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, position_line(claim.position), 0)
        finally:
            os.close(fd)

    def _path(self, claim: Claim) -> Path:
        # The name of a part may be too long for a file name, or hold a slash.
        digest = hashlib.blake2b(claim.part.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        return self.directory / f"{digest}-{claim.start}{SUFFIX}"

    @staticmethod
    def _read(path: Path) -> Claim:
        try:
            for again in reversed(range(READS)):
                line, _, fixed = path.read_bytes().partition(b"\n")
                position = int(line.partition(b" ")[0])
                if line + b"\n" == position_line(position):
                    break
                # Perhaps its task was writing.
                if not again:
                    raise ValueError("its position and checksum differ")
            data = json.loads(fixed)
            numbers = {name: int(data[name]) for name in ("start", "stop", "task", "life", "number")}
            claim = Claim(part=str(data["part"]), position=position, **numbers)
            if not (0 <= claim.start <= claim.position <= claim.stop and claim.task >= 0 and claim.number >= 0):
                raise ValueError("its numbers contradict each other")
        except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ClusterError(
                f"{path} is no claim of a range of a feed: {text_of_error(error)}; without it, the range is read again"
            ) from error
        return claim
