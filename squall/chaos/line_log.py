"""An append-only file of records, a line each, that tells a whole line from a torn one.

Guarantees: a record is part of one `write` to a file opened for appending, so lines of several writers never mix, and
written records survive the death of their writer by any signal. A line is a JSON array whose last item is the crc32 of
the text before it.

Relies on: the standard library alone. The reader is `squall.chaos.checker`, which knows the format by itself.
"""

from __future__ import annotations

import json
import marshal
import os
import pickle
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

_encode = json.JSONEncoder(separators=(",", ":")).encode
quoted: Callable[[str], str] = json.encoder.encode_basestring_ascii
"""A text as JSON."""
_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
"""Classes whose equal values always have equal bytes: no identity, order or code of users shows in them."""


class LineLog:
    """The writing end. It has one owner; several processes may each have one on the same file."""

    _fd = -1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, *record: Any) -> None:
        """Write one record. OSError if the disk is full."""
        self.write(_encode(record)[:-1])

    def write(self, *texts: str) -> None:
        """Write records that are JSON already, without the closing bracket. For the paths of every tuple."""
        data = b"".join([b"%b,%d]\n" % (body, crc32(body)) for body in [text.encode("ascii") for text in texts]])
        while (written := os.write(self._fd, data)) < len(data):
            data = data[written:]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        # The log of a task that was never closed: its simulated worker was killed.
        self.close()


class UnendedMessages:
    """The messages of one run that are emitted and not answered yet, from the taps' files while they are written. Only
    tells when there is none left to await: the checker judges."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._read_bytes: dict[Path, int] = {}
        self._keys: set[bytes] = set()

    def read(self) -> set[bytes]:
        """Take in the records appended before this call. Returns the keys of the open messages."""
        answered: list[bytes] = []
        for path in self._directory.glob("source-*"):
            with path.open("rb") as file:
                file.seek(self._read_bytes.get(path, 0))
                data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            self._read_bytes[path] = self._read_bytes.get(path, 0) + len(data)
            for line in data.splitlines():
                _, what, _, key, _ = line.split(b'"', 4)
                if what == b"emit":
                    self._keys.add(key)
                elif what in (b"ack", b"dead"):
                    answered.append(key)
        self._keys.difference_update(answered)
        return self._keys


def digest(value: Any) -> str:
    """16 hex digits; the same for equal plain values in every process of one Python version. Never raises."""
    try:
        data = marshal.dumps(_parts(value), 2)
    except (RecursionError, ValueError):  # a list that contains itself, or that is nested too deep
        data = marshal.dumps(_opaque(value), 2)
    return blake2b(data, digest_size=8).hexdigest()


def _parts(value: Any) -> Any:
    """The same value in plain parts. What is not plain itself becomes a tuple that begins with `...`, as no other."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return value if _PLAIN.issuperset(map(type, value)) else kind(map(_parts, value))
    if kind is dict or kind is set or kind is frozenset:
        return ..., kind.__name__, sorted(map(digest, value.items() if kind is dict else value))
    return _opaque(value)


def _opaque(value: Any) -> tuple[Any, ...]:
    """An object of another class: its pickle, or else its class.

    If these vary, runs without faults differ from each other, and the checker requires less.
    """
    try:
        return ..., pickle.dumps(value, 4)
    except Exception as error:  # users' code; or it cannot be pickled, which is no error inside one worker
        return ..., type(value).__qualname__, type(error).__qualname__
