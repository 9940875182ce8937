"""The instructions that `engine.tracking.fate` gives its caller, in order. Values only.

The docstring of an instruction that needs an answer says which. They are tuples, not dataclasses: making twelve of
those takes 4 ms of every start. So compare their types, not only their values.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

from squall.engine.api.failure import Failure


@dataclass
class Letter:
    """A dead letter that was given back."""

    message_id: Any
    values: Any
    """A tuple, `Routed` if it is not for the default stream."""
    closed: Callable[[], None]
    """Called when it is acked, or in the ledger again."""
    due_ns: int = 0


class Held(NamedTuple):
    """A message that waits to be emitted."""

    message_id: Any
    values: Any
    letter: Letter | None


class Note(NamedTuple):
    """Record a failed attempt among the failures."""

    message_id: Any
    failure: Failure


class Replay(NamedTuple):
    """Tell the spout of a failed attempt: it may emit the message again."""

    message_id: Any
    failure: Failure


class Hold(NamedTuple):
    """Count a failed attempt of a letter, which is kept and goes out again later."""

    letter: Letter


class Bury(NamedTuple):
    """Write the message to the dead-letter ledger."""

    message_id: Any
    values: Any
    failure: Failure


class TellDead(NamedTuple):
    """Tell the spout that its message is now in the ledger."""

    message_id: Any
    failure: Failure


class Refuse(NamedTuple):
    """Tell the spout that it has emitted a message that is already in the ledger. That attempt has failed."""

    message_id: Any
    failure: Failure


class Close(NamedTuple):
    """Close the request for a letter; its spout hears nothing of it."""

    letter: Letter


class Release(NamedTuple):
    """Emit a held message. Answered with its root, or why a letter cannot be sent any more."""

    held: Held


class BeginTrial(NamedTuple):
    """Take the permit to try suspects, or ask for it. Answered with whether this worker has it now."""


class EndTrial(NamedTuple):
    """Return the permit: every suspect on trial was answered."""


class LeaveTrials(NamedTuple):
    """Withdraw the request for the permit: nothing is left to try here."""


class LookRound(NamedTuple):
    """Ask whether every worker has taken a turn since then. Answered with that."""

    since_ns: int


Instruction = (
    Note | Replay | Hold | Bury | TellDead | Refuse | Close | Release | BeginTrial | EndTrial | LeaveTrials | LookRound
)
Steps = Generator[Instruction, Any, None]
"""Instructions of one event. The generator goes on only when an instruction was carried out and its answer sent in: a
caller that is ended in between has done all that was said before, and nothing after."""
