"""How prepare turns sources into rows: what a user asks for, checked, and noted in the feed.

Guarantees that an increment is made as those before it, or is refused with a line that says what differs: the rows of
one feed have one meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.pipeline.manifest import Manifest
from squall.pipeline.rule_columns import check_columns, column_mistakes
from squall.pipeline.rules import Rules, load_rules
from squall.pipeline.spark_input import TEXT, check_format
from squall.pipeline.text_job import LINE_COLUMNS

if TYPE_CHECKING:
    from squall.pipeline.clean_function import CleanFunction


@dataclass(frozen=True)
class Recipe:
    """`pattern`: of the names of files. `rules` and `clean` may both be given: the function comes first."""

    source: Path
    format: str = TEXT
    pattern: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    columns: Sequence[str] = ()
    rules: Rules | None = None
    clean: CleanFunction | None = None

    @property
    def is_text(self) -> bool:
        return self.format == TEXT

    @property
    def is_plain(self) -> bool:
        """Whether rows are the lines as they are."""
        return self.is_text and self.rules is None and self.clean is None

    @property
    def hint(self) -> str:
        """What to look at if all records are malformed: the options about how values are written."""
        formats = [name for name in self.options if name.casefold().endswith("format")]
        given = [f"--option {name}={self.options[name]}" for name in formats]
        schema = ["--schema"] if self.schema else []
        return f"; see {', '.join([*given, *schema])}" if given or schema else ""

    def to_dict(self) -> dict[str, Any]:
        """What a feed notes."""
        clean = self.clean and f"{self.clean.name} of {self.clean.sha256}"
        return {
            "format": self.format,
            "glob": self.pattern,
            "options": dict(self.options),
            "schema": self.schema,
            "columns": list(self.columns),
            "rules": self.rules and self.rules.sha256,
            "clean": clean,
        }

    def check_columns(self, names: Sequence[str]) -> None:
        """RuleMistakes if rules do not fit the columns of the source. `names`: empty if they are not known yet."""
        if names and self.rules and not (self.clean or self.columns or self.schema):
            check_columns(self.rules, names)

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
    columns: Sequence[str], rules: Path | None, clean: str | None,
) -> Recipe:
    """What a user asks for, checked as far as that goes without Spark."""
    check_format(format_, options, schema, columns)
    known = LINE_COLUMNS if format_ == TEXT else tuple(columns)
    check = partial(column_mistakes, names=known) if known and clean is None else None
    loaded = (load_rules(rules, check) if check else load_rules(rules)) if rules else None
    function = None
    if clean is not None:
        from squall.pipeline.clean_function import load_clean_function

        function = load_clean_function(clean)
    return Recipe(source, format_, pattern, options, schema, columns, loaded, function)
