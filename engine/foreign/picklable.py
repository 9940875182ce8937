"""Checks in `emit` whether a tuple could be sent to another worker.

Guarantees: the first tuple of each batch is checked: its values are pickled once for each new combination of types in
a stream, and a value that cannot be pickled is an error in that `emit`, wherever the receiver is. With `debug`, every
value of every tuple is checked.

Missed: a bad value in the middle of a batch, or inside a list or an object of a type that was picklable before. It is
an error when it is sent, in the same words (`WorkerCore.not_sent`).
"""

from __future__ import annotations

import datetime
import decimal
import pickle
import re
import uuid
from collections.abc import Sequence
from typing import Any

from squall.engine.errors import ComponentError
from squall.engine.foreign.text import text_of_error, type_name

_PLAIN = frozenset({
    str, int, float, bool, complex, bytes, bytearray, type(None), datetime.datetime, datetime.date, datetime.time,
    datetime.timedelta, decimal.Decimal, uuid.UUID,
})
_REMEMBERED = 1024
"""Most combinations of types remembered per stream. Only code that makes classes as it runs has many."""

_FIELD_NAME = re.compile(":[^:]*:")
"""In the format of a structure."""


def why_no_bytes(view: memoryview) -> str | None:
    """Why the memory of a view means nothing to another process; None if it does."""
    try:
        kinds = view.format
    except ValueError as error:  # it was released
        return str(error)
    return "its memory holds Python objects, not bytes" if "O" in _FIELD_NAME.sub("", kinds) else None


class _Nowhere:
    """A file that discards its data, so that checking 1 GiB takes no second GiB."""

    def write(self, data: Any) -> int:
        return len(data)


def _leave_out(buffer: pickle.PickleBuffer) -> bool:
    """Keep buffers, such as arrays, out of the pickle: they travel beside it."""
    return False


def why_unpicklable(value: Any) -> str | None:
    """Why a value cannot be pickled, None if it can. A memoryview is sent as bytes."""
    if type(value) is memoryview:
        return why_no_bytes(value)
    try:
        pickle.Pickler(_Nowhere(), 5, buffer_callback=_leave_out).dump(value)
    except MemoryError:
        raise
    except BaseException as error:  # the value's own code
        return text_of_error(error)
    return None


class PickleCheck:
    """The check for one output stream of one task. Thread: the task's."""

    __slots__ = ("_fields", "_seen", "_who")

    def __init__(self, who: str, fields: Sequence[str]) -> None:
        self._who = who
        self._fields = fields
        self._seen: set[tuple[type, ...]] = set()

    def look(self, values: tuple[Any, ...]) -> None:
        """Check the first tuple of a batch. ComponentError names stream and field of a value that cannot be pickled."""
        kinds = tuple(map(type, values))
        if kinds not in self._seen:
            self.test(values)
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            self._seen.add(kinds)

    def test(self, values: tuple[Any, ...]) -> None:
        """Pickle every value that is not plain. ComponentError as above."""
        for field, value in zip(self._fields, values, strict=True):
            if type(value) in _PLAIN:
                continue
            reason = why_unpicklable(value)
            if reason is not None:
                raise ComponentError(
                    f"{self._who} field {field!r}: a value of type {type_name(value)} cannot be pickled, so it could "
                    f"not be sent to another worker: {reason}; allowed: what pickle can take"
                )
