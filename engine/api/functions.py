"""`@spout` and `@bolt`: functions as components, for what needs neither state nor a life cycle.

::

    @spout("n")
    def numbers(start):
        yield from range(start, 1000)

    @bolt("square")
    def square(tup):
        yield tup["n"] ** 2

Guarantees
    * The decorated name is a spout or a bolt like one made of a class.
    * What a function yields is emitted, and so is what one without yield returns. A plain tuple is a row; for a default
      stream of one field, anything else is its value. `Emit` names another stream. None is nothing.
    * A parameter `context` receives the `TopologyContext`, `start` the number of the record to begin with.
    * Wrong use is one UsageError, where the function is decorated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from squall.engine.api.function_bolt import FunctionBolt
from squall.engine.api.function_spout import FunctionSpout
from squall.engine.api.of_function import Function, name_of
from squall.engine.api.stream import DEFAULT_STREAM, Outputs, Stream
from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of

Streams = Mapping[str, Sequence[str] | Stream]


def spout(*fields: str, streams: Streams | None = None, blocking: bool = False) -> Callable[[Function], FunctionSpout]:
    """Make a spout of a generator function, or of one that returns an iterable. `fields` are those of the default
    stream; `streams`: further ones, as in `outputs`; `blocking`: it may wait, in a thread of its own."""
    if len(fields) == 1 and callable(fields[0]):
        raise UsageError(f'@spout on {name_of(fields[0])} names no field to emit; allowed: @spout("field", ...)')
    outputs = _outputs("spout", fields, streams)
    return lambda function: FunctionSpout(function, outputs, blocking)


@overload
def bolt(function: Function, /) -> FunctionBolt: ...
@overload
def bolt(
    *fields: str, streams: Streams | None = None, blocking: bool = False
) -> Callable[[Function], FunctionBolt]: ...
def bolt(*fields: Any, streams: Streams | None = None, blocking: bool = False) -> Any:
    """Make a bolt of a function of one tuple; without fields and streams, a sink. Arguments as for `spout`."""
    if len(fields) == 1 and not isinstance(fields[0], str):
        return FunctionBolt(fields[0], _outputs("bolt", (), streams), blocking)
    outputs = _outputs("bolt", fields, streams)
    return lambda function: FunctionBolt(function, outputs, blocking)


def _outputs(kind: str, fields: tuple[Any, ...], streams: Streams | None) -> Outputs:
    for name in fields:
        if not isinstance(name, str):
            raise UsageError(f"@{kind} is given the field {repr_of(name)}; allowed: a name (streams={{name: fields}})")
    if streams is None:
        return fields
    if not isinstance(streams, Mapping):
        raise UsageError(f"@{kind} is given streams={repr_of(streams)}; allowed: a dict of stream name -> fields")
    return {DEFAULT_STREAM: fields, **streams} if fields else dict(streams)
