"""Says what is wrong with the header of a CSV file that Spark has refused.

Spark compares headers with the columns that it was told, by place, and does not say what it has found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from squall.engine.foreign.text import repr_of
from squall.engine.plural import plural
from squall.pipeline.column_names import folded
from squall.pipeline.records import PATTERN_CHARACTERS, options_to_infer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Most characters of a list of columns.
SHOWN_CHARACTERS = 200
_BY_PLACE = "--option enforceSchema=true with a --schema takes columns by their place"


def header_mistake(
    spark: SparkSession, location: str, options: Mapping[str, str], wanted: Sequence[str], wanted_by: str
) -> str | None:
    """What differs in the header of a file, if anything does. `wanted_by`: who has the wanted columns,
    with its verb."""
    path = PATTERN_CHARACTERS.sub(lambda found: "\\" + found[0], location)
    how = options_to_infer({**options, "header": "false"}, [path])
    row = spark.read.format("csv").options(**how).load(f"file://{path}").first()
    names = [name or "" for name in row] if row else []
    # As Spark compares them.
    lower, wanted_lower = [folded(name) for name in names], [folded(name) for name in wanted]
    if lower == wanted_lower:
        return None
    seen: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        if not name:
            return f"{location} has no name for column {number}; allowed: a name for each ({_BY_PLACE})"
        if (other := seen.setdefault(folded(name), name)) != name or names.count(name) > 1:
            return (
                f"{location} has the columns {other!r} and {name!r}, which are one to Spark; allowed: names that "
                f"differ in more than case ({_BY_PLACE})"
            )
    pairs = zip(lower, wanted_lower, strict=False)
    at = next((number for number, (name, other) in enumerate(pairs) if name != other), None)
    if at is None:
        differs = f"{plural(len(names), 'column')}, and {wanted_by} {len(wanted)}"
    else:
        differs = f"the name {names[at]!r} for column {at + 1}, and {wanted_by} {wanted[at]!r}"
    shown = (repr_of(list(columns), SHOWN_CHARACTERS) for columns in (wanted, names))
    return "{} has {}; allowed: the columns {}, in this order, not {}".format(location, differs, *shown)
