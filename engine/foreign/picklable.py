"""Whether what is emitted could go to another worker, looked at where it is emitted.

Guarantees: the first tuple of each batch is looked at: its values are pickled once for each combination of types that
a stream has not shown before, and one that cannot be is an error in that `emit`, wherever the receiver is. With `debug`
every value of every tuple is.

Not seen: a value in the middle of a batch, or in a list or an object of a type that could be pickled before. If its
receiver is in another worker it is an error when it is sent, in the same words (`WorkerCore.not_sent`).
"""

from __future__ import annotations

import datetime
import decimal
import pickle
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
"""Combinations of types per stream. More than a few come from code that makes classes as it runs."""


class _Nowhere:
    """A file that keeps nothing: a test of 1 GiB needs no second GiB."""

    def write(self, data: Any) -> int:
        return len(data)


def _leave_out(buffer: pickle.PickleBuffer) -> bool:
    """Arrays and the like travel beside the stream."""
    return False


def why_unpicklable(value: Any) -> str | None:
    """Why a value cannot be pickled, None if it can."""
    try:
        pickle.Pickler(_Nowhere(), 5, buffer_callback=_leave_out).dump(value)
    except MemoryError:
        raise
    except BaseException as error:  # the value's own code
        return text_of_error(error)
    return None


class PickleCheck:
    """Of one output stream of one task. The sending task's thread."""

    __slots__ = ("_fields", "_seen", "_who")

    def __init__(self, who: str, fields: Sequence[str]) -> None:
        self._who = who
        self._fields = fields
        self._seen: set[tuple[type, ...]] = set()

    def look(self, values: tuple[Any, ...]) -> None:
        """The first tuple of a batch. ComponentError names stream and field of a value that cannot be pickled."""
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
                    f"not be sent to another worker: {reason}; allowed is whatever pickle can take"
                )
