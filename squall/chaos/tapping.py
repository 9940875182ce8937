"""What all taps of one run share: their options, the field that carries keys, the logs, and how a tap stands around an
object of the user's.

Guarantees: a log is a new file for each incarnation of a task, so that a line torn by a death stays the last of its
file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall.chaos.line_log import LineLog

STEMS_FROM = "squall_stems_from"
"""The taps' own field: keys of messages, one key alone or a tuple of several."""
Keys = str | tuple[str, ...]
NO_ID = ("no id",)
"""In place of keys: the tuple stems from a tick, or from an emit without a message id."""
_LET_GO = "let-go"
"""A file in the taps' directory."""


@dataclass(frozen=True)
class Tapping:
    """The options of one run's taps."""

    directory: str
    """The directory of their logs."""
    sinks: tuple[str, ...]
    key: Callable[[dict[str, Any]], Any] | None = None
    """Makes of a sink's tuple, by field, what must be the same in each run; None: all its values."""
    rates: Mapping[str, float] | None = None
    """Spout -> most emits per second and task, until `let_go`; None: unlimited."""
    by_task: bool = False
    """True if each task of a spout has message ids of its own, so that two may use the same id for two messages."""
    fail_every: int = 0
    """Turn the first ack of one message in this many into a failure, so that the spout emits it again; 0: never."""
    refuse_every: int = 0
    """Fail, at each sink, what stems from one message in this many, before the sink has it and for a fifth of a second
    from the first tuple on: as if it were lost on the way; 0: never."""


def let_go(tapping: Tapping) -> None:
    """Let spouts emit at full speed from now on, without failures and losses on purpose."""
    (Path(tapping.directory) / _LET_GO).touch()


def is_let_go(tapping: Tapping) -> bool:
    """Return True if `let_go` was called."""
    return os.path.exists(os.path.join(tapping.directory, _LET_GO))


def new_log(tapping: Tapping, kind: str) -> LineLog:
    """Open a new log; `kind`: "source" or "sink"."""
    fd, path = tempfile.mkstemp(prefix=f"{kind}-", dir=tapping.directory)
    os.close(fd)
    return LineLog(path)


def row_of(values: Any) -> Any:
    """The values of an emit as a tuple. Invalid ones stay as they are, for the engine to refuse."""
    if values.__class__ is tuple or not isinstance(values, Iterable) or isinstance(values, str | bytes):
        return values
    return tuple(values)


def with_keys(values: Any, keys: Keys) -> Any:
    """Add keys to the values of an emit."""
    row = row_of(values)
    return (*row, keys) if row.__class__ is tuple else row
