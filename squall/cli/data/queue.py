"""`squall queue`: puts lines into a durable queue, and takes records out of it.

Guarantees: a line is on disk when its number is printed. `get` removes what it has written to stdout, and nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import BinaryIO

import click

from squall.cli.options import SomePath, json_option
from squall.cli.output import say
from squall.cli.screen import show
from squall.connect.durable_queue import Queue, QueueRecord, pack, row_mistake
from squall.engine.errors import UsageError
from squall.engine.foreign.text import plural
from squall.ipc.private import naming

_CHUNK_BYTES = 1 << 18
_ROWS = 1000
_as_json = click.option("--json", "as_json", is_flag=True, help="A JSON list of values a line, not text.")
_directory = click.argument("directory", metavar="DIR", type=SomePath())


@click.group("queue")
def queue_command() -> None:
    """Use a durable queue in a directory, which topologies read by QueueSource and write by QueueSink."""


@queue_command.command("put")
@_directory
@click.argument("file", type=click.File("rb"), default="-")
@_as_json
def put(directory: str, file: BinaryIO, as_json: bool) -> None:
    """Put each line of FILE (default: stdin) into the queue in DIR, as it comes."""
    queue, count = Queue(directory), 0
    try:
        for lines in _lines(file):
            rows = list[bytes]()
            try:
                rows.extend(_row(line, count + number, as_json) for number, line in enumerate(lines, 1))
            finally:
                queue.put_packed(rows)
            count += len(rows)
    finally:
        queue.close()
    say(f"{plural(count, 'record')} put into {directory}")


@queue_command.command("get")
@_directory
@click.option("-n", "most", type=click.IntRange(min=1), default=sys.maxsize, help="Most records.  [default: all]")
@_as_json
def get(directory: str, most: int, as_json: bool) -> None:
    """Print records of the queue in DIR, and remove them."""
    if sys.stdout is None:
        raise UsageError("stdout is closed; nothing is taken from the queue")
    queue = Queue(directory, must_exist=True)
    try:
        while most and (found := queue.open(min(most, _ROWS))[:most]):
            with naming("stdout"):
                # As it is: what is shortened or made plain here is lost.
                sys.stdout.buffer.writelines(_line(record, as_json).encode() + b"\n" for record in found)
                sys.stdout.buffer.flush()
            queue.confirm([record.id for record in found])
            most -= len(found)
    finally:
        queue.close()


@queue_command.command("peek")
@_directory
@click.option("-n", "most", type=click.IntRange(min=1), default=10, show_default=True, help="Most records.")
@_as_json
def peek(directory: str, most: int, as_json: bool) -> None:
    """Print the first records of the queue in DIR, also those that somebody has open."""
    for record in Queue(directory, must_exist=True).peek(most):
        say(_line(record, as_json))


@queue_command.command("stat")
@_directory
@json_option
def stat(directory: str, as_json: bool) -> None:
    """Count the records of the queue in DIR."""
    counts = Queue(directory, must_exist=True).counts()
    line = (
        f"{counts.waiting:,} waiting, {counts.open:,} open at {plural(counts.consumers, 'consumer')}, "
        f"{counts.size_bytes:,} bytes"
    )
    show(as_json, counts._asdict(), [line])


def _lines(file: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines that have come, without their ends."""
    rest = b""
    while chunk := os.read(file.fileno(), _CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _row(line: bytes, number: int, as_json: bool) -> bytes:
    """Return what is put for a line."""
    try:
        row = json.loads(line) if as_json else [line.decode()]
    except (ValueError, RecursionError) as error:
        kind = "JSON" if as_json else "UTF-8"
        raise UsageError(f"line {number} is no {kind} ({error}); the lines before it are put") from error
    if not isinstance(row, list):
        raise UsageError(f"line {number} is no JSON list of values, such as [\"a\", 1]; the lines before it are put")
    try:
        return pack(row)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"line {number}: {row_mistake(row, error)}; the lines before it are put") from error


def _line(record: QueueRecord, as_json: bool) -> str:
    row = record.row
    if row is not None and len(row) == 1 and isinstance(row[0], str) and not as_json:
        return row[0]
    return json.dumps(row, default=str)
