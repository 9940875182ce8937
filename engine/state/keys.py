"""Keys of state: whatever Python compares and hashes by value, stored alike if it is equal.

A key of text, whole numbers, bytes, None and tuples of these is its own form. Any other has a form made of these and of
lists, which no key holds: 1.0, True and Decimal(1) have that of 1. What is stored of it beside the form is its
*spelling*, a pickle, so that it is read back as it was set last.

Guarantees: two keys have one form if and only if they are one key of a dict, in whatever process. What is not equal to
itself, and what has no known equality, has no form.

Pure, but for classes of the user's that are pickled. Thread: any.
"""

from __future__ import annotations

import datetime
import enum
import marshal
import pickle
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

from squall.engine.errors import UnstorableError
from squall.engine.foreign.stable_hash import TIMES_OF_NUMPY, equality_owner, has_dataclass_equality
from squall.engine.foreign.text import repr_of, text_of_error, type_name

_EXPECTED = (
    "text, bytes, numbers, None, dates and times, UUIDs, enum members, or tuples, frozensets and frozen dataclasses of "
    "these"
)
_LEAST_INT, _MOST_INT = -(2**63), 2**63 - 1
PLAIN = frozenset({str, int})
_OWN_FORM = frozenset({str, int, bytes, type(None)})
_OR_TUPLE = _OWN_FORM | {tuple}
_MOST_DIGITS = 10_000
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 (of what has no zone)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Spelling:
    """Stands for a key that is not its own form, where its class may be one that only the topology can import."""

    form: Any
    """As it is stored; equal ones have the same."""
    pickled: bytes = field(compare=False)


def is_native(value: Any) -> bool:
    """Return True if SQLite gives back the same."""
    kind = type(value)
    if kind is int:
        return bool(_LEAST_INT <= value <= _MOST_INT)
    if kind is float:
        return bool(value and value == value)  # SQLite knows neither -0.0 nor NaN
    return kind is str and (value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value))


def has_own_form(key: Any) -> bool:
    """Return True for text, whole numbers, bytes, None and tuples of these."""
    return type(key) in _OWN_FORM or (
        type(key) is tuple and (_OWN_FORM.issuperset(map(type, key)) or all(map(has_own_form, key)))
    )


def have_own_forms(keys: Iterable[Any]) -> bool:
    """Whether each key is its own form; False may also mean that there are tuples in tuples. Takes half the time."""
    if PLAIN.issuperset(map(type, keys)):
        return True
    parts = chain.from_iterable([key for key in keys if type(key) is tuple])
    return _OR_TUPLE.issuperset(map(type, keys)) and _OWN_FORM.issuperset(map(type, parts))


def pack_key(key: Any) -> Any:
    """The form of a key as it is stored. ValueError if it has none."""
    if type(key) is Spelling:
        return key.form
    return pack_form(key if type(key) in PLAIN or has_own_form(key) else form_of(key))


def pack_form(form: Any) -> Any:
    """A form as it is stored: by `marshal` unless it is SQLite's own. Its second version writes equal ones alike."""
    return form if type(form) in PLAIN and is_native(form) else marshal.dumps(form, 2)


def spelt(key: Any) -> Any:
    """A key as the log has it."""
    return key if has_own_form(key) or type(key) is Spelling else Spelling(pack_key(key), pickle.dumps(key, 5))


def check_key(key: Any, who: str) -> None:
    """UnstorableError unless a key can be stored."""
    if has_own_form(key):
        return
    try:
        form_of(key)
        pickle.dumps(key, 5)
    except ValueError as error:
        raise UnstorableError(f"{who} set state[{repr_of(key)}]: {error}") from None
    except BaseException as error:  # its own code
        raise UnstorableError(
            f"{who} set state[{repr_of(key)}], which cannot be pickled: {text_of_error(error)}"
        ) from error


