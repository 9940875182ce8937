"""The tap around a bolt, whether it takes tuples, acks them itself or takes batches: takes the keys of messages off its
input, adds them to its output, and writes the sink ledger.

Guarantees: see `squall.chaos.taps`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from squall.chaos.tapping import (
    NO_ID,
    STEMS_FROM,
    Keys,
    Tapping,
    digest,
    is_let_go,
    new_log,
    quoted,
    with_keys,
)
from squall.engine.api.around import AnchoringOut, Around, HiddenField, HidingOut
from squall.engine.api.async_component import AsyncBolt
from squall.engine.api.columns import ColumnBatch
from squall.engine.api.context import TopologyContext
from squall.engine.api.tuple import Tuple, TupleSource
from squall.engine.errors import FailedTuple
from squall.engine.foreign.given_columns import parents_of
from squall.engine.state.records.lineage import has_identity

_ON_PURPOSE = "squall chaos: lost on purpose"
_LOST_SECS = 0.2


def label_of(component: str, source: str, stream: str) -> str:
    """The name of a way into a sink."""
    return f"{component} from {source}/{stream}"


class Tapped(Around):
    """A component with a tap, as it travels to its workers."""

    def __init__(self, inner: Any, component: str, tapping: Tapping) -> None:
        super().__init__(inner)
        self._component = component
        self._tapping = tapping


class TappedBolt(Tapped):
    """Passes keys from each input tuple to the tuples made from it, and records the input if the bolt is a sink."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, *collector: Any) -> None:
        self._hidden = HiddenField(STEMS_FROM)
        self._log = new_log(self._tapping, "sink") if self._component in self._tapping.sinks else None
        self._refused: dict[str, float] = {}
        """Message -> until when its tuples are lost on purpose, in seconds of the monotonic clock."""
        if collector:
            self._out: Any = _AnchoredOut(collector[0])
            self._inner.prepare(conf, context, self._out)
        else:
            self._out = _Out(None)
            self._inner.prepare(conf, context)

    def cleanup(self) -> None:
        self._inner.cleanup()
        if self._log is not None:
            self._log.close()

    def execute(self, tup: Tuple, *collector: Any) -> Any:
        keys: Keys | None = self._hidden.off(tup)
        if keys is None:
            keys = NO_ID
        else:
            if self._to_refuse((keys,)):
                if collector:
                    raise FailedTuple(_ON_PURPOSE)
                return self._out._inner.fail(tup)
            self._record(tup._source, (tup.values,), (keys,))
        if collector:
            self._out.begin(keys, collector[0])
            return self._inner.execute(tup, self._out)
        self._out.begin(keys, tup)
        return self._inner.execute(tup)

    def execute_batch(self, batch: ColumnBatch, collector: Any) -> Any:
        batch, keys = self._hidden.off_batch(batch)
        if keys is None:
            keys = [NO_ID] * len(batch)
        else:
            fresh = self._to_refuse(keys)
            refused = {row for row, of in enumerate(keys) if not fresh.isdisjoint([of] if isinstance(of, str) else of)}
            # The bolt has these rows too, so that it counts rows as the engine does; the ledger has not.
            collector.fail(list(refused), _ON_PURPOSE)
            numbers = [row for row in range(len(keys)) if row not in refused]
            self._record(batch._source, map(batch._rows.__getitem__, numbers), map(keys.__getitem__, numbers))
        self._out.begin(keys, collector)
        return self._inner.execute_batch(batch, self._out)

    def _to_refuse(self, keys: Iterable[Keys]) -> set[str]:
        """Return the messages whose tuples are to be lost here now (`Tapping.refuse_every`). All that arrive with the
        first are lost with it: also tuples that were made from other messages, and anchored to this one by mistake."""
        every = self._tapping.refuse_every
        # After the spouts were let go, an endless source goes on until all its messages are acked at one time.
        if not every or self._log is None or isinstance(self._inner, AsyncBolt) or is_let_go(self._tapping):
            return set()
        now = time.monotonic()
        chosen = {key for key in _one_by_one(keys) if key not in NO_ID and int(key, 16) % every == 1}
        return {key for key in chosen if now < self._refused.setdefault(key, now + _LOST_SECS)}

    def _record(self, source: TupleSource, rows: Iterable[tuple[Any, ...]], keys: Iterable[Keys]) -> None:
        if self._log is not None:
            label = quoted(label_of(self._component, source.component, source.stream))
            # An identity says which task has read the message, too.
            end = -1 if has_identity(source.fields) else None
            compared: Iterable[Any] = (row[:end] for row in rows)
            if (key := self._tapping.key) is not None:
                compared = (key(dict(zip(source.fields, row, strict=False))) for row in compared)
            self._log.write(*(_line(label, value, of) for value, of in zip(compared, keys, strict=True)))


def _one_by_one(several: Iterable[Keys]) -> Iterator[str]:
    for keys in several:
        yield from [keys] if isinstance(keys, str) else keys


def _line(label: str, compared: Any, keys: Keys) -> str:
    several = keys if isinstance(keys, str) else '","'.join(keys)
    keys_text = f'["{several}"]' if several else "[]"
    return f'["in",{label},{keys_text},"{digest(compared)}",{time.monotonic_ns()}'


# ---- its output ----


class _Out(HidingOut):
    """Of a bolt that does not ack by itself."""

    def begin(self, keys: Any, collector: Any) -> None:
        """Begin with a tuple or a batch: its keys, in a list for a batch, and its collector."""
        self._keys: Any = keys
        self._inner = collector

    def _row(self, values: Any, task: int | None, named: dict[str, Any]) -> Any:
        return with_keys(values, self._keys)

    def _columns(self, columns: Any, task: int | None, named: dict[str, Any]) -> Any:
        parents = parents_of(len(self._keys), named.get("counts"), named.get("parents"))
        return *columns, list(map(self._keys.__getitem__, parents))


class _AnchoredOut(AnchoringOut):
    """Of a bolt that acks by itself; the keys of its tuples are known."""

    _unanchored: Keys = ()
    """The keys of an emit without anchors."""

    def begin(self, keys: Keys, tup: Tuple) -> None:
        self.known[id(tup)] = keys
        self._unanchored = keys if keys == NO_ID else ()

    def _row(self, values: Any, task: int | None, named: dict[str, Any]) -> Any:
        if named.get("anchors") is None:
            return with_keys(values, self._unanchored)
        several: dict[Keys, None] = {self.known.get(anchor, ()): None for anchor in self._ids_of_anchors(named)}
        first = next(iter(several), self._unanchored)
        return with_keys(values, tuple(dict.fromkeys(_one_by_one(several))) if len(several) > 1 else first)
