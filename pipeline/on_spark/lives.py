"""The life of a user's object over batches: how it is stored, and how its next life begins.

Guarantees: a restored object is as the stored one was (see `snapshot` for what cannot be stored). A `ReplayingSpout`
reads on where it was; a `FeedSpout` does so without reading anything twice. Relies on `read()` giving the same records
in the same order; it is checked by a checksum of the message ids, and a ClusterError says so if not.
"""

from __future__ import annotations

import pickle
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from squall.engine.api.async_component import AsyncBolt
from squall.engine.api.component import Spout
from squall.engine.api.context import TopologyContext
from squall.engine.api.hooks import Hooks
from squall.engine.api.replaying import Record, ReplayingSpout
from squall.engine.api.user_metrics import GAUGE
from squall.engine.errors import ClusterError
from squall.pipeline.feed.feed_spout import FeedSpout
from squall.pipeline.feed.shares import Claim
from squall.pipeline.on_spark.snapshot import (
    Baseline,
    BaselineLook,
    Engine,
    Stored,
    can_be_stored_whole,
    look_at_classes,
    open_descriptors,
    restore,
    store,
)

COLLECTOR_METHODS = ("emit", "emit_direct", "ack", "fail")
Settled = Mapping[tuple[str, str], bytes]
"""The records of a spout's task, by the spout and the index of the task, as text."""


