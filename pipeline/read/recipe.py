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
from squall.pipeline.read.frame import TEXT, check_format


@dataclass(frozen=True)
class Recipe:
    """`pattern`: of the names of files."""

    source: Path
    format: str = TEXT
    pattern: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    cleaner: Cleaner | None = None

    @property
    def is_text(self) -> bool:
        return self.format == TEXT

    @property
    def is_plain(self) -> bool:
        """Whether rows are the lines as they are."""
        return self.is_text and self.cleaner is None

    def to_dict(self) -> dict[str, Any]:
        """What a feed notes."""
        return {
            "format": self.format,
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


def recipe_of(
    source: Path, format_: str, pattern: str | None, options: Mapping[str, str], schema: str | None,
    sql: Path | None, clean: str | None,
) -> Recipe:
    """What a user asks for, checked as far as that goes without Spark."""
    check_format(format_, options, schema)
    return Recipe(source, format_, pattern, options, schema, cleaner_of(sql, clean))
