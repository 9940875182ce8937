"""Tells a fault of the set-up from bad messages: a wrong line, a missing file, a full disk fail each message, and would
make all of the input dead letters, one after another.

A message that fails for the first time by an exception in a bolt is *in doubt*. It is held back until others get
through, one for each ten that have failed, or there is no other to try. The set-up is at fault if enough messages in
doubt have the same *cause*: component, type of the exception, and line of the user's code.

    enough                  5 messages if the spout task was never acked any, else 20
    with on_error="fail"    and ten seconds without better news, because retries may outlast what is amiss; or all that
                            could be tried have reached their limits

A spout that lost its worker may read its input from the beginning, and what comes before the fault gets through each
time. So after such a death only the acks of messages count that were emitted after one in doubt came up again.

For example, `emit(values, stream="wrods")` is wrong for every tuple: messages 1 to 5 end a worker each, and the run
stops. If message 3 alone is bad, message 4 is acked, and message 3 is tried alone until it is buried.

Guarantees: at most `MOST` messages are in doubt. Pure. Thread: the worker's loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from squall.engine.api.failure import EXCEPTION, MACHINE, Failure

_FROM_THE_FIRST, _LATELY = 5, 20
MOST = 32
_PATIENCE_NS = 10_000_000_000
_PER_ACK = 10
"""Failed messages for which one has to get through."""


def cause_of(failure: Failure) -> str:
    """What messages that fail the same way have in common; "" if the failure casts no doubt on the set-up."""
    if failure.reason not in (EXCEPTION, MACHINE) or failure.among > 1:
        return ""
    return f"{failure.component} {failure.error.partition(':')[0]} {failure.where.partition(' with ')[0]}"


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
        most = max(Counter(self.causes.values()).values(), default=0)
        if most < (_LATELY if acked_before else _FROM_THE_FIRST):
            self._enough_since_ns = 0
            return False
        self._enough_since_ns = self._enough_since_ns or now_ns
        return at_limit or not self._waits or now_ns - self._enough_since_ns >= _PATIENCE_NS
