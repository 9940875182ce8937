"""The surroundings of a worker core, given by its runner: a worker process, the proof, the test kit, `--local`.

They include its parts: a factory for each part that another implementation may replace.

Guarantees: assembly makes these parts only by `Parts`. So a replacement (compiled, or a mutant of the proof) is used
everywhere, and every proof of the product's part can be run on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from squall.engine.api.failure import Failure
from squall.engine.api.topology import ComponentSpec
from squall.engine.api.user_metrics import UserMetrics
from squall.engine.core.emit_paths import FastEmit, fast_emit
from squall.engine.flow.batch import OpenBatch
from squall.engine.flow.groupings import TextHash
from squall.engine.flow.ids import MIN_MEMBERS, EdgeIds, root_ids
from squall.engine.flow.outbox import Outbox
from squall.engine.foreign.stable_hash import stable_hash
from squall.engine.report.metrics import ACCOUNT_COLUMNS, Words
from squall.engine.tracking.acker import Acker
from squall.engine.tracking.attempts import Journal
from squall.engine.tracking.fate import TrialPermit
from squall.engine.tracking.open_messages import OpenMessages
from squall.engine.tracking.tracking import Tracking


@dataclass(frozen=True)
class Parts:
    """One factory for each part; each takes the arguments of the product's."""

    draw: Callable[[int], bytes] = os.urandom
    """Random bytes, so many, that ids are made of."""
    edge_ids: Callable[[Callable[[int], bytes]], EdgeIds] = EdgeIds
    """Each outbox has a source of its own."""
    root_ids: Callable[[int, Callable[[int], bytes]], Iterator[int]] = root_ids
    outbox: Callable[[EdgeIds], Outbox] = Outbox
    open_batch: Callable[..., OpenBatch] = OpenBatch
    fast_emit: FastEmit = fast_emit
    """What a component calls instead of its collector's `emit`, if anything."""
    acker: Callable[[], Acker] = Acker
    tracking: Callable[..., Tracking] = Tracking
    pending: Callable[..., OpenMessages] = OpenMessages

    def new_outbox(self) -> Outbox:
        """Make an outbox with ids of its own."""
        return self.outbox(self.edge_ids(self.draw))


PRODUCT = Parts()


@dataclass
class Surroundings:
    """The names, clock, files and callbacks that a worker core gets from its runner."""

    topology_name: str
    worker: str
    """"node:port"."""
    attempt: int
    now_ns: Callable[[], int]
    state_root: str | None
    report_error: Callable[[str, int, str], None]
    """(component, task, text): an error that does not end the worker."""
    dead_letter: Callable[[str, int, Any, Any, Failure], None]
    """(component, task, message id, values, last failure)."""
    wake: Callable[[], None] = lambda: None
    """Wakes the loop from another thread."""
    copy: Callable[[ComponentSpec], Any] = lambda spec: spec.component
    """A fresh copy of a component's user object."""
    opening: Callable[[int], None] = lambda task: None
    """Called with each task, as if it were the first line of its `open` or `prepare`."""
    metrics: UserMetrics = field(default_factory=UserMetrics)
    """Metrics of the components."""
    threads: bool = True
    """Whether blocking components have threads of their own, and calls wait for their rows; if not, all run in turn."""
    timed: bool = True
    """Whether the pace follows measured time (see `engine.core.pace`)."""
    interrupts: bool = False
    """Whether a KeyboardInterrupt in a component may be the operator's."""
    note_failures: Callable[[str, int, Sequence[Any], Failure], None] = lambda component, task, ids, failure: None
    """(spout, task, message ids, failure): every failure of a tree, for the operator."""
    stop: Callable[[str], None] = lambda why: None
    """Told why no spout of the topology may emit any more: a fault of the set-up (`engine.tracking.doubt`)."""
    journal: Callable[[str, int], Journal | None] = lambda component, index: None
    """(spout, task index): the journal in which attempts outlive this worker."""
    trial_permit: TrialPermit = field(default_factory=TrialPermit)
    """The permit to try suspects."""
    at_hand: Words = field(default_factory=lambda: [0])
    """Word in which the loop notes the task whose code it is in."""
    account: Callable[[int], Words] = lambda task: [0] * len(ACCOUNT_COLUMNS)
    """task -> words of a spout task's account, which its incarnations continue."""
    untracked: Words | None = None
    """See `WorkerCore.untracked`."""
    said_quiet: Words = field(default_factory=lambda: [0])
    """The first word is set to 0 before any emit shows in an account or in `untracked`: other processes read those
    while this worker works, and must not take the figures for those of a quiet one."""
    text_hash: TextHash = stable_hash
    """Hashes the text that streams are grouped by; see `engine.flow.groupings.Keys`."""
    processors: int = 0
    """Processors that the workers of the topology share; 0: not known."""
    least_block: int = MIN_MEMBERS
    """Trees that a spout must emit in a turn for them to be tracked as a block."""
    parts: Parts = PRODUCT
    wall_ns: Callable[[], int] | None = None
    """The wall clock beside `now_ns`; None: that is both."""
