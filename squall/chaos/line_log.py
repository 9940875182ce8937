"""An append-only file of records, a line each, that tells a whole line from a torn one.

Guarantees: a record is one `write` to a file opened for appending, so lines of several writers never mix, and what was
appended survives the death of its writer by any signal. A line is a JSON array whose last item is the crc32 of the text
before it.

Relies on: the standard library alone. The reader is `squall.chaos.checker`, which knows the format by itself.
"""

from __future__ import annotations

import json
import os
import pickle
import zlib
from collections.abc import Callable
from hashlib import blake2b
from typing import Any


class LineLog:
    """The writing end. One owner; several processes may each have one on the same file."""

    _fd = -1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, *record: Any) -> None:
        """Write one record. OSError when the disk is full."""
        body = json.dumps(record, separators=(",", ":"))[:-1]
        data = b"%s,%d]\n" % (body.encode(), zlib.crc32(body.encode()))
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        # Of a task that nobody closed: a simulated worker that was killed.
        self.close()


def digest(value: Any) -> str:
    """16 hex digits; the same for equal plain values in every process and interpreter."""
    hashed = blake2b(digest_size=8)
    _feed(hashed.update, value)
    return hashed.hexdigest()


def _feed(update: Callable[[bytes], None], value: Any) -> None:
    kind = value.__class__
    if kind is str:
        data = value.encode("utf-8", "surrogatepass")
        update(b"s%d:" % len(data))
        update(data)
    elif kind is int or kind is bool or kind is float or value is None:
        update(b"%s;" % repr(value).encode())
    elif kind is bytes:
        update(b"b%d:" % len(value))
        update(value)
    elif kind is tuple or kind is list:
        update(b"%s%d:" % (b"t" if kind is tuple else b"l", len(value)))
        for item in value:
            _feed(update, item)
    elif kind is dict or kind is set or kind is frozenset:
        items = sorted(digest(item) for item in (value.items() if kind is dict else value))
        update(b"d%d:%s" % (len(items), "".join(items).encode()))
    else:
        # Other objects by what pickle makes of them. Where that is not the same each time, the runs without faults
        # differ from each other, and the checker asks for less.
        data = pickle.dumps(value, 4)
        update(b"p%d:" % len(data))
        update(data)
