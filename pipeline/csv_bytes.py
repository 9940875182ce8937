"""Reads CSV files that are not UTF-8 so that no byte is lost: rows of good texts, and refused ones as they are.

Spark's reader puts one character for any wrong byte. As ISO-8859-1 each byte is a character of its own, and what makes
records of them (separators, quotes, ends of lines) is the same in both; so texts and records are read as that, and
taken for the bytes that they were.

Guarantees that a refused record can be recovered: as it stands in the file if it is malformed, else as JSON with the
bytes of the file in its texts. Decides and plans; no job is started.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from squall.pipeline.cleaning import FATE, INTERNAL, PATH, RAW, REFUSED, quoted
from squall.pipeline.opened import first_bytes, is_compressed
from squall.pipeline.records import REPLACEMENT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader
    from pyspark.sql.types import StructType

    from squall.pipeline.corpus import InputFile

_BYTES = "ISO-8859-1"
_CORRUPT = INTERNAL + "corrupt"
#: Of a file, in which its header is looked for: Spark refuses more columns than such a header has.
_HEADER_BYTES = 1 << 20
_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


def can_read(options: Mapping[str, str], known: StructType) -> bool:
    """Whether files can be read by their bytes: all that Spark looks for in a record is ASCII, and the header is
    UTF-8."""
    given = {name.casefold(): value for name, value in options.items()}
    others = [value for name, value in given.items() if name not in ("nullvalue", "basepath")]
    is_plain = "locale" not in given and all(map(str.isascii, others))
    return is_plain and not any(REPLACEMENT in name for name in known.names)


def begins_with_mark(file: InputFile) -> bool:
    """Whether a file begins with a byte order mark, which tells Spark's parser of CSV more than its options do."""
    return first_bytes(file, 4).startswith(_MARKS)


def wide_coding(file: InputFile) -> str:
    """The encoding, of more than a byte for a character, whose mark a file begins with. Empty if there is none, or the
    file is compressed. OSError if it cannot be read."""
    if is_compressed(file.location):
        return ""
    begin = first_bytes(file, 4)
    if begin.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    return "UTF-16" if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else ""


def wrong_header(file: InputFile) -> bytes:
    """The first line of a file, if it is not UTF-8: Spark would put one character for any wrong byte of a name. OSError
    if it cannot be read."""
    lines = first_bytes(file, _HEADER_BYTES).splitlines()
    header = next(filter(None, lines), b"")
    try:
        # A character may be cut where the bytes end.
        codecs.getincrementaldecoder("utf-8")().decode(header, final=len(lines) > 1)
    except UnicodeDecodeError:
        return header
    return b""


def read_by_bytes(reader: DataFrameReader, paths: list[str], known: StructType, folders: Sequence[str]) -> DataFrame:
    """The rows in their columns, with path, fate and raw record. `reader`: with all options but the encoding."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    own = [field for field in known if field.name not in folders]
    there = [StructField(_as_bytes(field.name), field.dataType) for field in own]
    given = [field for field in known if field.name in folders]
    schema = StructType([*there, *given, StructField(_CORRUPT, StringType())])
    frame = reader.option("encoding", _BYTES).schema(schema).load(paths)
    columns: dict[str, Column] = {field.name: f.col(quoted(field.name)) for field in given}
    valid: list[Column] = [f.lit(True)]
    for field, raw in zip(own, there, strict=True):
        column = columns[field.name] = f.col(quoted(raw.name))
        if isinstance(frame.schema[raw.name].dataType, StringType):
            columns[field.name] = text = f.encode(column, _BYTES).cast("string")
            valid.append(f.coalesce(f.is_valid_utf8(text), f.lit(True)))
    corrupt = f.col(_CORRUPT)
    fate = f.when(corrupt.isNotNull(), f.lit(f"{REFUSED}malformed CSV")).when(
        ~reduce(and_, valid), f.lit(f"{REFUSED}not UTF-8")
    )
    record = f.to_json(f.struct(*(quoted(field.name) for field in there)))
    raw_bytes = f.when(fate.isNotNull(), f.encode(f.coalesce(corrupt, record), _BYTES))
    return frame.select(
        *(columns[field.name].alias(field.name) for field in known), f.col("_metadata.file_path").alias(PATH),
        fate.alias(FATE), raw_bytes.alias(RAW),
    )


def _as_bytes(text: str) -> str:
    """A text as it is read by its bytes."""
    return text.encode().decode(_BYTES)
