"""FunctionSpout: a generator function as a spout that replays; `@spout` makes it.

Guarantees
    * The records of a task are numbered from 0; the number is the message id. Each is emitted until it is acked or a
      dead letter.
    * After the death of its worker, a function with a parameter `start` is called with the number of the first record
      that is not acked, and of a sequence the records before are left out. Any other function begins anew: all that it
      yields is emitted, also what was acked.

Relies on: a function with `start` beginning there, and a sequence being the same each time. The position is stored in
the task's state directory, at most every tenth of a second.
"""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squall.engine.api.acked_prefix import AckedPrefix, PositionFile
from squall.engine.api.functions import Function, OfFunction, Streams, name_of, outputs_of
from squall.engine.api.replaying import Record, ReplayingSpout
from squall.engine.api.stream import Emit, Outputs
from squall.engine.errors import ComponentError, UsageError
from squall.engine.foreign.text import repr_of

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext


class FunctionSpout(OfFunction, ReplayingSpout):
    """A spout made by `@spout`."""

    kind, positional, by_name = "spout", 0, ("start", "context")

    def __init__(self, function: Function, outputs: Outputs, blocking: bool) -> None:
        if not outputs:
            raise UsageError(f'@spout on {name_of(function)} names no field to emit; allowed: @spout("field", ...)')
        super().__init__(function, outputs, blocking)

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        file = None if context.state_root is None else PositionFile(os.path.join(context.state_dir, "position"))
        begin = 0 if file is None else file.load()
        known = {"start": begin, "context": context}
        made = self.function(**{name: known[name] for name in self.takes})
        if isinstance(made, str | bytes) or not isinstance(made, Iterable):
            raise ComponentError(
                f"@spout function {self.__name__} returned {repr_of(made)}; allowed: yields, or an iterable to emit"
            )
        if "start" not in self.takes:
            if isinstance(made, Sequence):
                made = map(made.__getitem__, range(begin, len(made)))
            else:
                file, begin = None, 0
        self._made, self._file = made, file
        self._prefix, self._stored = AckedPrefix(begin), begin

    def read(self) -> Generator[Record | None, None, None]:
        numbers = itertools.count(self._stored)
        for values in self._made:
            if values is None:
                yield None
            elif self.has_one_field and values.__class__ is not tuple and values.__class__ is not Emit:
                yield next(numbers), (values,)
            else:
                yield next(numbers), values

    def ack(self, message_id: int) -> None:
        self._prefix.ack(message_id)
        super().ack(message_id)

    def store(self) -> None:
        position = self._prefix.committable
        if self._file is not None and position != self._stored:
            self._file.store(position)
            self._stored = position

    def close(self) -> None:
        super().close()
        if inspect.isgenerator(self._made) and not self._made.gi_running:
            self._made.close()  # its `finally`; a blocking one may be at work


def spout(*fields: str, streams: Streams | None = None, blocking: bool = False) -> Callable[[Function], FunctionSpout]:
    """Make a spout of a generator function, or of one that returns an iterable: `@spout("n")`.

    `fields` name the values of the default stream; `streams` is a dict of further streams, as in `Spout.outputs`; with
    `blocking=True` the function may wait, in a thread of its own. The function takes nothing, `context` (the
    `TopologyContext`) or `start` (the number of the record to begin with). UsageError if it takes anything else.
    """
    if len(fields) == 1 and callable(fields[0]):
        return FunctionSpout(fields[0], (), blocking)  # refused: it names no field
    outputs = outputs_of(fields, streams)
    return lambda function: FunctionSpout(function, outputs, blocking)
