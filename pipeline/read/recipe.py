"""How prepare turns sources into rows: what a user asks for, checked, and noted in the feed.

Guarantees that an increment is made as those before it, or is refused with a line that says what differs: the rows of
one feed have one meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.pipeline.feed.manifest import Manifest
from squall.pipeline.read.clean import Cleaner, cleaner_of
from squall.pipeline.read.input_frame import TEXT, check_format


@dataclass
class Recipe:
    """What is the same for all increments of a feed, checked as far as that goes without Spark."""

    source: Path
    format_: str = TEXT
    pattern: str | None = None
    """Of the names of files."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of Spark's reader, as is `schema`."""
    schema: str | None = None
    sql: Path | None = None
    """A file with a SELECT."""
    clean: str | None = None
    """FILE:FUNCTION."""
    cleaner: Cleaner | None = field(init=False)

    def __post_init__(self) -> None:
        check_format(self.format_, self.options, self.schema)
        self.cleaner = cleaner_of(self.sql, self.clean)

    @property
    def is_text(self) -> bool:
        return self.format_ == TEXT

    @property
    def is_plain(self) -> bool:
        """True if each line becomes a row unchanged."""
        return self.is_text and self.cleaner is None

    def to_dict(self) -> dict[str, Any]:
        """What a feed notes."""
        return {
            "format": self.format_,
            "glob": self.pattern,
            "options": dict(self.options),
            "schema": self.schema,
            "clean": self.cleaner and str(self.cleaner),
        }

    def check_as_before(self, target: Path, former: Manifest, partitions: int | None) -> None:
        made = {"input": former.input, "partitions": len(former.partitions), **former.recipe}
        wanted = {"input": str(self.source.absolute()), "partitions": partitions, **self.to_dict()}
        for name, value in wanted.items():
            if value != made.get(name) and (name != "partitions" or partitions):
                raise UsageError(
                    f"feed {target} was made with {name} {_shown(made.get(name))}, and now it is {_shown(value)}; "
                    "--overwrite makes the feed anew"
                )


def _shown(value: Any) -> str:
    return "not given" if value in (None, [], {}) else value if isinstance(value, str) else repr_of(value)
