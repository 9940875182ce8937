"""Lives of what is woven around components before state that counts exactly once (`engine.build.weave`), and of that
state.

::

    spout ──► what is settled: stored with the batch, and in its report ──► driver ──► bolts with state, next batch
    bolt with state ──► its store, a file that is stored with the batch

Guarantees: identities, what was absorbed and the state are those of one batch, or of the one before if it is undone or
lost. Floors come a batch later than elsewhere: they only rise. Relies on `engine.state`.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from squall.engine.api.context import TopologyContext
from squall.engine.state.records.identified import IdentifiedBolt, IdentifiedSpout
from squall.engine.state.records.record_store import SHARED, write_merged
from squall.engine.state.sink_task import GatheringTask, SinkTask
from squall.engine.state.stateful_task import StatefulTask
from squall.engine.state.task_store import STORE_FILE
from squall.pipeline.on_spark import lives
from squall.pipeline.on_spark.lives import Life, Settled


class SettlingLife(Life):
    """Of a spout before state: that of the user's spout, and what is settled."""

    def __init__(self, inner: Life) -> None:
        super().__init__()
        self._inner = inner
        self._task, self._told = ("", ""), b""

    def attach(self, user: IdentifiedSpout, stored: bytes | None) -> None:
        kept, inner = (None, None) if stored is None else pickle.loads(stored)
        self._inner.attach(user._inner, inner)
        self.user, real = user, user.open

        def begin(conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
            del user.open
            user.kept = user.new_kept(context) if kept is None else kept
            self._task = context.component_id, str(context.task_index)
            real(conf, context, collector)

        user.open = begin  # type: ignore[method-assign]

    def state_root(self, root: str | None) -> str | None:
        return self._inner.state_root(root)

    def end(self) -> None:
        self._inner.end()

    @property
    def ends_with_batch(self) -> bool:
        return self._inner.ends_with_batch

    def store(self) -> bytes:
        inner = self._inner.store()
        self.left_out = self._inner.left_out
        self._told = self.user.told()
        return pickle.dumps((self.user.settling, inner), 5)

    def settled(self) -> Settled:
        return {self._task: self._told}


class StatefulLife(Life):
    """Of a bolt with state: its store is kept, and `prepare` makes its attributes anew for each batch."""

    ends_with_batch = True

    def __init__(self, settled: Settled) -> None:
        super().__init__()
        self._settled = settled
        self._directory = tempfile.TemporaryDirectory(prefix="squall-state-")

    def state_root(self, root: str | None) -> str | None:
        return self._directory.name

    def end(self) -> None:
        self._directory.cleanup()

    def attach(self, user: StatefulTask, stored: bytes | None) -> None:
        if isinstance(user, SinkTask):
            user.writes_late = True
        super().attach(user, stored)

    def begin(self, prepare: Callable[[], None], context: TopologyContext) -> None:
        if self._stored is not None:
            with open(os.path.join(context.state_dir, STORE_FILE), "wb") as file:
                file.write(self._stored)
        for spout in {spout for spout, _ in self._settled}:
            os.makedirs(directory := context.directory_of(spout, SHARED))
            write_merged(directory, {task: records for (name, task), records in self._settled.items() if name == spout})
        prepare()

    def store(self) -> bytes:
        return pickle.dumps(self.user.commits.store.serialized(), 5)

    @property
    def has_more(self) -> bool:
        return isinstance(self.user, SinkTask) and self.user.is_behind


def life_of(component: Any, settled: Settled) -> Life:
    """The life that suits a component, woven or not."""
    if isinstance(component, StatefulTask | SinkTask | GatheringTask):
        return StatefulLife(settled)
    if type(component) is IdentifiedSpout:
        return SettlingLife(lives.life_of(component._inner))
    return lives.life_of(users_of(component))


def users_of(component: Any) -> Any:
    """The user's component behind what is woven around a spout or a bolt; of a sink, what runs it with each batch."""
    if isinstance(component, GatheringTask):
        return component.task
    return component._inner if type(component) in (IdentifiedSpout, IdentifiedBolt) else component
