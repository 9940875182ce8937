"""The surroundings of a worker core, given by its runner: a worker process, the proof, the test kit, `--local`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from squall.engine.api.failure import Failure
from squall.engine.api.topology import ComponentSpec
from squall.engine.api.user_metrics import UserMetrics
from squall.engine.core.executor import AtHand
from squall.engine.core.parts import PRODUCT, Parts
from squall.engine.flow.groupings import TextHash
from squall.engine.foreign.stable_hash import stable_hash
from squall.engine.report.account import ACCOUNT_COLUMNS, Words
from squall.engine.tracking.attempts import Journal
from squall.engine.tracking.trial_permit import OwnPermit, TrialPermit


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
    deterministic: bool = False
    """Whether to use no threads for blocking components, and no decisions that depend on measured time."""
    slice_ns: int | None = None
    """Time that a task executes before others get their turn; None: `SLICE_NS` or, if `deterministic`, until it has
    emitted its share of bytes."""
    interrupts: bool = False
    """Whether a KeyboardInterrupt in a component may be the operator's."""
    note_failures: Callable[[str, int, Sequence[Any], Failure], None] = lambda component, task, ids, failure: None
    """(spout, task, message ids, failure): every failure of a tree, for the operator."""
    journal: Callable[[str, int], Journal | None] = lambda component, index: None
    """(spout, task index): the journal in which attempts outlive this worker."""
    trial_permit: TrialPermit = field(default_factory=OwnPermit)
    """The permit to try suspects."""
    at_hand: AtHand = field(default_factory=lambda: [0])
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
    parts: Parts = PRODUCT
