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
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any
from zlib import crc32

_encode = json.JSONEncoder(separators=(",", ":")).encode
quoted: Callable[[str], str] = json.encoder.encode_basestring_ascii
"""A text as JSON."""
_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
_SERIES = frozenset({tuple, list})


class LineLog:
    """The writing end. It has one owner; several processes may each have one on the same file."""

    _fd = -1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, *record: Any) -> None:
        """Write one record. OSError if the disk is full."""
        self.write(_encode(record)[:-1])

    def write(self, text: str) -> None:
        """Write one record that is JSON already, without the closing bracket. For the paths of every tuple."""
        body = text.encode("ascii")
        self._put(b"%b,%d]\n" % (body, crc32(body)))

    def write_all(self, texts: Iterable[str]) -> None:
        """Write several such records at once."""
        self._put(b"".join(b"%b,%d]\n" % (body, crc32(body)) for text in texts for body in (text.encode("ascii"),)))

    def _put(self, data: bytes) -> None:
        while (written := os.write(self._fd, data)) < len(data):
            data = data[written:]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        # The log of a task that was never closed: its simulated worker was killed.
        self.close()


def digest(value: Any) -> str:
    """16 hex digits; the same for equal plain values in every process of one Python version. Never raises."""
    try:
        if is_plain(value):
            return digest_of_plain(value)
        hashed = blake2b(digest_size=8)
        _feed(hashed.update, value)
    except RecursionError:
        # A list that contains itself.
        hashed = blake2b(_opaque(value), digest_size=8)
    return hashed.hexdigest()


def digest_of_plain(value: Any) -> str:
    """The same for a value that `is_plain`."""
    return blake2b(marshal.dumps(value, 2), digest_size=8).hexdigest()


def _opaque(value: Any) -> bytes:
    """Bytes of an object that is not plain: its pickle, or else its class.

    If these vary, runs without faults differ from each other, and the checker requires less.
    """
    try:
        return pickle.dumps(value, 4)
    except Exception as error:  # users' code; or it cannot be pickled, which is no error inside one worker
        return f"{type(value).__qualname__} {type(error).__qualname__}".encode()


def is_plain(value: Any) -> bool:
    """Whether equal values always have equal bytes: no identity, order or class of users shows in them."""
    kind = type(value)
    if kind is not tuple and kind is not list:
        return kind in _PLAIN
    if _PLAIN.issuperset(map(type, value)):
        return True
    for item in value:
        # Without a call for each, because most are plain.
        kind = type(item)
        if kind not in _PLAIN and (kind not in _SERIES or not is_plain(item)):
            return False
    return True


def _feed(update: Callable[[bytes], None], value: Any) -> None:
    kind = value.__class__
    if kind is tuple or kind is list:
        update(b"%s%d:" % (b"t" if kind is tuple else b"l", len(value)))
        for item in value:
            update(digest(item).encode())
    elif kind is dict or kind is set or kind is frozenset:
        update(kind.__name__.encode())
        items = list(value.items() if kind is dict else value)
        of_plain = _PLAIN.issuperset(map(type, value)) and (
            kind is not dict or _PLAIN.issuperset(map(type, value.values()))
        )
        try:
            in_order = sorted(items, key=None if of_plain or is_plain(items) else digest)
        except TypeError:
            in_order = sorted(items, key=digest)
        update((digest_of_plain(in_order) if of_plain else digest(in_order)).encode())
    else:
        update(_opaque(value))
