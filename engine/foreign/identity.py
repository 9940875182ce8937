"""Keys that recognise a message, whatever object its id is, and digests that recognise its values.

Guarantees
    * Hashing and comparing a key never raises; nor does pickling it, if its message can be recognised after a death.
    * A key is the id itself if that is plain: text, numbers, bytes, dates, and tuples of these. If the id's class
      defines equality, the key calls it, under guard. An id that cannot be hashed, or misbehaves, is recognised by
      its content.
    * A digest is the same in every process for a message that a source reads again: it is made of the values'
      pickles, without regard to parts that they share. One that cannot be pickled, or not twice alike, counts by its
      type alone.

Relies on: an id recognised by its content not being changed while its message is open; the cluster's seed of text
(`ipc.text_seed`) for the order of sets.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import pickle
import uuid
from collections.abc import Hashable, Sequence
from typing import Any

from squall.engine.foreign.text import type_name

_MARK = "squall: by content"
_ATOMS = frozenset({
    int, str, bytes, bool, type(None), uuid.UUID, decimal.Decimal, datetime.date, datetime.timedelta,
})


def key_of(message_id: Any, values: Any = None) -> Hashable:
    """The key of a message. With its `values`, other processes recognise it too; without, an id whose class defines no
    equality equals only itself."""
    kind = type(message_id)
    if kind in _ATOMS or (kind is tuple and _ATOMS.issuperset(map(type, message_id))):
        return message_id  # type: ignore[no-any-return]
    own = _equal(message_id, is_restored=values is not None)
    if own is not None:
        return own
    return Same(message_id) if values is None else (_MARK, digest_of((message_id, *values)))


def _equal(message_id: Any, is_restored: bool) -> Equal | None:
    """The key that goes by the id's own equality; None if its class defines none, or it does not work."""
    try:
        if getattr(type(message_id), "__hash__", None) == object.__hash__:
            return None
        own = Equal(message_id)
        return own if own == (_restored(own.pickled()) if is_restored else own) else None
    except BaseException:  # it misbehaves, so do not call it again
        return None


def are_keys(message_ids: Sequence[Any]) -> bool:
    """Whether each id is its own key, whatever its values; False may also mean that they are of rarer kinds."""
    return type(message_ids) is range or _ATOMS.issuperset(map(type, message_ids))


def id_of(key: Any) -> Any:
    """The id of a key, to show to people; the key itself if it does not hold the id."""
    return key.id if type(key) is Equal or type(key) is Same else key


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


class _Digest:
    """A file that only keeps a digest of its content."""

    def __init__(self) -> None:
        self.state = hashlib.blake2b(digest_size=16)

    def write(self, data: Any) -> int:
        self.state.update(data)
        return len(data)


def digest_of(values: Any) -> bytes:
    """A digest that is equal when a source reads the same message again."""
    whole = hashlib.blake2b(digest_size=16)
    for value in values:
        whole.update(_digest(value))
    return whole.digest()


def _digest(value: Any) -> bytes:
    by_type = type_name(value).encode()
    try:
        pickled = _pickled(value)
        return pickled if pickled == _pickled(value) else by_type
    except BaseException:  # it cannot be pickled, or holds itself
        return by_type


def _pickled(value: Any) -> bytes:
    digest = _Digest()
    pickler = pickle.Pickler(digest, 5)
    # Without a memo, equal parts are written alike whether they are one object or several.
    pickler.fast = True
    pickler.dump(value)
    return digest.state.digest()
