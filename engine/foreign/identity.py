"""Keys that recognise a message, whatever object its id is, and digests that recognise its values.

Guarantees
    * Hashing and comparing a key never raises; nor does pickling it, if its message can be recognised after a death.
    * A key is the id itself if that is plain: text, numbers, bytes, dates, and tuples of these. If the id's class
      defines equality, the key calls it, under guard. An id that cannot be hashed, or misbehaves, is recognised by
      its content.
    * A digest calls no method that users wrote. It is the same in every process for a message that a source reads
      again: it does not depend on addresses, the order of a set or shared parts.

Relies on: an id recognised by its content not being changed while its message is open.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import pickle
import struct
import types
import uuid
from collections.abc import Hashable, Sequence
from typing import Any

from squall.engine.foreign.text import type_name

_MARK = "squall: by content"
_DEPTH = 40
_OBJECTS = 1000
"""Most objects that one digest looks into: bounds its time. Later ones count by their type alone."""
_ATOMS = frozenset({
    int, str, bytes, bool, type(None), uuid.UUID, decimal.Decimal, datetime.date, datetime.timedelta,
})
_CONTAINERS = frozenset({tuple, list, dict, set, frozenset, bytearray})


def key_of(message_id: Any, values: Any = None) -> Hashable:
    """The key of a message. With its `values`, other processes recognise it too; without, an id whose class defines no
    equality equals only itself."""
    kind = type(message_id)
    if kind in _ATOMS or (kind is tuple and _ATOMS.issuperset(map(type, message_id))):
        return message_id  # type: ignore[no-any-return]
    return _key_of_rarer(message_id, values)


def are_keys(message_ids: Sequence[Any]) -> bool:
    """Whether each id is its own key, whatever its values; False may also mean that they are of rarer kinds."""
    return type(message_ids) is range or _ATOMS.issuperset(map(type, message_ids))


def _key_of_rarer(message_id: Any, values: Any) -> Hashable:
    if _is_plain(message_id, only_hashable=True):
        return message_id  # type: ignore[no-any-return]
    if values is not None and _is_plain(message_id, only_hashable=False):
        return _MARK, digest_of((message_id,))
    if _has_hash_of_its_own(type(message_id)):
        try:
            own = Equal(message_id)
            if hash(message_id) == own.hash and message_id == message_id and (values is None or own.pickled()):
                return own
        except BaseException:  # it misbehaves, so do not call it again
            return _by_content(message_id, values)
    return _by_content(message_id, values)


def _has_hash_of_its_own(kind: type) -> bool:
    for base in type.__dict__["__mro__"].__get__(kind):
        found = type.__dict__["__dict__"].__get__(base).get("__hash__", _MARK)
        if found is not _MARK:
            return found is not None and base is not object
    return False


def id_of(key: Any) -> Any:
    """The id of a key, to show to people; the key itself if it does not hold the id."""
    return key.id if type(key) is Equal or type(key) is Same else key


def _by_content(message_id: Any, values: Any) -> Hashable:
    return Same(message_id) if values is None else (_MARK, digest_of((message_id, tuple(values))))


def _is_plain(value: Any, only_hashable: bool, depth: int = 0) -> bool:
    """Whether it consists of builtin types only, whose methods never misbehave."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is float:
        return not only_hashable or value == value  # NaN is not even equal to itself
    if depth > _DEPTH or kind not in _CONTAINERS:
        return False
    if kind is bytearray:
        return not only_hashable
    if kind is not tuple and kind is not frozenset and only_hashable:
        return False
    parts = [*value, *value.values()] if kind is dict else value
    return all(_is_plain(part, only_hashable, depth + 1) for part in parts)


class Equal:
    """The key of an id whose class defines equality, which may raise."""

    __slots__ = ("hash", "id")

    def __init__(self, message_id: Any) -> None:
        self.id = message_id
        self.hash = hash(message_id)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        wanted = other.id if type(other) is Equal else other
        try:
            return wanted is self.id or bool(self.id == wanted)
        except BaseException:  # no answer counts as different
            return False

    def pickled(self) -> bytes:
        return pickle.dumps(self.id, 5)

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            return _restored, (self.pickled(),)
        except BaseException:  # pickling worked when the key was made, and fails now
            return _restored, (b"",)


