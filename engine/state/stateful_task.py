"""Runs a bolt with state in one task: absorbs each tuple once, and commits before anything leaves (`Commits`).

It is a batch bolt for the engine, whatever the user's is: many tuples share a commit, and the engine chooses how many
by what a call costs.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from sys import getrefcount
from typing import Any

from squall.engine.api.collectors import BatchCollector
from squall.engine.api.columns import ColumnBatch
from squall.engine.api.context import TopologyContext
from squall.engine.api.topology import FIELDS
from squall.engine.api.tuple import UNSHARED, UNTRACKED, Tuple
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ComponentError, FailedTuple, UnstorableError
from squall.engine.foreign.given_columns import values_of
from squall.engine.foreign.methods import Returned, checked
from squall.engine.foreign.text import line_of_error, plural, repr_of, where_of
from squall.engine.state.commits import ExactTask
from squall.engine.state.dealing import DEALT
from squall.engine.state.keyed import StatefulBatchBolt
from squall.engine.state.times import kept_clock

_SWEEPS_PER_LIFE, _SWEPT = 10, 1_000
"""Looks for old values in their time to live, and most that are removed in one commit."""


class StatefulTask(ExactTask):
    """Stands for a bolt with state in a topology."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        inner = self.inner
        self.open(context, inner.state_kept_keys)
        commits, self._by_batch = self.commits, isinstance(inner, StatefulBatchBolt)
        inner.state = commits.state
        self._batch: ColumnBatch | None = None
        """The batch at hand, without ticks."""
        if (made_by := commits.store.meta(DEALT)) is not None:
            commits.check = partial(self._check_keys, made_by)
        self._sweep_at_ns = 0
        if inner.state_ttl_secs is not None:
            commits.ages, commits.clock = True, kept_clock(commits.store, context)
        inner.prepare(conf, context)
        name = "execute_batch" if self._by_batch else "execute"
        self._returned = Returned(context.component_id, context.task_id, name, context.warn)
        commits.commit((), ())  # what it has set: a batch that fails takes back its own changes only

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        if (clock := self.commits.clock) is not None:
            self.sweep(clock.now_ns(), self.inner.state_ttl_secs)
        self.commits.run(batch, collector)
        if self.inner.state is not self.commits.state:
            raise ComponentError(
                f"{self.commits.who} set self.state to {repr_of(self.inner.state)}; expected changes of it only"
            )

    def sweep(self, now_ns: int, ttl_secs: float) -> None:
        """Remove some values that are too old, if it is time."""
        store = self.commits.store
        if now_ns < self._sweep_at_ns:
            return
        with store.changing():
            old = store.remove_older(int(now_ns / NS_PER_SEC - ttl_secs), _SWEPT)
        self.commits.state.forget(old)
        if len(old) < _SWEPT:
            self._sweep_at_ns = now_ns + round(ttl_secs * NS_PER_SEC / _SWEEPS_PER_LIFE)

    # ---- its work ----

    def _check_keys(self, made_by: int, keys: Iterable[Any]) -> None:
        """Of state that was dealt by key, UnstorableError for a key that is not what the batch is grouped by: for the
        tuple that set it alone, and while `max_attempts` is not set none is lost."""
        batch = self._batch
        read = None if batch is None else next(
            (read for read in self._place.reads if read[:2] == (batch._source.component, batch._source.stream)), None
        )
        if batch is None or read is None or read.grouping != FIELDS:
            return
        columns = [values_of(batch[field]) for field in read.by]
        with suppress(TypeError):  # no key can be such a value
            values = set(columns[0] if len(columns) == 1 else zip(*columns, strict=True))
            for key in keys:
                if key not in values and not (type(key) is tuple and len(key) == 1 and key[0] in values):
                    raise UnstorableError(
                        f"the state of {self.commits.who} was dealt by key, once from {plural(made_by, 'task')}, and "
                        f"state[{repr_of(key)}] is set by a tuple that is grouped by another {', '.join(read.by)}: go "
                        f"back to tasks={made_by}, or begin anew (--fresh)"
                    )

    def execute(self, batch: ColumnBatch, rows: Sequence[int]) -> tuple[int, str] | None:
        """Execute rows; return the place, and the reason, of one that raised FailedTuple. UnstorableError for a key
        without a hash."""
        try:
            return self._executed(batch, rows)
        except TypeError as error:
            if not str(error).startswith("unhashable type"):
                raise
            raise UnstorableError(f"a key of its state cannot be one: {error} {where_of(error)}".rstrip()) from None

    def _executed(self, batch: ColumnBatch, rows: Sequence[int]) -> tuple[int, str] | None:
        self._batch = None if batch.is_tick else batch
        out = self.commits.out
        if self._by_batch:
            if len(rows) < len(batch):
                is_taken = bytearray(len(batch))
                for row in rows:
                    is_taken[row] = 1
                batch = ColumnBatch(batch._rows.select(bytes(is_taken)), batch._source)
                out.given = rows
            checked(self.inner.execute_batch, self._returned)(batch, out)
            return None
        execute, source = self.inner.execute, batch._source
        values: Iterable[tuple[Any, ...]] = batch._rows
        if len(rows) < len(batch):
            values = map(batch.to_rows().__getitem__, rows)
        tup = Tuple((), source, UNTRACKED)
        try:
            for out.row, tup.values in zip(rows, values, strict=True):
                if (value := execute(tup, out)) is not None:
                    self._returned(value)
                if getrefcount(tup) != UNSHARED:
                    tup = Tuple((), source, UNTRACKED)  # the bolt kept it
        except FailedTuple as error:
            return rows.index(out.row), line_of_error(error)
        return None
