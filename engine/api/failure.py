"""The reason why a tuple tree failed, as shown to the spout and the operator."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace

from squall.engine.errors import ComponentError, UsageError

FAILED = "failed"
EXCEPTION = "exception"
TIMEOUT = "timeout"
WORKER_DIED = "worker died"
FRAME_LOST = "frame lost"
"""Lost between two workers: not the message's fault."""
FRAME_DAMAGED = "frame damaged"
"""Came to another worker, which could not read it: the next attempt may end like that too."""
HUNG = "hung"
"""`execute` of a blocking bolt did not return in time, so the worker was ended."""
MACHINE = "machine"
"""The machine refused something that any tuple needs, such as room on the disk: not the message's fault."""
ANOTHER_TUPLE = "the worker ended by an exception in another tuple"
"""Error text of a "worker died" that another message is known to have caused."""
FROM_OUTSIDE = "no tuple ended the worker"
"""Error text of a "worker died" that no message can have caused, or of which the cause is unknown."""
UNAVAILABLE = "unavailable"
"""What any tuple needs is away, as a bolt said, or is set up wrong (a UsageError): not the message's fault."""
# EFBIG: `ulimit -f`.
_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_SQLITE_REFUSED = (10, 13)
"""SQLITE_IOERR, "disk I/O error", which it makes of EFBIG and EDQUOT too; SQLITE_FULL."""
_DEEPEST = 16
"""Errors in one another that are looked at: there may be a circle of them."""


@dataclass(frozen=True)
class Failure:
    """Why one attempt of a message failed: the argument of `Spout.on_failure` and `on_dead_letter`."""

    reason: str
    """"failed" (by a bolt, or given up by its spout), "unavailable", "exception", "timeout", "hung", "worker died",
    "machine", "frame lost" or "frame damaged"."""
    component: str = ""
    """The component in which it failed; empty if unknown (a timeout)."""
    task: int = 0
    """The task in which it failed; 0 if unknown."""
    worker: str = ""
    """"node:port" of the worker in which it failed, or to which it was being sent."""
    error: str = ""
    """Text of the error; empty if there was none."""
    attempt: int = 1
    """Number of attempts of this message that have failed so far, from 1."""
    among: int = 1
    """Number of messages in the batch that failed by one error; any of them may be its cause."""
    where: str = field(default="", compare=False, repr=False)
    """Of an exception: the line of the user's code that raised it, and the tuple that was executed."""

    @property
    def place(self) -> str:
        """The line of the user's code that raised it; "" if that is not known."""
        place, known, _ = self.where.partition(") with ")
        return place + ")" if known else ""

    @property
    def accuses(self) -> bool:
        """Return False if the message is known not to be the cause."""
        return self.reason not in (FRAME_LOST, MACHINE, UNAVAILABLE) and not (self.reason == WORKER_DIED and self.error)

    def as_attempt(self, attempt: int) -> Failure:
        """Return the same failure with this number of the attempt."""
        # A death fails thousands of first attempts at once.
        return self if attempt == self.attempt else replace(self, attempt=attempt)

    def __str__(self) -> str:
        where = f" in {self.component}[{self.task}]" if self.component else ""
        on = f" on {self.worker}" if self.worker else ""
        what = f": {self.error}" if self.error else ""
        return f"{self.reason}{where}{on}{what} (attempt {self.attempt})"


def reason_of(error: BaseException) -> str:
    """The reason why a tuple failed by this error of user code, or by the one that it wraps."""
    if isinstance(error, UsageError) and not isinstance(error, ComponentError):
        return UNAVAILABLE
    inner: BaseException | None = error
    for _ in range(_DEEPEST):
        if inner is None:
            break
        refused = isinstance(inner, OSError) and inner.errno in _REFUSED
        if refused or getattr(inner, "sqlite_errorcode", 0) & 0xFF in _SQLITE_REFUSED:
            return MACHINE
        inner = inner.__cause__ or (None if inner.__suppress_context__ else inner.__context__)
    return EXCEPTION
