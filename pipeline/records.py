"""How CSV and JSON Lines are read, by `squall prepare` and `squall verify` alike.

Guarantees that both take the same for a record and a value, and that what Spark's readers pass over (bytes that are not
UTF-8, a second record on a line, half a character) has a condition of its own.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from squall.pipeline.column_names import twins_among

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader
    from pyspark.sql.types import StructField

CSV_OPTIONS: Mapping[str, str] = {
    "header": "true",
    # The names in the header count, not the order of the schema.
    "enforceSchema": "false",
    # A line break in quotes belongs to the value.
    "multiLine": "true",
    # As RFC 4180 has it; Spark's default is a backslash.
    "escape": '"',
    # Columns that nobody asked for are read too, or a row that is too short would not be found.
    "columnPruning": "false",
    # What an empty field is read as; a text that none is, or "" in quotes would be null too.
    "nullValue": "\ufdd0",
}
PATTERN_CHARACTERS = re.compile(r"[\\*?{}\[\]]")
"""In a path, of which Spark makes a pattern."""
#: What Spark puts in place of bytes that are not UTF-8.
REPLACEMENT = "\ufffd"
#: The column of a line, or of a whole file.
LINE = "_squall_line"
#: Longest record that fits into a value of Spark's type VARIANT, of 16 MiB, whatever is in it.
MAX_TELLING_CHARS = 1 << 20
_NO_NUMBER = r"([:\[,]\s*)[-+]?(?:NaN|Infinity|INF)\b"
_HALF = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


def twice_in_header(location: str) -> tuple[str, str] | None:
    """Two columns of a CSV file, as `CSV_OPTIONS` has it, that Spark takes for one: to both, it gives other names."""
    is_zipped = location.lower().endswith(".gz")
    # As in Spark, without the mark of UTF-8 before the first name. What cannot be read is left for Spark to tell.
    with suppress(OSError, EOFError, zlib.error, csv.Error):
        opening = gzip.open if is_zipped else open
        with opening(location, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
            header: list[str] = next(filter(None, csv.reader(file)), [])
        return twins_among(filter(None, header))
    return None


def options_to_infer(options: Mapping[str, str], paths: Iterable[str]) -> dict[str, str]:
    """With which Spark's CSV reader finds the columns: by lines, it takes no name of a file for a pattern."""
    odd = any(PATTERN_CHARACTERS.search(path) for path in paths)
    return {**options, "multiLine": "false"} if odd and "multiLine" in options else dict(options)


def is_half_character(line: Column) -> Column:
    """Whether a line of JSON escapes one surrogate without the other: it stands for no text."""
    from pyspark.sql import functions as f

    return f.regexp_replace(line, r"\\\\", "").rlike(_HALF)


def lines_of(reader: DataFrameReader, paths: Sequence[str], folders: Iterable[StructField] = ()) -> DataFrame:
    """The lines of files in a column `LINE`, which no folder has the name of, and the columns of these folders."""
    from pyspark.sql.types import StringType, StructField, StructType

    named = reader.schema(StructType([StructField(LINE, StringType()), *folders]))
    # Not `text`, which sets the option `wholetext` itself.
    return named.format("text").load(list(paths))


def has_nameless_key(line: Column) -> Column:
    """Whether a text of JSON has the key "", of which Spark makes no column."""
    return line.rlike(r'[{,]\s*""\s*:')


def is_one_record(line: Column) -> Column:
    """Whether a line of JSON holds one value and no more; of the rest Spark's reader says nothing."""
    from pyspark.sql import functions as f

    return f.coalesce(f.json_array_length(_in_brackets(line)) == 1, f.lit(False))


def has_key_twice(line: Column) -> Column:
    """Whether a record of JSON has an object with two values of one key, of which Spark's reader takes the last. Of one
    that is too long to tell, not."""
    from pyspark.sql import functions as f

    return (f.length(line) <= MAX_TELLING_CHARS) & f.try_parse_json(_in_brackets(line)).isNull()


def _in_brackets(line: Column) -> Column:
    """The values of a line in an array, in plain JSON."""
    from pyspark.sql import functions as f

    plain = f.regexp_replace(f.regexp_replace(line, _NO_NUMBER, "$1 0"), r",\s*$", "")
    return f.concat(f.lit("["), plain, f.lit("]"))


def is_by_line(options: Mapping[str, str]) -> bool:
    """Whether each line of JSON is a record, in UTF-8."""
    given = {name.casefold(): str(value).casefold() for name, value in options.items()}
    return given.get("multiline", "false") != "true" and is_utf8(options)


def is_utf8(options: Mapping[str, str]) -> bool:
    given = {name.casefold(): str(value).casefold() for name, value in options.items()}
    return all(given.get(name, "utf-8") in ("utf-8", "utf8") for name in ("encoding", "charset"))


def is_strict(options: Mapping[str, str]) -> bool:
    """Whether JSON has to be as `is_one_record` knows it."""
    return not any(name.casefold().startswith("allow") for name in options)
