"""What a worker core gets from whoever runs it: a worker process, the proof, the test kit, `--local`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from squall.engine.api.failure import Failure
from squall.engine.api.topology import ComponentSpec
from squall.engine.api.user_metrics import UserMetrics
from squall.engine.core.executor import AtHand
from squall.engine.core.parts import PRODUCT, Parts
from squall.engine.report.account import ACCOUNT_COLUMNS, Words
from squall.engine.tracking.attempts import Journal
from squall.engine.tracking.trial_permit import OwnPermit, TrialPermit


@dataclass
class Surroundings:
    """What a worker core gets from whoever runs it."""

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
    metrics: UserMetrics = field(default_factory=UserMetrics)
    """What the components measure themselves."""
    deterministic: bool = False
    """No threads for blocking bolts, and nothing that depends on how long things take."""
    slice_ns: int | None = None
    """How long a task executes before others get their turn; None: `SLICE_NS`, or, where all is deterministic, until it
    has emitted its share of bytes."""
    interrupts: bool = False
    """A KeyboardInterrupt in a component may be the operator's."""
    note_failure: Callable[[str, int, Any, Failure], None] = lambda component, task, message_id, failure: None
    """(spout, task, message id, failure): every failure of a tree, for the operator."""
    journal: Callable[[str, int], Journal | None] = lambda component, index: None
    """(spout, task index): where attempts outlive this worker."""
    trial_permit: TrialPermit = field(default_factory=OwnPermit)
    """When a message under suspicion may be tried."""
    at_hand: AtHand = field(default_factory=lambda: [0])
    """Where the loop says whose code it is in."""
    account: Callable[[int], Words] = lambda task: [0] * len(ACCOUNT_COLUMNS)
    """Where the account of a spout task lies, which its incarnations go on with."""
    untracked: Words | None = None
    """See `WorkerCore.untracked`."""
    said_quiet: Words = field(default_factory=lambda: [0])
    """The first of these is set to 0 before any emit shows in an account or in `untracked`: others read those while
    this worker works, and must not take what they read for the figures of one that has said that it is quiet."""
    parts: Parts = PRODUCT
