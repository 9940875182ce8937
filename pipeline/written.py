"""Where a task of prepare writes, and what it has written: the only things that pass between it and the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from squall.pipeline.inputs import SourceFile
from squall.pipeline.manifest import PartFile


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
    dropped: Counter[str] = field(default_factory=Counter)
    shown: list[Refused] = field(default_factory=list)
    """The first refused rows."""
    refused_of: dict[str, Counter[str]] = field(default_factory=dict)
    """Of each file that has refused rows, how many for which reason."""
    used: set[str] = field(default_factory=set)
    """The files of which a row was not refused."""
    words: int = 0
    bytes: int = 0
    sources: list[SourceFile] = field(default_factory=list)
    """The files that it has read itself."""


def nothing_of(written: Iterable[Written], hint: str) -> tuple[str, ...]:
    """A line about each file of which all rows, two or more, were refused for one reason: how it is read may be wrong.
    `hint`: what to look at if they are malformed."""
    written = list(written)
    refused: dict[str, Counter[str]] = {}
    for one in written:
        for path, reasons in one.refused_of.items():
            refused.setdefault(path, Counter()).update(reasons)
    lines = []
    for path, reasons in sorted(refused.items()):
        ((reason, count),) = reasons.most_common(1)
        if len(reasons) == 1 < count and not any(path in one.used for one in written):
            why = f"{reason}{hint}" if reason.startswith("malformed") else reason
            lines.append(f"nothing of {path}: all its {count:,} rows are quarantined ({why})")
    return tuple(lines)