class Life:
    """Of a bolt, or a spout of any kind that has no life of its own below."""

    def __init__(self) -> None:
        self.user: Any = None
        self.engine = Engine()
        self.left_out: tuple[str, ...] = ()
        self._stored: Any = None
        self._baseline: Baseline | None = None
        self._prepared_again = False
        self._name_of_task = ""
        self._classes: dict[str, BaselineLook] = {}

    def attach(self, user: Any, stored: bytes | None) -> None:
        """Have the next call of `prepare` (or `open`) begin this life."""
        self.user = user
        self._stored = None if stored is None else pickle.loads(stored)
        begins_with = "open" if isinstance(user, Spout) else "prepare"
        real = getattr(user, begins_with)

        def begin(conf: Mapping[str, Any], context: TopologyContext, collector: Any = None) -> None:
            delattr(user, begins_with)
            self._name(conf, context, collector)
            self.begin(lambda: real(conf, context) if collector is None else real(conf, context, collector), context)

        setattr(user, begins_with, begin)

    def _name(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        named = {"conf": conf, "context": context, "metrics": context.metrics, "now_ns": context.now_ns}
        if collector is not None:
            named["collector"] = collector
            for name in COLLECTOR_METHODS:
                if hasattr(collector, name):
                    named[f"collector.{name}"] = getattr(collector, name)
        if context.hooks is not None:
            named["hooks"] = context.hooks
        self.engine.named = named
        self._name_of_task = f"{context.component_id}[{context.task_index}]"
        self._classes = look_at_classes(self.user, self.engine)

    def begin(self, prepare: Callable[[], None], context: TopologyContext) -> None:
        stored: Stored | None = self._stored
        if stored is not None and not stored.prepared:
            restore(self.user, stored, self.engine)
            return
        before = open_descriptors()
        prepare()
        hooks = context.hooks
        classes, self._classes = self._classes, look_at_classes(self.user, self.engine)
        if (
            stored is not None or any(one.kind == GAUGE for one in context.metrics.readings())
            or (isinstance(hooks, Hooks) and bool(hooks)) or _changed(classes, self._classes)
            or open_descriptors() - before or not can_be_stored_whole(self.user, self.engine)
        ):
            self._baseline = Baseline(self.user, self.engine)
        if stored is not None:
            restore(self.user, stored, self.engine)

    def state_root(self, root: str | None) -> str | None:
        """Where state directories of this life lie; `root` is where they are kept."""
        return root

    def end(self) -> None:
        """The life is over, in order or not."""

    @property
    def has_more(self) -> bool:
        """True if another batch must follow, whatever comes."""
        return False

    def settled(self) -> Settled:
        """What is settled of a spout before state."""
        return {}

    @property
    def ends_with_batch(self) -> bool:
        """True if `cleanup` (or `close`) must follow each batch, as `prepare` precedes each. Known after `store`,
        which may find that something was opened late."""
        return self._prepared_again

    def store(self) -> bytes:
        """The object as it is now. ClusterError if something of it cannot be stored, and would be lost."""
        stored = store(self.user, self.engine, self._baseline)
        advice = "on Spark, keep in attributes what can be pickled, or give its class __getstate__ and __setstate__"
        if stored.lost:
            raise ClusterError(
                f"{self._name_of_task} cannot be stored after a batch: its attribute {stored.lost[0]} has changed "
                f"since prepare; {advice}"
            )
        if changed := _changed(self._classes, look_at_classes(self.user, self.engine)):
            raise ClusterError(
                f"{self._name_of_task} cannot be stored after a batch: {changed[0]} is an attribute of the class, and "
                f"has changed; {advice}, and of self"
            )
        self.left_out, self._prepared_again = stored.left_out, stored.prepared
        return pickle.dumps(stored, 5)


class AsyncLife(Life):
    """Of an `AsyncBolt`: its event loop begins with each life, before what was kept of the last one comes back."""

    def begin(self, prepare: Callable[[], None], context: TopologyContext) -> None:
        def prepare_and_set_up() -> None:
            prepare()
            self.user._drive(_nothing())

        super().begin(prepare_and_set_up, context)


async def _nothing() -> None: ...


class ReplayingLife(Life):
    """Of a `ReplayingSpout`: its records are counted, and skipped in the next life."""

    records: Counted
    _directory: tempfile.TemporaryDirectory[str] | None = None

    def state_root(self, root: str | None) -> str | None:
        """An empty one: a spout that goes on at a position of its own in there would skip twice."""
        if root is not None:
            self._directory = tempfile.TemporaryDirectory(prefix="squall-spout-")
            return self._directory.name
        return None

    def end(self) -> None:
        if self._directory is not None:
            self._directory.cleanup()

    def begin(self, prepare: Callable[[], None], context: TopologyContext) -> None:
        prepare()
        user: ReplayingSpout = self.user
        self.records = Counted(user._records)
        user._records = iter(())
        self._baseline = Baseline(user, self.engine)
        if self._stored is not None:
            stored, count, checksum = self._stored
            restored = self.engine.loads(stored.data)
            if restored.get("at_end"):
                self.records = Counted(iter(()), count, checksum)
            elif not self._skip(user, count, checksum):
                raise ClusterError(
                    f"read of {context.component_id}[{context.task_id}] gave other records than before; on Spark, it "
                    "must give the same ones in the same order each time"
                )
            restore(user, stored, self.engine)
        user._records = self.records

    def _skip(self, user: ReplayingSpout, count: int, checksum: int) -> bool:
        """Return True if the first `count` records are those of the last life."""
        mute: Any = Mute()
        collector, user.collector = user.collector, mute
        try:
            for _ in self.records:
                if self.records.count == count:
                    break
        finally:
            user.collector = collector
        return count == 0 or (self.records.count, self.records.checksum) == (count, checksum)

    def store(self) -> bytes:
        user: ReplayingSpout = self.user
        user._records = iter(())
        assert self._baseline is not None
        stored = self._baseline.changed(user, self.engine)
        user._records = self.records
        self.left_out, self._prepared_again = stored.left_out, True
        return pickle.dumps((stored, self.records.count, self.records.checksum), 5)


class Counted(Iterator[Record | None]):
    """The records of a spout, counted, with a checksum of their ids."""

    def __init__(self, records: Iterator[Record | None], count: int = 0, checksum: int = 0) -> None:
        self._records = records
        self.count = count
        self.checksum = checksum

    def __next__(self) -> Record | None:
        record = next(self._records)
        if record is not None:
            self.count += 1
            if type(record[0]) in (int, str, bytes):
                self.checksum = zlib.crc32(repr(record[0]).encode("utf-8", "replace"), self.checksum)
        return record


class Mute:
    """In place of a collector while records are skipped: what `read` emits itself has been emitted."""

    pending_count = 0

    def __getattr__(self, name: str) -> Callable[..., list[int]]:
        return lambda *arguments, **named: []


class FeedLife(Life):
    """Of a `FeedSpout`: ranges are dealt to its tasks, and it goes on at the row where it was."""

    ends_with_batch = True

    def begin(self, prepare: Callable[[], None], context: TopologyContext) -> None:
        user: FeedSpout = self.user
        tasks = len(context.component_tasks(context.component_id))
        user.deal(DealtClaims(context.task_index, tasks, user.range_rows))
        prepare()
        if self._stored is not None:
            user.go_on(self.engine.loads(self._stored))

    def store(self) -> bytes:
        return pickle.dumps(self.engine.dumps(self.user.position()), 5)


class DealtClaims:
    """The claims of ranges where no file is shared: each range has a task from the start."""

    def __init__(self, task: int, tasks: int, range_rows: int) -> None:
        self._task = task
        self._tasks = tasks
        self._rows = range_rows

    def load(self) -> list[Claim]:
        return []

    def make(self, claim: Claim) -> Claim:
        """The claim of the task that the range is dealt to."""
        owner = claim.start // self._rows + zlib.crc32(claim.part.encode("utf-8", "replace"))
        return claim if owner % self._tasks == self._task else claim._replace(task=owner % self._tasks)

    def store(self, claim: Claim) -> None: ...


def _changed(before: Mapping[str, BaselineLook], now: Mapping[str, BaselineLook]) -> list[str]:
    return [name for name, look in now.items() if name not in before or look.differs(before[name])]


def life_of(component: Any) -> Life:
    """The life that suits a component."""
    if isinstance(component, ReplayingSpout) and not is_overridden(component, ReplayingSpout):
        return FeedLife() if isinstance(component, FeedSpout) else ReplayingLife()
    return AsyncLife() if isinstance(component, AsyncBolt) else Life()


def is_overridden(spout: Spout, base: type) -> bool:
    """Return True if its class overrides how it emits."""
    return any(getattr(type(spout), name) is not getattr(base, name) for name in ("next_tuple", "open"))
