"""Wraps a spout, and writes the source log. Guarantees: see `squall.chaos.taps`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from squall.chaos.line_log import LineLog, digest, digest_of_plain, is_plain, quoted
from squall.chaos.tapping import Tapping, is_let_go, new_log, with_keys
from squall.engine.api.collectors import SpoutCollector
from squall.engine.api.component import Spout
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import FAILED, Failure
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.foreign.columns import values_of
from squall.engine.foreign.text import repr_of

_NAME_CHARACTERS = 80
_LOOK_SECS = 0.05
"""Between a spout's checks whether it was let go."""


class TappedSpout(Spout):
    """Wraps a spout that emits tuples, and perhaps batches."""

    def __init__(self, inner: Spout, component: str, tapping: Tapping) -> None:
        self._inner = inner
        self._component = component
        self._tapping = tapping
        self.blocking = inner.blocking

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        index = context.task_index
        self._log = new_log(self._tapping, "source")
        owner = (self._component, index) if self._tapping.by_task else (self._component,)
        self._ids = MessageIds(owner, f"{self._component}[{index}] message ")
        self._out = TappedSpoutCollector(collector, self._log, self._component, self._ids)
        rates = self._tapping.rates
        self._rate = None if rates is None else rates.get(self._component)
        self._began = self._look_secs = time.monotonic()
        self._failed: set[str] = set()
        self._let_go = False
        self._inner.open(conf, context, self._out)

    def next_tuple(self) -> None:
        if self._rate is None or self.allowed() > 0:
            self._inner.next_tuple()

    def allowed(self) -> float:
        """How many emits its pace allows now. Only for one that has a pace."""
        now = time.monotonic()
        left = (now - self._began) * (self._rate or 0.0) - self._out.emitted
        return left if left > 0 or not self._is_let_go(now) else float("inf")

    def _is_let_go(self, now: float) -> bool:
        if not self._let_go and now >= self._look_secs:
            self._look_secs = now + _LOOK_SECS
            self._let_go = is_let_go(self._tapping)
        return self._let_go

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return self._inner.exhausted

    @property
    def waiting_count(self) -> int:
        return self._inner.waiting_count

    def ack(self, message_id: Any) -> None:
        key = self._ids.key(message_id)
        if self.fails(key):
            self._log.append("fail", key, time.monotonic_ns(), "once more, on purpose")
            self._inner.on_failure(message_id, self.on_purpose())
            return
        self._log.write(f'["ack","{key}",{time.monotonic_ns()}')
        self._inner.ack(message_id)

    def fails(self, key: str) -> bool:
        """Whether to tell the spout that a message has failed, though it was processed."""
        every = self._tapping.fail_every
        if not every or int(key, 16) % every or key in self._failed or self._is_let_go(time.monotonic()):
            return False
        self._failed.add(key)
        return True

    def on_purpose(self) -> Failure:
        return Failure(FAILED, self._component, 0)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        key = self._ids.key(message_id)
        self._log.append("fail", key, time.monotonic_ns(), failure.reason)
        self._inner.on_failure(message_id, failure)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        key = self._ids.key(message_id)
        self._log.append("dead", key, time.monotonic_ns(), failure.reason)
        self._inner.on_dead_letter(message_id, failure)

    def activate(self) -> None:
        self._inner.activate()

    def deactivate(self) -> None:
        self._inner.deactivate()

    def close(self) -> None:
        self._inner.close()
        self._log.close()


class TappedSpoutCollector:
    """Writes an emit down before it is one."""

    def __init__(self, collector: SpoutCollector, log: LineLog, component: str, ids: MessageIds) -> None:
        self._collector = collector
        self._log = log
        self._component = component
        self._ids = ids
        self.emitted = 0

    def emit(self, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        return self._collector.emit(self._noted(values, message_id), message_id, stream)

    def emit_direct(self, task: int, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        return self._collector.emit_direct(task, self._noted(values, message_id), message_id, stream)

    def emit_batch(
        self, columns: Sequence[Any], message_ids: Sequence[Any] | None = None, stream: str = DEFAULT_STREAM
    ) -> None:
        try:
            rows = list(zip(*map(values_of, columns), strict=True))
            ids = [None] * len(rows) if message_ids is None else list(values_of(message_ids))
            noted = list(zip(rows, ids, strict=True))
        except (AttributeError, TypeError, ValueError):
            # The engine tells what is wrong, and emits nothing.
            self._collector.emit_batch(columns, message_ids, stream)
            return
        now_ns = time.monotonic_ns()
        keys, texts = [], []
        for row, message_id in noted:
            key, text = self._record(row, message_id, now_ns)
            keys.append(key)
            texts.append(text)
        self.emitted += len(noted)
        self._log.write_all(texts)
        self._collector.emit_batch((*columns, keys), message_ids, stream)

    def give_up(self, values: Any, message_id: Any, why: str, stream: str = DEFAULT_STREAM) -> None:
        self._collector.give_up(self._noted(values, message_id), message_id, why, stream)

    def _noted(self, values: Any, message_id: Any) -> Any:
        self.emitted += 1
        row = values if values.__class__ is tuple else tuple(values) if isinstance(values, list) else values
        key, text = self._record(row, message_id, time.monotonic_ns())
        self._log.write(text)
        return with_keys(row, key)

    def _record(self, row: Any, message_id: Any, now_ns: int) -> tuple[str | tuple[()], str]:
        """The key of a message that is about to be emitted, and the line for it."""
        if message_id is None:
            return (), f'["loose",{quoted(self._component)},{now_ns}'
        key = self._ids.key(message_id)
        return key, f'["emit","{key}","{digest(row)}",{now_ns},{self._ids.name(message_id)}'

    def report_error(self, error: BaseException) -> None:
        self._collector.report_error(error)

    @property
    def pending_count(self) -> int:
        return self._collector.pending_count


class MessageIds:
    """How a spout task's messages are known by their ids."""

    def __init__(self, owner: tuple[Any, ...], title: str) -> None:
        """`owner`: whose ids they are; `title`: before an id in the name of a message."""
        self._owner = owner
        self._title = title

    def key(self, message_id: Any) -> str:
        """The key of a message."""
        value = (*self._owner, message_id)
        return digest_of_plain(value) if _is_plain(message_id) else digest(value)

    def name(self, message_id: Any) -> str:
        """A text, as JSON, by which people know a message; calls no code of users."""
        text = repr(message_id)[:_NAME_CHARACTERS] if _is_plain(message_id) else repr_of(message_id, _NAME_CHARACTERS)
        return quoted(self._title + text)


def _is_plain(message_id: Any) -> bool:
    try:
        return is_plain(message_id)
    except RecursionError:
        return False
