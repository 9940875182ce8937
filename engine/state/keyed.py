"""`self.state` of a stateful bolt: a mapping by key whose changes are committed with the records that made them.

::

    State, a dict of what was used since the last commit
       │ first read of a key        ▲ commit: what differs
       ▼                            │
    cache of stored values, most of them or all
       │ a key that is not there    ▲ the same
       ▼                            │
    the task's store, on disk: a table of keys, and before it a log of what was changed lately

Guarantees
    * What is set, changed (in place too, such as a list) or removed between two commits is in the next one, or
      `roll_back` takes it back.
    * Keys are those that equal ones of are stored alike (`engine.state.task_store.is_key`); another is refused.

Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from itertools import islice, takewhile
from typing import Any

from squall.engine.state.task_store import GONE, MISSING, TaskStore, check_key, is_key, pack_value, unpack_value

LOADED_AT_ONCE = 20_000
"""A store with fewer keys is read when it is opened, which takes 20 ms."""
COMMITS_IN_LOG, MOST_PENDING, _AT_ONCE = 256, 20_000, 200
"""A changed key gets to its place after so many commits, sooner if more than so many keys wait: a log that is read in
some 50 ms after a death."""
_used = dict.get


class State(dict[Any, Any]):
    """The state of one task."""

    __slots__ = ("_cache", "_is_whole", "_kept", "_removed", "_store", "commits", "pending")

    def __init__(self, store: TaskStore, kept: int) -> None:
        """About `kept` keys at most are kept in memory."""
        super().__init__()
        self._store, self._kept = store, kept
        self._removed: set[Any] = set()
        self._cache: dict[Any, Any] = {}
        """Key -> its value as it is stored."""
        self.pending: dict[Any, int] = {}
        """Keys of the log that are not in their places -> the commit that changed them first."""
        self._is_whole = store.count(LOADED_AT_ONCE) < min(LOADED_AT_ONCE, kept)
        """True if the cache has every key."""
        if self._is_whole:
            self._cache = dict(store.items())
        self.commits = 0
        """Number of the next commit."""
        for number, changes in store.log():
            self._note(number, changes)

    # ---- what the component calls; what is not here is dict's ----

    def get(self, key: Any, default: Any = None) -> Any:
        value = _used(self, key, MISSING)
        return self._found(key, default) if value is MISSING else value

    def __missing__(self, key: Any) -> Any:
        value = self._found(key, MISSING)
        if value is MISSING:
            raise KeyError(key)
        return value

    def _found(self, key: Any, default: Any) -> Any:
        """The value of a key that was not used yet."""
        stored = self._cache.get(key, MISSING)
        if stored is MISSING:
            if self._is_whole or not is_key(key):
                return default
            stored = self._cache[key] = self._store.get(key)
        if stored is GONE or key in self._removed:
            return default
        value = self[key] = unpack_value(key, stored, self._store.who)
        return value

    def __contains__(self, key: object) -> bool:
        return self.get(key, MISSING) is not MISSING

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        super().__delitem__(key)
        self._removed.add(key)

    def pop(self, key: Any, *default: Any) -> Any:
        found = self.get(key, MISSING)
        if found is not MISSING:
            del self[key]
            return found
        if default:
            return default[0]
        raise KeyError(key)

    popitem, setdefault = MutableMapping.popitem, MutableMapping.setdefault
    __eq__, __ne__ = MutableMapping.__eq__, object.__ne__
    __hash__ = None

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def copy(self) -> dict[Any, Any]:
        return dict(self.items())

    def __or__(self, other: Any) -> dict[Any, Any]:
        return {**self, **other}

    def __repr__(self) -> str:
        return repr(self.copy())

    def __reversed__(self) -> Iterator[Any]:
        self._use_all()
        return super().__reversed__()

    def _use_all(self) -> None:
        """Have all keys among those that are used."""
        if not self._is_whole:
            cache = self._cache
            for key, stored in self._store.items():
                cache.setdefault(key, stored)  # the log's are newer
            self._is_whole = True
        for key, stored in self._cache.items():
            if stored is not GONE and key not in self._removed and _used(self, key, MISSING) is MISSING:
                self[key] = unpack_value(key, stored, self._store.who)

    def __iter__(self) -> Iterator[Any]:
        self._use_all()
        return super().__iter__()

    def __len__(self) -> int:
        self._use_all()
        return super().__len__()

    def keys(self) -> Any:
        self._use_all()
        return super().keys()

    def values(self) -> Any:
        self._use_all()
        return super().values()

    def items(self) -> Any:
        self._use_all()
        return super().items()

    # ---- what its task calls ----

    def changes(self, all_used: bool = False) -> list[tuple[Any, Any]]:
        """What differs from what is stored, or all that was used: keys and packed values, as in the log. Raises
        ComponentError for what cannot be stored."""
        cache = self._cache
        changed = []
        for key, value in super().items():
            kind, before = value.__class__, cache.get(key, MISSING)
            if before.__class__ is kind and (kind is int or kind is str) and before == value and not all_used:
                continue
            packed = pack_value(key, value)
            if before.__class__ is packed.__class__ and before == packed and not all_used:
                continue
            if key.__class__ is not str:
                check_key(key, self._store.who)
            changed.append((key, packed))
        for key in self._removed.difference(super().keys()) if self._removed else ():
            check_key(key, self._store.who)
            changed.append((key, GONE))
        return changed

    def to_place(self, changed: int) -> list[tuple[Any, Any]]:
        """Keys that are to be put in their places now, the longest in the log first, with their packed values; at most
        twice as many as were `changed`, and some, so that no commit takes long."""
        due, excess = self.commits - COMMITS_IN_LOG, len(self.pending) - MOST_PENDING
        first = takewhile(lambda item: item[1][1] < due or item[0] < excess, enumerate(self.pending.items()))
        return [(key, self._cache[key]) for _, (key, _) in islice(first, 2 * changed + _AT_ONCE)]

    def all_pending(self, but: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Keys of the log with their packed values, but for these."""
        given = {key for key, _ in but} if self.pending else ()
        return [(key, self._cache[key]) for key in self.pending if key not in given]

    def forget(self, keys: list[Any]) -> None:
        """Note that keys are stored no longer."""
        for key in keys:
            self._cache.pop(key, None)

    def committed(self, changes: list[tuple[Any, Any]], placed: list[tuple[Any, Any]], logged: bool = True) -> None:
        """Note that changes are in the log, or in their places at once, and others in their places."""
        cache, pending = self._cache, self.pending
        for key, _ in placed:
            del pending[key]
        if changes:
            self._note(self.commits, changes)
        if not logged:
            self.pending.clear()
        used = super().__len__()
        self.roll_back()
        if len(cache) - len(pending) > self._kept:
            self._is_whole = False
            for key in [key for key in islice(cache, 2 * used + _AT_ONCE) if key not in pending]:
                del cache[key]

    def _note(self, number: int, changes: list[tuple[Any, Any]]) -> None:
        self._cache.update(changes)
        for key, _ in changes:
            self.pending.setdefault(key, number)
        self.commits = number + 1

    def oldest_pending(self, but: list[tuple[Any, Any]]) -> int:
        """The commit from which on the log is needed, once these keys are in their places."""
        return next(islice(self.pending.values(), len(but), None), self.commits)

    def roll_back(self) -> None:
        """Take back what was changed and is not committed."""
        super().clear()
        self._removed.clear()
