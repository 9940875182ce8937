"""Tells a fault of the set-up from bad messages: a wrong line, a missing file, a full disk fail each message, and would
make all of the input dead letters, one after another.

A message that fails for the first time by an exception in a bolt is *in doubt*. It is held back until others get
through, one for each ten that have failed, or there is no other to try. The set-up is at fault if enough messages in
doubt have the same *cause*: component, type of the exception, and line of the user's code.

    enough                  5 messages if the spout task was never acked any, else 20
    with on_error="fail",   and ten seconds without better news, because retries may outlast what is amiss; or all that
    or if it may pass       could be tried have reached their limits

An error *may pass* unless it is of a type that tells a wrong line or a missing file: a database that is away raises one
for each message. When enough were in doubt and others get through again, the failures of such messages are forgiven.

A spout that lost its worker may read its input from the beginning, and what comes before the fault gets through each
time. So after such a death only the acks of messages count that were emitted after one in doubt came up again.

For example, `emit(values, stream="wrods")` is wrong for every tuple: messages 1 to 5 end a worker each, and the run
stops. If message 3 alone is bad, message 4 is acked, and message 3 is tried alone until it is buried.

Guarantees: at most `MOST` messages are in doubt. Pure. Thread: the worker's loop.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Hashable

from squall.engine import errors
from squall.engine.api.failure import EXCEPTION, MACHINE, Failure
from squall.engine.errors import SquallError

_FROM_THE_FIRST, _LATELY = 5, 20
MOST = 32
PATIENCE_SECS = 10.0
PASSING = "passing: "
"""Beginning of a cause that may pass."""
_PER_ACK = 10
"""Failed messages for which one has to get through."""


_LASTING = (
    ArithmeticError, AssertionError, AttributeError, FileNotFoundError, ImportError, IsADirectoryError, LookupError,
    NameError, NotADirectoryError, PermissionError, SquallError, SyntaxError, TypeError, ValueError,
)
_LASTING_NAMES = {
    name for home in (builtins, errors) for name, kind in vars(home).items()
    if isinstance(kind, type) and issubclass(kind, _LASTING)
}


def may_pass(kind: str) -> bool:
    """Return True if errors of this type may go by themselves."""
    return bool(kind) and kind not in _LASTING_NAMES


def cause_of(failure: Failure) -> str:
    """What messages that fail the same way have in common; "" if the failure casts no doubt on the set-up."""
    if failure.reason not in (EXCEPTION, MACHINE) or failure.among > 1:
        return ""
    kind = failure.error.partition(":")[0]
    passing = PASSING if failure.reason == EXCEPTION and may_pass(kind) else ""
    return f"{passing}{failure.component} {kind} {failure.place}"


class Doubt:
    """The messages of one spout task that are in doubt."""

    __slots__ = ("_acked", "_counts_ns", "_enough_since_ns", "_failed", "_waits", "causes")

    def __init__(self, waits: bool) -> None:
        """`waits`: exceptions end no worker, so it waits for better news."""
        self._waits = waits
        self.causes: dict[Hashable, str] = {}
        """Message's key -> cause."""
        self._counts_ns = self._enough_since_ns = 0
        self._failed = self._acked = 0
        """Messages since the first of those in doubt."""

    @property
    def is_enough(self) -> bool:
        """Whether so many had the same cause, at the last look, that only time told."""
        return self._enough_since_ns > 0

    def takes(self) -> bool:
        """Note a message that has failed for the first time; return True if it may be in doubt with the others."""
        if not self.causes:
            self._failed = self._acked = 0
        self._failed += 1
        return len(self.causes) < MOST

    def count_acks(self, emitted_ns: int = 1) -> None:
        """Have acks count from now on, unless they do, of messages emitted after this time: one in doubt has failed in
        this incarnation, or was held back."""
        self._counts_ns = (self._counts_ns or emitted_ns) if self.causes else 0

    def acked(self, emitted_ns: int, messages: int = 1) -> list[Hashable]:
        """Note the acks of messages that were emitted then; return the messages that are no longer in doubt."""
        if not 0 < self._counts_ns < emitted_ns:
            return []
        self._acked += messages
        if self._acked * _PER_ACK < max(self._failed, len(self.causes)):
            return []
        cleared, self.causes = list(self.causes), {}
        self._counts_ns = self._enough_since_ns = 0
        return cleared

    def is_set_up(self, acked_before: bool, now_ns: int, at_limit: bool = False) -> bool:
        """Return True if the set-up is at fault, and the run has to stop. `at_limit`: no message can be tried that has
        not reached its limits."""
        (cause, most), = Counter(self.causes.values()).most_common(1) or [("", 0)]
        if most < (_LATELY if acked_before else _FROM_THE_FIRST):
            self._enough_since_ns = 0
            return False
        self._enough_since_ns = self._enough_since_ns or now_ns
        waits = self._waits or cause.startswith(PASSING)
        return at_limit or not waits or now_ns - self._enough_since_ns >= PATIENCE_SECS * 1e9
