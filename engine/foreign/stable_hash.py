"""Hashes values: the same in every process, interpreter and run, in agreement with `==`.

Guarantees: `a == b` implies `stable_hash(a) == stable_hash(b)` for the types below, across numeric types too
(1, 1.0, True and Decimal(1) are one key) and across times and spans without a zone: those of numpy, in any unit down to
nanoseconds, that Python can represent. Python's own `hash` gives neither: it salts text per process.

Relies on: CPython's numeric hash, which is specified (modulus 2**61 - 1) and not salted.

Types: None, bool, numbers, text, bytes-like, tuples and lists, sets and frozensets, dicts, dates and times, UUIDs, enum
members, dataclasses with the equality that `@dataclass` makes, and arrays (`array.array`, numpy) by content. Any other
type is refused by name: hashing it by identity would send equal values to different tasks. So is a class that defines
`__eq__`, whatever its base: no hash is known to agree with that.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import numbers
import types
import uuid
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from squall.engine.errors import ComponentError
from squall.engine.foreign.text import repr_of, type_name

_MASK = (1 << 64) - 1
_NAN = 0x7FF8
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def _mix(state: int, value: int) -> int:
    """One step of the 64-bit splitmix finaliser (Steele, Lea, Flood 2014) over an accumulated state."""
    z = (state ^ value) + 0x9E3779B97F4A7C15 & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


def _of_bytes(data: bytes, salt: int) -> int:
    # CRC-32 runs at memory speed in C; one multiplication (Knuth's, by 2**64 / golden ratio) spreads its bits upwards.
    spread = (zlib.crc32(data) + salt) * 0x9E3779B97F4A7C15 & _MASK
    return spread ^ spread >> 29


def _of_sequence(values: Any, salt: int) -> int:
    state = salt
    for value in values:
        state = _mix(state, stable_hash(value))
    return _mix(state, len(values))


def _of_unordered(values: Any, salt: int) -> int:
    total = 0
    for value in values:
        total = total + _mix(salt, stable_hash(value)) & _MASK
    return _mix(salt, total)


def _of_time(value: datetime.datetime | datetime.time) -> int:
    if value != value:
        return stable_hash(None)  # NaT of pandas, which is a datetime without an offset
    # Equality looks at no fold, unless zones differ: then at the offset before a clock is set back, as `hash` does.
    value = value.replace(fold=0)
    offset = value.utcoffset()
    is_date = isinstance(value, datetime.datetime)
    if offset is None and not is_date:
        return _of_bytes(value.replace(tzinfo=None).isoformat().encode(), 8)
    # 12:00 UTC equals 13:00 at UTC+1. Avoid `astimezone`: it fails at the ends of the calendar.
    days = value.toordinal() - _EPOCH if isinstance(value, datetime.datetime) else 0
    since = datetime.timedelta(days, value.second, value.microsecond, 0, value.minute, value.hour)
    return _of_span(since) if offset is None else _mix(14, _of_span(since - offset))


def _of_span(span: datetime.timedelta) -> int:
    """Of the nanoseconds: the number that is in a row, if it was in a numpy column of times or spans in nanoseconds."""
    return stable_hash(((span.days * 86400 + span.seconds) * 10**6 + span.microseconds) * 1000)


_MADE = dataclasses.make_dataclass("_Made", ["field"]).__eq__
"""What `@dataclass` makes. Such a function has no source file."""
TIMES_OF_NUMPY = frozenset({"datetime64", "timedelta64"})


def equality_owner(kind: type) -> type:
    """The class that defines the equality of `kind`."""
    return next(base for base in kind.__mro__ if "__eq__" in vars(base))


def has_dataclass_equality(owner: type) -> bool:
    """Return True if `@dataclass` made the equality that a class defines."""
    equality = vars(owner)["__eq__"]
    return dataclasses.is_dataclass(owner) and isinstance(equality, types.FunctionType) and (
        equality.__code__.co_filename == _MADE.__code__.co_filename
    )


def stable_hash(value: Any) -> int:
    """Hash `value` to 64 bits; ComponentError names a type that has no hash."""
    kind: Any = type(value)
    if kind is str:  # first, because most keys are text
        return _of_bytes(value.encode("utf-8", "surrogatepass"), 1)
    if kind is int:
        return _mix(2, hash(value) & _MASK)
    return (_HASHES.get(kind) or _hash_of(kind))(value)


@lru_cache(1_000)
def _hash_of(kind: type) -> Callable[[Any], int]:
    """Return how values of a class that is not in the table are hashed. ComponentError for one that defines equality in
    its own code."""
    owner = equality_owner(kind)
    is_own = isinstance(vars(owner)["__eq__"], types.FunctionType) and not has_dataclass_equality(owner)
    if is_own and owner not in _HASHES:
        raise ComponentError(
            f"fields grouping cannot use a value of type {kind.__qualname__} as a key: {owner.__qualname__} defines "
            "__eq__ itself, so values that it calls equal may go to different tasks; emit what it compares as a field "
            "of its own, and group by that"
        )
    of_rest = _of_number if issubclass(kind, numbers.Number) else _of_rarer
    return next((_HASHES[base] for base in kind.__mro__ if base in _HASHES), of_rest)


def key_hash(key: Any, text_hash: Callable[[str], int]) -> int:
    """The number whose remainder by the number of tasks is the index of the one that has a key. ComponentError if it
    has no hash."""
    if key.__class__ is str:
        return text_hash(key)
    hashed = stable_hash(key)
    # Text of a class of its own equals plain text.
    return text_hash(str.__str__(key)) if isinstance(key, str) else hashed


def _of_number(value: Any) -> int:
    if type(value).__module__ == "numpy" and type(value).__name__ in TIMES_OF_NUMPY:
        return stable_hash(value.tolist())
    if (isinstance(value, decimal.Decimal) and value.is_snan()) or value != value:
        return _NAN  # NaN never equals itself: any constant will do, if it is the same everywhere
    return _mix(2, hash(value) & _MASK)


def _of_rarer(value: Any) -> int:
    if isinstance(value, enum.Enum):
        return _mix(12, stable_hash((type(value).__qualname__, value.name)))
    owner = equality_owner(type(value))
    if dataclasses.is_dataclass(owner) and not isinstance(value, type):
        # Two objects are equal if their class is the same and the fields of the class that owns the equality are.
        fields = [getattr(value, f.name) for f in dataclasses.fields(owner) if f.compare]
        return _mix(13, stable_hash((type(value).__qualname__, fields)))
    to_list = getattr(value, "tolist", None)
    if callable(to_list):
        return stable_hash(to_list())
    raise ComponentError(
        f"fields grouping cannot use a value of type {type_name(value)} as a key: {repr_of(value)}; use text, "
        "bytes, numbers, None, dates, UUIDs, enums, dataclasses, arrays, or tuples, lists, sets and dicts of these"
    )


_HASHES: dict[type, Callable[[Any], int]] = {
    str: lambda value: _of_bytes(value.encode("utf-8", "surrogatepass"), 1),
    **dict.fromkeys((int, float, bool, complex, decimal.Decimal, fractions.Fraction), _of_number),
    **dict.fromkeys((bytes, bytearray, memoryview), lambda value: _of_bytes(bytes(value), 3)),
    type(None): lambda value: _mix(4, 0),
    **dict.fromkeys((tuple, list), lambda value: _of_sequence(value, 5)),
    **dict.fromkeys((set, frozenset), lambda value: _of_unordered(value, 6)),
    dict: lambda value: _of_unordered(list(value.items()), 7),
    **dict.fromkeys((datetime.datetime, datetime.time), _of_time),
    datetime.timedelta: _of_span,
    datetime.date: lambda value: _of_span(datetime.timedelta(value.toordinal() - _EPOCH)),
    uuid.UUID: lambda value: _mix(11, stable_hash(value.int)),
}
"""Of classes whose equality is known to agree with the hash, also for their subclasses that define no other."""
