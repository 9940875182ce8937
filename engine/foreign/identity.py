"""Keys that recognise a message, whatever object its id is, and digests that recognise its values.

Guarantees
    * Hashing, comparing and pickling a key never raises, and runs no code of the user's.
    * A key is the id itself if that is plain: text, numbers, bytes, dates, and tuples of these. An id of another class
      that defines equality is recognised by its content; any other by its values as well.
    * A digest is the same in every process for a message that a source reads again: it is made of the values'
      pickles, without regard to parts that they share. One that cannot be pickled, or not twice alike, counts by its
      type alone.

Relies on: an id recognised by its content not being changed while its message is open, and its pickle holding what
tells it from others; the cluster's seed of text (`ipc.hash_seed`) for the order of sets.
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
    content = None if getattr(kind, "__hash__", None) is object.__hash__ else _content(message_id)
    if content is not None:
        return _MARK, content
    return _Same(message_id) if values is None else (_MARK, digest_of((message_id, *values)))


def are_keys(message_ids: Sequence[Any]) -> bool:
    """Whether each id is its own key, whatever its values; False may also mean that they are of rarer kinds."""
    return type(message_ids) is range or _ATOMS.issuperset(map(type, message_ids))


class _Same:
    """The key of an id that equals only itself."""

    __slots__ = ("id",)

    def __init__(self, message_id: Any) -> None:
        self.id = message_id

    def __hash__(self) -> int:
        return id(self.id)

    def __eq__(self, other: object) -> bool:
        return type(other) is _Same and other.id is self.id


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
        whole.update(_content(value) or type_name(value).encode())
    return whole.digest()


def _content(value: Any) -> bytes | None:
    """A digest of the value's pickle; None if it cannot be pickled, or not twice alike."""
    try:
        pickled = _pickled(value)
        return pickled if pickled == _pickled(value) else None
    except BaseException:  # users' code, or a value that holds itself
        return None


def _pickled(value: Any) -> bytes:
    digest = _Digest()
    pickler = pickle.Pickler(digest, 5)
    # Without a memo, equal parts are written alike whether they are one object or several.
    pickler.fast = True
    pickler.dump(value)
    return digest.state.digest()
