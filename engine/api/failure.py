"""Why a tuple tree failed: what the spout and the operator are told."""

from __future__ import annotations

from dataclasses import dataclass, replace

FAILED = "failed"
EXCEPTION = "exception"
TIMEOUT = "timeout"
WORKER_DIED = "worker died"
FRAME_LOST = "frame lost"
"""Between two workers. It says nothing of the message."""
HUNG = "hung"
"""`execute`, on a thread of its own, did not come back; the worker was ended for it."""
ANOTHER_TUPLE = "the worker ended by an exception in another tuple"
"""Error text of a "worker died" that is known not to be this message's doing."""


@dataclass(frozen=True)
class Failure:
    """One failure of one attempt."""

    reason: str
    """"failed" (a bolt said so), "exception", "timeout", "hung", "worker died" or "frame lost"."""
    component: str = ""
    """Component it failed in; empty where nobody can know (a timeout)."""
    task: int = 0
    worker: str = ""
    """"node:port" it failed in, or was on its way to."""
    error: str = ""
    """Text of the error, where there was one."""
    attempt: int = 1
    """How many times this message has been tried so far."""

    def as_attempt(self, attempt: int) -> Failure:
        return replace(self, attempt=attempt)

    def __str__(self) -> str:
        where = f" in {self.component}[{self.task}]" if self.component else ""
        on = f" on {self.worker}" if self.worker else ""
        what = f": {self.error}" if self.error else ""
        return f"{self.reason}{where}{on}{what} (attempt {self.attempt})"
