"""Finds the records of JSON of which Spark's reader would lose something without a word: in one pass over the text.

A second value on a line and the first of two values of one key are lost, half a surrogate becomes a question mark, and
bytes that are not UTF-8 may pass where nobody asks for the column.

Guarantees that a file without such records is read as it is, and of others a copy without them; that the records which
were left out are refused, with their lines. What is malformed is left to Spark, which sees it. Runs in Spark's workers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.pipeline.feed.manifest import PartPlace, Written
from squall.pipeline.read.input_files import InputFile, balance, opened
from squall.pipeline.read.lines import MAX_RAW_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Longest file of multi-line JSON that is looked at: a JVM can hardly hold longer ones.
MAX_DOCUMENT_BYTES = 16 << 20
#: At the end of the name of a copy, which no file of an input has.
COPY = ".squall-good"
_CHARACTERS = re.compile(rb"[^\n]")
_MARK = b"\xef\xbb\xbf"
_HALF = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


class _KeyTwice(Exception):
    pass


def _keys_once(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise _KeyTwice


_DECODER = json.JSONDecoder(object_pairs_hook=_keys_once, parse_int=len, parse_float=len, strict=False)


def flaw_of(record: bytes) -> str:
    """What Spark's reader would lose of a record; empty if nothing, or if it is malformed."""
    try:
        text = record.decode().strip()
        _, end = _DECODER.raw_decode(text)
    except UnicodeDecodeError:
        return "not UTF-8"
    except _KeyTwice:
        return "a key twice in an object"
    except (ValueError, RecursionError):
        return ""
    if text[end:].strip(" ,"):
        return "more than one value"
    return "half a character" if "\\u" in text and _HALF.search(text.replace("\\\\", "")) else ""


def can_check(options: Mapping[str, str]) -> bool:
    """Return True if the options leave records in UTF-8 and in strict JSON."""
    names = {name.casefold() for name in options}
    return not names & {"encoding", "charset", "linesep"} and not any(name.startswith("allow") for name in names)


def is_document(options: Mapping[str, str]) -> bool:
    """Return True if a file is one value, and not a value in each line."""
    return any(name.casefold() == "multiline" and value.casefold() == "true" for name, value in options.items())


def check_records(
    spark: SparkSession, root: str, files: Sequence[InputFile], places: Sequence[PartPlace], *, by_line: bool
) -> list[Written]:
    """Look for flawed records in a task for each place. Refuses them there, and puts copies of the files beside."""
    plan = balance(files, len(places))

    def check(task: int) -> Written:
        return _check(root, plan[task], places[task], by_line)

    return spark.sparkContext.parallelize(range(len(places)), len(places)).map(check).collect()


def _check(root: str, files: Sequence[InputFile], place: PartPlace, by_line: bool) -> Written:
    from squall.pipeline.feed.part_writer import PartWriter

    writer = PartWriter(place, {})
    for file in files:
        if by_line or file.size_bytes <= MAX_DOCUMENT_BYTES:
            refused = set()
            for number, record in _records(file, by_line):
                if flaw := flaw_of(record):
                    refused.add(number)
                    writer.refuse([(file.name, by_line * number, flaw, record.rstrip(b"\r\n")[:MAX_RAW_BYTES])])
            if refused:
                writer.written.copied.append(file.location)
                copy = copy_of(root, file.location, place.directory)
                copy.parent.mkdir(parents=True, exist_ok=True)
                with copy.open("wb") as good:
                    # Blanks in their place, so that lines keep their numbers.
                    good.writelines(
                        _CHARACTERS.sub(b" ", record) if number in refused else record
                        for number, record in _records(file, by_line)
                    )
    return writer.close()


def _records(file: InputFile, by_line: bool) -> Iterator[tuple[int, bytes]]:
    with opened(file) as (stream, _):
        for number, record in enumerate(stream if by_line else [stream.read()], 1):
            yield number, record.removeprefix(_MARK) if number == 1 else record


def copy_of(root: str, location: str, directory: str) -> Path:
    return Path(directory, "files", os.path.relpath(location, root) + COPY)


def tree_of(root: str, files: Sequence[InputFile], copied: Sequence[str], directory: str) -> tuple[str, list[str]]:
    """Another root and locations in it, where the copies are in place of their files; other files are linked."""
    locations = []
    for file in files:
        there = copy_of(root, file.location, directory)
        if file.location not in copied:
            there.parent.mkdir(parents=True, exist_ok=True)
            there.symlink_to(file.location)
        locations.append(str(there))
    return str(Path(directory, "files")), locations
