"""Bolts with state: the base classes that users derive from, and their `self.state`, a mapping by key whose changes are
committed with the records that made them. What they promise is in docs/state.md; `engine.state.stateful_task` keeps it.

::

    State, a dict of what was used since the last commit
       │ first read of a key          ▲ commit: what differs
       ▼                              │
    cache of stored values: all, or   │
    those that were used lately       │
       │ a key that is not there      ▼
       ▼                         log, in memory and in the task's store
    table of keys, in the store  ◄── later, in the order of keys

Guarantees
    * What is set, changed (in place too, such as a list) or removed between two commits is in the next one, or
      `roll_back` takes it back.
    * A key is whatever equal ones of are stored alike (`engine.state.keys`); another is refused. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from itertools import islice
from typing import Any

from squall.engine.api.component import BasicBolt, BatchBolt
from squall.engine.state.keys import check_key, pack_key
from squall.engine.state.task_store import GONE, MISSING, TaskStore, pack_value, unpack_value

LOADED_AT_ONCE = 20_000
"""A store with fewer keys is read when it is opened, which takes 20 ms."""
COMMITS_IN_LOG, KEYS_IN_LOG, BYTES_IN_LOG, _AT_ONCE = 256, 10_000, 1 << 18, 200
"""Changed keys get to their places after so many commits, keys or bytes: a log that is read in some 20 ms after a
death. They go in the order of their places, since many share a page: half the time for each, a third of the writing."""
_BIG = 2**63
_used = dict.get


class State(dict[Any, Any]):
    """The state of one task."""

    __slots__ = (
        "_begun", "_bytes", "_cache", "_due", "_is_whole", "_kept", "_logged", "_older", "_placed", "_removed",
        "_store", "commits",
    )

    def __init__(self, store: TaskStore, kept: int) -> None:
        """About `kept` keys at most are kept in memory."""
        super().__init__()
        self._store, self._kept = store, kept
        self._removed: set[Any] = set()
        self._cache: dict[Any, Any] = {}
        """Key -> its value as it is stored."""
        self._older: dict[Any, Any] = {}
        """What the cache was before, if it does not have every key."""
        self._logged: dict[Any, Any] = {}
        """What the log has since `_begun`, a commit."""
        self._due: dict[Any, Any] = {}
        """What it had before, in the order of places; so many of these keys are `_placed`."""
        self._begun = self._placed = self._bytes = 0
        self._is_whole = store.count(LOADED_AT_ONCE) < min(LOADED_AT_ONCE, kept)
        """True if the cache has every key."""
        if self._is_whole:
            self._cache = dict(store.items())
        self.commits = 0
        """Number of the next commit."""
        for number, changes in store.log():
            self.commits = number
            self._note(changes)

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
            if self._is_whole:
                return default
            stored = self._cache[key] = self._stored(key)
        if stored is GONE or key in self._removed:
            return default
        value = unpack_value(key, stored, self._store.who) if stored.__class__ is bytes else stored
        self[key] = value
        return value

    def _stored(self, key: Any) -> Any:
        for newer in (self._logged, self._due, self._older):
            if (stored := newer.get(key, MISSING)) is not MISSING:
                return stored
        return self._store.get(key)

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

    def discard(self, key: Any) -> None:
        """Remove a key, whether it is there or not. Unlike `pop`, this does not read its value from the store."""
        super().pop(key, None)
        self._removed.add(key)

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
            self._cache = dict(self._store.items()) | self._due | self._logged
            self._is_whole, self._older = True, {}
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

    def changes(self, all_used: bool = False) -> dict[Any, Any]:
        """What differs from what is stored, or all that was used: keys and packed values, as in the log. Raises
        UnstorableError for what cannot be stored."""
        cache = self._cache
        changed: dict[Any, Any] = {}
        for key, value in super().items():
            kind, before = value.__class__, cache.get(key, MISSING)
            # Most values are counts: without a call for each.
            packed = value if kind is int and -_BIG < value < _BIG else pack_value(key, value)
            if before.__class__ is packed.__class__ and before == packed and not all_used:
                continue
            if key.__class__ is not str:
                check_key(key, self._store.who)
            changed[key] = packed
        for key in self._removed.difference(super().keys()) if self._removed else ():
            check_key(key, self._store.who)
            changed[key] = GONE
        return changed

    def to_place(self, changed: int) -> list[tuple[Any, Any]]:
        """Keys that are to be put in their places now, with their packed values; about as many as were `changed`, so
        that no commit takes long, and the log does not grow."""
        commits, keys, size_bytes = self.commits - self._begun, len(self._logged), self._bytes
        if not self._due and (commits >= COMMITS_IN_LOG or keys >= KEYS_IN_LOG or size_bytes >= BYTES_IN_LOG):
            self._due, self._logged, self._begun, self._bytes = _in_order(self._logged), {}, self.commits, 0
        return list(islice(self._due.items(), self._placed, self._placed + changed + _AT_ONCE))

    def log_begins(self, placed: list[tuple[Any, Any]]) -> int:
        """The commit from which on the log is needed, once these keys are in their places."""
        return self._begun if self._placed + len(placed) == len(self._due) else 0

    def in_log(self) -> dict[Any, Any]:
        """All keys of the log, with their packed values."""
        return self._due | self._logged

    def forget(self, keys: list[Any]) -> None:
        """Note that keys are stored no longer."""
        for key in keys:
            self._cache.pop(key, None)
            self._older.pop(key, None)

    def committed(self, changes: dict[Any, Any], placed: list[tuple[Any, Any]], log_bytes: int | None) -> None:
        """Note that changes take so much of the log, and that others are in their places; None: all are."""
        self._placed += len(placed)
        self._bytes += log_bytes or 0
        if changes:
            self._note(changes)
        if log_bytes is None:
            self._logged = {}
        if self._placed == len(self._due) or log_bytes is None:
            self._placed, self._due = 0, {}
        self.roll_back()
        if len(self._cache) > (self._kept if self._is_whole else self._kept // 2):
            self._is_whole, self._older, self._cache = False, self._cache, {}

    def _note(self, changes: dict[Any, Any]) -> None:
        self._cache.update(changes)
        self._logged.update(changes)
        self.commits += 1

    def roll_back(self) -> None:
        """Take back what was changed and is not committed."""
        self.__class__ = State
        super().clear()
        self._removed.clear()


class CheckedState(State):
    """Until it is committed or rolled back, refuses what cannot be stored where it is set: a check for each change."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)  # first: a bolt may swallow the error, and then the commit has it
        check_key(key, self._store.who)
        pack_value(key, value)


