"""What all taps of one run share: their options, the field that carries keys, and the logs, append-only files of
records, a line each, that tell a whole line from a torn one.

Guarantees: a log is a new file for each incarnation of a task, so that a line torn by a death stays the last of its
file. A record is part of one `write` to a file opened for appending, so lines of several writers never mix, and
written records survive the death of their writer by any signal. A line is a JSON array whose last item is the crc32 of
the text before it.

Relies on: the standard library alone. The reader is `squall.chaos.checker`, which knows the format by itself.
"""

from __future__ import annotations

import json
import marshal
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

STEMS_FROM = "squall_stems_from"
"""The taps' own field: keys of messages, one key alone or a tuple of several."""
Keys = str | tuple[str, ...]
NO_ID = ("no id",)
"""In place of keys: the tuple stems from a tick, or from an emit without a message id."""
_LET_GO = "let-go"
"""A file in the taps' directory."""


@dataclass(frozen=True)
class Tapping:
    """The options of one run's taps."""

    directory: str
    """The directory of their logs."""
    sinks: tuple[str, ...]
    key: Callable[[dict[str, Any]], Any] | None = None
    """Makes of a sink's tuple, by field, what must be the same in each run; None: all its values."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Spout -> most emits per second and task, until `let_go`; those that are not there are unlimited."""
    by_task: bool = False
    """True if each task of a spout has message ids of its own, so that two may use the same id for two messages."""
    fail_every: int = 0
    """Turn the first ack of one message in this many into a failure, so that the spout emits it again; 0: never."""
    refuse_every: int = 0
    """Fail, at each sink, what stems from one message in this many, before the sink has it and for a fifth of a second
    from the first tuple on: as if it were lost on the way; 0: never."""


def let_go(tapping: Tapping) -> None:
    """Let spouts emit at full speed from now on, without failures and losses on purpose."""
    (Path(tapping.directory) / _LET_GO).touch()


def is_let_go(tapping: Tapping) -> bool:
    """Return True if `let_go` was called."""
    return os.path.exists(os.path.join(tapping.directory, _LET_GO))


def new_log(tapping: Tapping, kind: str) -> LineLog:
    """Open a new log; `kind`: "source" or "sink"."""
    fd, path = tempfile.mkstemp(prefix=f"{kind}-", dir=tapping.directory)
    os.close(fd)
    return LineLog(path)


def row_of(values: Any) -> Any:
    """The values of an emit as a tuple. Invalid ones stay as they are, for the engine to refuse."""
    if values.__class__ is tuple or not isinstance(values, Iterable) or isinstance(values, str | bytes):
        return values
    return tuple(values)


def with_keys(values: Any, keys: Keys) -> Any:
    """Add keys to the values of an emit."""
    row = row_of(values)
    return (*row, keys) if row.__class__ is tuple else row


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