def _restored(data: bytes) -> Hashable:
    try:
        return Equal(pickle.loads(data))
    except BaseException:  # its class has gone, or refuses: only this key is lost, it equals no other
        return _MARK, hashlib.blake2b(data, digest_size=16).digest()


class Same:
    """The key of an id that equals only itself."""

    __slots__ = ("id",)

    def __init__(self, message_id: Any) -> None:
        self.id = message_id

    def __hash__(self) -> int:
        return id(self.id)

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other.id is self.id


def digest_of(values: Any) -> bytes:
    """A digest that is equal when a source reads the same message again."""
    state = hashlib.blake2b(digest_size=16)
    _feed(state, tuple(values), 0, [_OBJECTS])
    return state.digest()


def _feed(state: Any, value: Any, depth: int, left: list[int]) -> None:
    kind = type(value)
    if depth > _DEPTH:
        state.update(b"...")
    elif issubclass(kind, str):
        _feed_bytes(state, b"s", str.encode(value, "utf-8", "surrogatepass"))
    elif issubclass(kind, bytes | bytearray | memoryview):
        _feed_bytes(state, b"b", value)
    elif issubclass(kind, int):
        _feed_bytes(state, b"i", int.to_bytes(value, int.bit_length(value) // 8 + 1, "little", signed=True))
    elif issubclass(kind, float):
        _feed_bytes(state, b"f", struct.pack("d", value))
    elif issubclass(kind, tuple | list):
        base = tuple if issubclass(kind, tuple) else list
        state.update(b"l%d:" % base.__len__(value))
        for part in base.__iter__(value):
            _feed(state, part, depth + 1, left)
    elif issubclass(kind, dict):
        _feed_unordered(state, [(key, part) for key, part in dict.items(value)], depth, left)
    elif issubclass(kind, set | frozenset):
        base_set = set if issubclass(kind, set) else frozenset
        _feed_unordered(state, [(part,) for part in base_set.__iter__(value)], depth, left)
    else:
        _feed_object(state, value, depth, left)


def _feed_bytes(state: Any, tag: bytes, data: Any) -> None:
    size = memoryview(data).nbytes
    state.update(b"%b%d:" % (tag, size))
    state.update(data)


def _feed_unordered(state: Any, parts: list[tuple[Any, ...]], depth: int, left: list[int]) -> None:
    digests = []
    for part in parts:
        inner = hashlib.blake2b(digest_size=16)
        for one in part:
            _feed(inner, one, depth + 1, left)
        digests.append(inner.digest())
    state.update(b"u%d:" % len(digests) + b"".join(sorted(digests)))


def _feed_object(state: Any, value: Any, depth: int, left: list[int]) -> None:
    kind = type(value)
    _feed_bytes(state, b"o", type_name(value).encode())
    left[0] -= 1
    if left[0] < 0 or issubclass(kind, type):
        return
    if type.__dict__["__flags__"].__get__(kind) & _MADE_IN_PYTHON:
        _feed_unordered(state, _fields(value), depth, left)
        return
    try:
        data = pickle.dumps(value, 5)
        _feed_bytes(state, b"p", data if data == pickle.dumps(value, 5) else b"")
    except BaseException:  # it counts by its type alone
        state.update(b"?")


def _fields(value: Any) -> list[tuple[Any, ...]]:
    """(name, value) pairs in the `__dict__` and the slots of an object whose class was made in Python."""
    try:
        found = list(dict.items(object.__getattribute__(value, "__dict__")))
    except BaseException:  # it has no `__dict__`
        found = []
    for base in type.__dict__["__mro__"].__get__(type(value)):
        if type.__dict__["__flags__"].__get__(base) & _MADE_IN_PYTHON:
            for name, member in type.__dict__["__dict__"].__get__(base).items():
                if type(member) is types.MemberDescriptorType and _is_set(member, value):
                    found.append((name, member.__get__(value)))
    return found


_MADE_IN_PYTHON = 1 << 9
"""Flag Py_TPFLAGS_HEAPTYPE of a class: pickling its objects may run users' code."""


def _is_set(member: types.MemberDescriptorType, value: Any) -> bool:
    try:
        member.__get__(value)
    except BaseException:  # the slot is empty
        return False
    return True
