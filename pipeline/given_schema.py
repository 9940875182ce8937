"""The columns that a user names with `--schema`.

Guarantees types that the format's reader reads and a feed can hold, or a UsageError that names the column.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from squall.engine.errors import UsageError
from squall.pipeline.column_names import twins_among, twins_told
from squall.pipeline.spark_errors import mistake_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_INTERVAL = re.compile(r"\binterval\b(?! (?:day|hour|minute|second))")
"""The types of months, for which Arrow has none, in the text of a type."""
_SIZED = re.compile(r"\b(?:var)?char\(\d+\)")
_NOWHERE = re.compile(r"\b(?:void|variant)\b")
_NESTED = ("array", "map", "struct")


def given_schema(text: str, format_: str) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        found = StructType.fromDDL(text)
    except PySparkException as error:
        raise UsageError(f"--schema {text!r} is no schema: {mistake_of(error)}") from error
    if not isinstance(found, StructType) or not found.names:
        raise UsageError(f"--schema is {text!r}; allowed: columns, such as 'host string, status int'")
    if twins := twins_among(found.names):
        raise UsageError(f"--schema has {twins_told(*twins)}")
    for field in found:
        if mistake := _mistake(field.dataType.simpleString(), format_):
            raise UsageError(f"--schema has column {field.name!r} {mistake}")
        if not field.nullable:
            raise UsageError(
                f"--schema has column {field.name!r} NOT NULL, which Spark's readers do not check; allowed: the column "
                "without it, and a rule that requires it"
            )
    return found


def _mistake(kind: str, format_: str) -> str | None:
    """What is wrong with a type, as the end of a sentence. `kind`: as Spark writes it, with those inside it."""
    if _INTERVAL.search(kind):
        return "as an interval of months, which no feed can hold"
    if sized := _SIZED.search(kind):
        return f"as {sized[0]}, which Spark's readers do not check; allowed: string, and a rule that matches its length"
    if nowhere := _NOWHERE.search(kind):
        return f"as {nowhere[0]}, which no feed can hold; allowed: another type, such as string"
    if format_ == "csv" and kind.startswith(_NESTED):
        return f"as {kind}, which no value of CSV is; allowed: a simple type, such as string"
    return None
