"""What must hold in every schedule, by name. A check that fails says which of these broke."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from squall.engine.core.executor import TaskCrashed

ACKED_EARLY = "acked early"
ANSWERED_TWICE = "answered twice"
EXECUTED_TWICE = "executed twice"
FAILED_WITHOUT_CAUSE = "failed without cause"
BURIED_INNOCENT = "an innocent message buried"
WAITED_FOR_TIMEOUT = "waited for the timeout"
NEVER_ENDED = "never ended"
MESSAGE_LOST = "message lost"
COMMITTED_TOO_FAR = "committed too far"
EXECUTED_UNWRITTEN = "executed unwritten"
SLEPT_ON_NEWS = "slept on news"
STATE_LEFT = "state left behind"
ID_REPEATED = "id repeated"
TWO_LIVE = "two live in one slot"
TWO_VERSIONS = "two versions live"
TWO_OF_A_NAME = "two topologies of a name live"
NAME_TWICE = "a worker's name repeated"
FORGOTTEN = "forgotten"
NOT_RUNNING = "not running"
STRAY = "stray worker"
INVENTED = "invented"
REPEATED_WITHOUT_CAUSE = "repeated without cause"
RESTED_EARLY = "rested early"
SLOT_LEAKED = "slot leaked"
GIVEN_WHILE_LEAVING = "work given to a leaving node"
MISCOUNTED = "miscounted"
STORE_DIFFERS = "store differs"
COUNTED_WRONG = "counted wrong"

MEANING = {
    ACKED_EARLY: "no attempt is acked before every bolt of its tree has executed it",
    ANSWERED_TWICE: "the spout is told of no attempt twice",
    EXECUTED_TWICE: "no bolt gets a tuple of one attempt twice: links drop repeats, the dead are fenced off",
    FAILED_WITHOUT_CAUSE: (
        "nothing fails but what a bolt failed, what touched a worker that died, was in a lost frame, or timed out"
    ),
    BURIED_INNOCENT: "no message is given up but for its own failures, and for workers that it ended, tried alone",
    WAITED_FOR_TIMEOUT: "every attempt ends without a timeout, whoever dies and whatever frames are lost",
    NEVER_ENDED: "once nothing is broken any more and timeouts expire, every attempt is acked or failed",
    MESSAGE_LOST: "with a source that replays, every message has been processed and acked at the end",
    COMMITTED_TOO_FAR: "the committed position never passes an offset that was not processed",
    EXECUTED_UNWRITTEN: "no bolt gets a tuple that its spout's journal does not have",
    SLEPT_ON_NEWS: "no worker sleeps while it has been told acks that it has not taken in",
    STATE_LEFT: "at the end, after four timeouts, no table, queue or window holds anything",
    TWO_LIVE: "a slot has at most one living worker, of whatever topology",
    TWO_VERSIONS: "workers of two versions of one assignment never live at the same time",
    TWO_OF_A_NAME: "workers of a topology and of its successor never live at the same time",
    NAME_TWICE: "no worker of a topology has the slot and the incarnation of an earlier one",
    FORGOTTEN: "what Nimbus has answered is so, whoever dies afterwards",
    NOT_RUNNING: "once nothing is broken any more, each topology that was not killed runs if there are slots for it",
    STRAY: "once nothing is broken any more, no worker lives that nobody wants",
    INVENTED: "no sink counts what no spout has emitted",
    REPEATED_WITHOUT_CAUSE: "a record is emitted again only if its attempt failed or its spout was opened again",
    RESTED_EARLY: "no topology is taken for one at rest while a message of it is open",
    MISCOUNTED: "the account on the board says what happened, whoever was killed",
    SLOT_LEAKED: "at the end, each slot of each node is one topology's, or free",
    GIVEN_WHILE_LEAVING: "a node that Nimbus knows to be leaving gets no work that it has not had",
    STORE_DIFFERS: "the store holds what Nimbus knows, whoever died in the middle of which write",
    COUNTED_WRONG: "state, windows and sinks count and write each record once, whatever dies or fails when",
    ID_REPEATED: "no root and no edge id is drawn twice, in any worker and incarnation",
}


class InvariantBrokenError(BaseException):
    """One of the invariants does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what} ({MEANING[invariant]})")
        self.invariant = invariant
        self.steps = 0
        self.lines: list[str] = []
        """Of a life: how many requests and faults it had until then, and all that happened."""


def shortened(
    steps: tuple[Any, ...], broken_by: Callable[[Any], InvariantBrokenError | None], invariant: str
) -> tuple[Any, ...]:
    """Drop steps as long as the same invariant still breaks: none that is left can be left out."""
    length = max(1, len(steps) // 2)
    while True:
        at, shorter = 0, False
        while at < len(steps):
            trial = steps[:at] + steps[at + length :]
            error = broken_by(trial)
            if error is not None and error.invariant == invariant:
                steps, shorter = trial, True
            else:
                at += length
        if length == 1 and not shorter:
            return steps
        length = max(1, length // 2)


@contextlib.contextmanager
def unwrapped() -> Iterator[None]:
    """What a spout of the model found wrong reaches the caller as it is, not as that spout's error."""
    try:
        yield
    except TaskCrashed as crash:
        if isinstance(crash.__cause__, InvariantBrokenError):
            raise crash.__cause__ from None
        raise
