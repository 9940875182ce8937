"""Where a task of prepare writes, and what it has written: the only things that pass between it and the driver."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from squall.pipeline.feed.manifest import PartFile
from squall.pipeline.read.inputs import SourceFile


class Place(NamedTuple):
    """Where the rows of a task go: a partition, its first free offset, and the directory and the name of the files."""

    directory: str
    partition: int
    offset: int
    stem: str


class Refused(NamedTuple):
    """A row in the quarantine, as it is shown."""

    path: str
    line_no: int
    """0 if it is not known."""
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line_no}: {self.reason}" if self.line_no else f"{self.path}: {self.reason}"


@dataclass
class Written:
    """The outcome of a task."""

    partition: int
    rows: PartFile | None = None
    quarantine: PartFile | None = None
    reasons: Counter[str] = field(default_factory=Counter)
    shown: list[Refused] = field(default_factory=list)
    """The first refused rows."""
    words: int = 0
    bytes: int = 0
    sources: list[SourceFile] = field(default_factory=list)
    """The files that it has read itself."""
    copied: list[str] = field(default_factory=list)
    """The files of which it has made a copy without refused records."""
