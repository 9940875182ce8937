"""Nimbus's books: topologies, assignments and deaths, held in memory as they are stored.

Guarantees
    * When a method returns, its change is stored; all changes inside one `transaction` are stored together, or none is.
    * The ids of deleted topologies are kept (the newest DELETED_KEPT): the remains of a deleted topology may be
      removed, those of an unknown one must not.
    * Of a topology's deaths the newest are kept, and all are counted.

Relies on: a store, which reads all rows when it is opened, and writes those that a transaction has changed
(`scheduler.nimbus.store`, `scheduler.nimbus.zookeeper`). Thread: Nimbus's loop.

Rows, whose names sort in the order in which things came::

    known                  the next topology's number, and the ids of deleted ones
    t00000007              the record of topology number 7
    a00000007              its assignment
    d00000007.00000012     its twelfth death
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import Assignment, RestartRecord, TopologyRecord
from squall.scheduler.nimbus.topology_life import RESTARTS_KEPT

BUSY_TIMEOUT_SECS = 5.0
"""Longest wait for a store that is locked (by an operator's sqlite3 shell) or away before Nimbus gives up and ends."""
DELETED_KEPT = 1000
"""Ids of deleted topologies kept: plenty, since their remains go within seconds, or at Nimbus's next start."""
ADVICE = "nothing was stopped or removed: put back a copy of it, or run `squall down` and begin in another directory"


class StoreError(ClusterError):
    """The store cannot be read or written. Nimbus ends rather than go on with state that is not stored."""


class StoredTopology(NamedTuple):
    """One topology."""

    record: TopologyRecord
    assignment: Assignment | None
    restarts: list[RestartRecord]
    """The newest deaths, oldest first."""
    restarts_total: int


class _Known(msgspec.Struct, frozen=True):
    """What outlives topologies."""

    next_number: int = 1
    deleted: list[str] = []


_KNOWN, _DEATH = "known", "d"
_KINDS: dict[str, type[msgspec.Struct]] = {"k": _Known, "t": TopologyRecord, "a": Assignment, _DEATH: RestartRecord}
"""First letter of a row's name -> what is in it."""


def rows_of(bodies: Iterable[tuple[str, bytes]]) -> dict[str, Any]:
    """The rows that a store has read. ValueError if one does not decode."""
    rows = {}
    for name, body in sorted(bodies):
        try:
            rows[name] = msgspec.msgpack.decode(body, type=_KINDS[name[:1]])
        except (KeyError, ValueError) as error:
            raise ValueError(f"row {name} does not decode: {error}") from error
    return rows


def has_other_than_deaths(names: Iterable[str]) -> bool:
    return any(not name.startswith(_DEATH) for name in names)


def refuse_traces(run_dir: RunDir, store: str) -> None:
    """StoreError if a directory whose store is not there has traces of topologies: running work must not be forgotten
    in silence."""
    for directory, pattern in (
        (run_dir.boards, "*"), (run_dir.code, "[0-9a-f]*"), (run_dir.path / "n", "*.worker"),
    ):
        if trace := next(directory.glob(pattern), None):
            raise StoreError(f"{store} is missing, though there is {trace}; {ADVICE}")


class Books(ABC):
    """Open books. Close them, or use them as a context manager."""

    deaths_kept: ClassVar[int] = RESTARTS_KEPT

    def __init__(self, rows: dict[str, Any]) -> None:
        self._rows = rows
        self._in_transaction = False

    @abstractmethod
    def close(self) -> None:
        """Close the store. May be called again."""

    @abstractmethod
    def _write(self, changes: Mapping[str, bytes | None], before: Collection[str]) -> None:
        """Write new bodies of rows, None removes one; all together or none. `before`: the rows that are stored.
        StoreError if that fails."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Store all changes of the block, or none if an error leaves it. An inner transaction joins the outer. A block
        that changes nothing writes nothing: a full disk must not end a Nimbus that has nothing to store."""
        if self._in_transaction:
            yield
            return
        before, self._in_transaction = dict(self._rows), True
        try:
            yield
            changes: dict[str, bytes | None] = dict.fromkeys(before.keys() - self._rows.keys())
            for name, row in self._rows.items():
                if before.get(name) is not row:
                    changes[name] = msgspec.msgpack.encode(row)
            if changes:
                self._write(changes, before)
        except BaseException:
            self._rows = before
            raise
        finally:
            self._in_transaction = False

    # ---- topologies ----

    def next_number(self) -> int:
        """The number of the next submitted topology. Rises with every `put_topology` of a new id, never falls."""
        return self._known.next_number

    def put_topology(self, record: TopologyRecord) -> None:
        """Add a topology, or replace its record."""
        with self.transaction():
            number = self._number(record.id)
            if number is None:
                number = f"{self._known.next_number:08}"
                self._rows[_KNOWN] = replace(self._known, next_number=self._known.next_number + 1)
            self._rows[f"t{number}"] = record

    def delete_topology(self, topology_id: str) -> None:
        """Forget a topology, its assignment and its deaths; its id is kept as deleted."""
        with self.transaction():
            number = self._number(topology_id)
            self._rows = {name: row for name, row in self._rows.items() if name[1:].partition(".")[0] != number}
            self.put_deleted(topology_id)

    def put_deleted(self, topology_id: str) -> None:
        """Note that the remains of this topology may be removed."""
        with self.transaction():
            if topology_id not in self._known.deleted:
                kept = [*self._known.deleted, topology_id][-DELETED_KEPT:]
                self._rows[_KNOWN] = replace(self._known, deleted=kept)

    def deleted(self) -> set[str]:
        """Ids of deleted topologies, as far as they are kept."""
        return set(self._known.deleted)

    def topologies(self) -> list[StoredTopology]:
        """All topologies, in the order of their submission."""
        return [
            StoredTopology(record, self._rows.get(f"a{name[1:]}"), list(deaths.values()), _count(deaths))
            for name, record in self._rows.items() if name[0] == "t"
            for deaths in [self._deaths(name[1:])]
        ]

    def put_assignment(self, assignment: Assignment) -> None:
        """Add or replace a topology's assignment."""
        number = self._number(assignment.topology_id)
        if number is not None:
            with self.transaction():
                self._rows[f"a{number}"] = assignment

    # ---- deaths ----

    def add_restart(self, topology_id: str, restart: RestartRecord) -> None:
        """Add a death, or replace the one of the same slot and incarnation (when its replacement got ready)."""
        number = self._number(topology_id)
        if number is None:
            return
        deaths, key = self._deaths(number), (restart.slot, restart.incarnation)
        place = next((name for name, death in deaths.items() if (death.slot, death.incarnation) == key), None)
        with self.transaction():
            if place is None:
                place = f"{_DEATH}{number}.{_count(deaths) + 1:08}"
                for name in list(deaths)[: max(0, len(deaths) + 1 - self.deaths_kept)]:
                    del self._rows[name]
            self._rows[place] = restart

    # ---- parts ----

    @property
    def _known(self) -> _Known:
        known: _Known = self._rows.get(_KNOWN, _Known())
        return known

    def _number(self, topology_id: str) -> str | None:
        """The number of a topology, as rows have it in their names."""
        records = ((name[1:], row) for name, row in self._rows.items() if name[0] == "t")
        return next((number for number, record in records if record.id == topology_id), None)

    def _deaths(self, number: str) -> dict[str, RestartRecord]:
        """The deaths of a topology that are kept, oldest first."""
        return {name: row for name, row in self._rows.items() if name.startswith(f"{_DEATH}{number}.")}


def _count(deaths: Iterable[str]) -> int:
    """How many deaths a topology has had: the newest is always kept."""
    return max((int(name.rpartition(".")[2]) for name in deaths), default=0)
