"""LiveSpout: emits the rows that a Structured Streaming query feeds to a topology by `squall.pipeline.live.feed`.

Guarantees as FeedSpout does; but how far each batch is done is kept in the inlet, where the query waits for it. So the
query commits a batch when all its rows are acked, and whichever side is killed, the other goes on when it is back.
Relies on `pipeline.inlet`. Thread: the task's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squall.pipeline.claims import Claims
from squall.pipeline.feed_spout import FeedSpout
from squall.pipeline.inlet import Inlet, InletClaims, InletSource
from squall.pipeline.inlet_reader import InletReader, ReaderName
from squall.pipeline.sources import Source

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext

RANGE_ROWS = 2048
"""Fewer than of a feed: a batch is small, and all tasks should have a part of it."""


class LiveSpout(FeedSpout):
    """A spout in the box. `LiveSpout("run/inlet")` emits the rows of the queries that feed this directory."""

    look_secs = 0.02

    def __init__(
        self, inlet: str | os.PathLike[str], fields: Sequence[str] = ("text",), *, with_origin: bool = False,
        range_rows: int = RANGE_ROWS,
    ) -> None:
        """As FeedSpout. UsageError if `inlet` is something else's directory, or its batches lack a column."""
        self._inlet = Inlet(inlet)
        super().__init__(inlet, fields, follow=True, with_origin=with_origin, range_rows=range_rows)

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        # A simulated topology has no state: it is all in this process.
        state = f"process {os.getpid()}" if context.state_root is None else context.state_root
        self._reader_lock = InletReader(
            self._inlet.path, ReaderName(context.topology_name, context.component_id, state)
        )
        super().start(conf, context)

    def close(self) -> None:
        super().close()
        self._reader_lock.close()

    def _open_source(self) -> Source:
        return InletSource(self._inlet.path, self._fields)

    def _open_claims(self, context: TopologyContext) -> Claims:
        return InletClaims(self._inlet, context.task_index)