def mistakes_in(columns: Mapping[str, Sequence[Any]]) -> dict[int, str]:
    """What is wrong with values of fields that are to be keys, by row."""
    mistakes: dict[int, str] = {}
    for name, column in columns.items():
        for row, key in enumerate(() if have_own_forms(column) else column):
            try:
                form_of(key)
            except ValueError as error:
                mistakes[row] = f"key field {name!r} is {repr_of(key)}: {error}"
    return mistakes


def form_of(key: Any) -> Any:
    """The form of a key. ValueError says why there is none."""
    kind = type(key)
    if kind in _OWN_FORM:
        return key
    owner = equality_owner(kind)
    if (make := _FORMS.get(owner)) is not None:
        return make(key)
    name = [kind.__module__, kind.__qualname__]
    # What equals times of numpy, and hashes alike, differs by unit and by version.
    if name[0] == "numpy" and name[1] not in TIMES_OF_NUMPY and type(key.item()) is not kind:
        return form_of(key.item())
    if name[0].startswith("pandas.") and isinstance(key, datetime.datetime | datetime.timedelta):
        return _of_pandas(key)
    if owner is memoryview and key == (same := bytes(key)):  # one of signed bytes may differ
        return same
    if owner is object and isinstance(key, enum.Enum):
        return ["enum", *name, key.name]
    if has_dataclass_equality(owner):
        return ["dataclass", *name, *(form_of(getattr(key, each.name)) for each in fields(owner) if each.compare)]
    raise ValueError(f"{repr_of(key)} is of type {type_name(key)}; expected {_EXPECTED}")


def _of_number(key: Any) -> Any:
    if isinstance(key, Decimal) and key.is_finite() and abs(key.adjusted()) > _MOST_DIGITS:
        raise ValueError(f"{repr_of(key)} has more than {_MOST_DIGITS:,} digits")
    try:
        above, below = key.as_integer_ratio()
    except OverflowError:
        return float(key)  # infinite
    except ValueError:
        raise ValueError("nan is no key: it does not equal itself") from None
    return above if below == 1 else ["ratio", above, below]


def _of_frozenset(key: frozenset[Any]) -> Any:
    return ["frozenset", *sorted(marshal.dumps(form_of(each), 2) for each in frozenset.__iter__(key))]


def _of_datetime(key: datetime.datetime) -> Any:
    wall, offsets = _micros(key.replace(tzinfo=None) - _EPOCH), [key.replace(fold=fold).utcoffset() for fold in (0, 1)]
    if offsets[0] is None:
        return ["datetime", wall]
    if offsets[0] != offsets[1]:
        return ["clock change", wall, str(key.tzinfo)]  # equal only to itself, in either fold
    return ["moment", wall - _micros(offsets[0])]


def _of_pandas(key: Any) -> Any:
    if key != key:
        raise ValueError("NaT is no key: it does not equal itself")
    micros, rest = divmod(key.value, 1_000)
    kind = "span" if isinstance(key, datetime.timedelta) else "datetime" if key.tzinfo is None else "moment"
    return [kind, micros, *([rest] if rest else ())]


def _of_time(key: datetime.time) -> Any:
    since = datetime.timedelta(0, key.second, key.microsecond, 0, key.minute, key.hour)
    offset = key.utcoffset()
    return ["time", _micros(since)] if offset is None else ["moment of day", _micros(since - offset)]


def _micros(span: datetime.timedelta) -> int:
    return span // _MICROSECOND


_FORMS: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    bytes: lambda key: bytes(memoryview(key)),
    int: _of_number, float: _of_number, Decimal: _of_number, Fraction: _of_number,
    complex: lambda key: ["complex", *map(_of_number, (key.real, key.imag))] if key.imag else _of_number(key.real),
    tuple: lambda key: tuple(map(form_of, tuple.__iter__(key))),
    frozenset: _of_frozenset,
    datetime.date: lambda key: ["date", key.toordinal()],
    datetime.datetime: _of_datetime,
    datetime.time: _of_time,
    datetime.timedelta: lambda key: ["span", _micros(key)],
    uuid.UUID: lambda key: ["uuid", key.int],
}
"""Of each class that defines equality, also for its subclasses."""