def _in_order(items: dict[Any, Any]) -> dict[Any, Any]:
    """The same in about the order of their places in the table."""
    try:
        return {key: items[key] for key in sorted(items)}
    except TypeError:  # of several kinds
        return {key: items[key] for key in sorted(items, key=lambda key: (type(pack_key(key)).__name__, pack_key(key)))}


class _WithState:
    """What both kinds have in common."""

    state: State
    """A mapping of this task, by key: whatever Python compares and hashes by value. Values are whatever can be pickled.
    Set before `prepare`."""
    state_ttl_secs: float | None = None
    """Time to live: a value that was not used for so long is removed, soon after. None: never."""
    state_kept_keys: int = 1_000_000
    """Keys that are kept in memory; others are read from the store when they are asked for."""
    durability: str = "process"
    """What committed state survives: "process" every death of processes, "full" a power loss, too."""


class StatefulBolt(_WithState, BasicBolt):
    """A basic bolt whose `self.state` counts each tuple once, under every fault: a tuple that comes again after it was
    absorbed is acked without `execute`, and what it emitted is emitted again as it was.

    Changes of `self.state` and emits are committed together, and then the tuples are acked. An `execute` that raises
    leaves no change."""


class StatefulBatchBolt(_WithState, BatchBolt):
    """The same for batches: `execute_batch` sees the rows that its state has not absorbed. Leave the state of rows
    alone that you fail by `collector.fail(row)`: the others are committed."""


def mistake_of(component: Any) -> str | None:
    """What is wrong with the settings of a bolt with state; None if nothing is."""
    ttl, kept = component.state_ttl_secs, component.state_kept_keys
    if ttl is not None and not (isinstance(ttl, int | float) and 0 < ttl < 1e9):
        return f"has state_ttl_secs {ttl!r:.80}; allowed: seconds above 0, or None"
    if not (isinstance(kept, int) and kept > 0):
        return f"has state_kept_keys {kept!r:.80}; allowed: a number from 1 up"
    return None
