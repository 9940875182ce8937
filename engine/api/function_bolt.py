"""FunctionBolt: a function of one tuple as a bolt; `@bolt` makes it.

Guarantees: each emit is anchored to the input tuple, which is acked when the function ends, as for every `BasicBolt`.
Whatever can be decided before the first tuple is decided in `prepare`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, overload

from squall.engine.api.component import BasicBolt
from squall.engine.api.of_function import (
    Function,
    OfFunction,
    Streams,
    is_named,
    is_needed,
    name_of,
    outputs_of,
    shown,
    yields,
)
from squall.engine.api.stream import Emit, Outputs
from squall.engine.errors import ComponentError, UsageError
from squall.engine.foreign.text import type_name

if TYPE_CHECKING:
    from squall.engine.api.collectors import BasicCollector
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.tuple import Tuple


class FunctionBolt(OfFunction, BasicBolt):
    """A bolt made by `@bolt`; without outputs, a sink."""

    kind = "bolt"

    def check(self, function: Function, outputs: Outputs, parameters: list[inspect.Parameter]) -> None:
        takes_tuple = any(one.kind is not one.KEYWORD_ONLY and one.name != "context" for one in parameters[:1])
        others = [one for one in parameters[1:] if is_needed(one) and not (is_named(one) and one.name == "context")]
        if others or not takes_tuple:
            raise UsageError(
                f"@bolt function {name_of(function)} has the parameters {shown(parameters)}; allowed: one for the "
                "tuple, and perhaps context (give it others by functools.partial)"
            )
        if yields(function) and not outputs:
            raise UsageError(
                f'@bolt function {name_of(function)} yields, but names no field to emit; allowed: @bolt("field", ...)'
            )

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        call = functools.partial(self.function, context=context) if self.takes_context else self.function
        make = _yielding if yields(self.function) else _returning if self.outputs else _sink
        # The engine calls what is here after `prepare`.
        self.execute = make(call, self.has_one_field)  # type: ignore[assignment, method-assign]


Execute = Callable[["Tuple", "BasicCollector"], Any]


def _sink(call: Function, has_one_field: bool) -> Execute:
    return lambda tup, collector: call(tup)


def _returning(call: Function, has_one_field: bool) -> Execute:
    emit_all: Callable[[Any, BasicCollector], None] = _yielding(iter, has_one_field)

    def execute(tup: Tuple, collector: BasicCollector) -> None:
        made = call(tup)
        kind = made.__class__
        if kind is tuple:
            collector.emit(made)
        elif kind is GeneratorType:  # of a generator function behind a decorator
            emit_all(made, collector)
        elif kind in _NEVER_RUN:
            _refuse(call, made)
        elif made is not None:
            _emit(collector, made, has_one_field)

    return execute


def _yielding(call: Function, has_one_field: bool) -> Execute:
    def execute(tup: Tuple, collector: BasicCollector) -> None:
        emit = collector.emit
        for made in call(tup):
            kind = made.__class__
            if kind is tuple:
                emit(made)
            elif kind is Emit:
                _emit(collector, made, has_one_field)
            elif made is not None:
                emit((made,) if has_one_field else made)

    return execute


def _emit(collector: BasicCollector, made: Any, has_one_field: bool) -> None:
    if made.__class__ is not Emit:
        collector.emit((made,) if has_one_field else made)
    elif made.task is None:
        collector.emit(made.values, made.stream)
    else:
        collector.emit_direct(made.task, made.values, made.stream)


_NEVER_RUN = frozenset({CoroutineType, AsyncGeneratorType})


def _refuse(call: Function, made: Any) -> None:
    if isinstance(made, CoroutineType):
        made.close()  # or Python warns that it was never awaited
    raise ComponentError(
        f"@bolt function {name_of(call)} returned a {type_name(made)}, and nothing runs it; allowed: what to emit, or "
        "the base class AsyncBolt"
    )


@overload
def bolt(function: Function, /) -> FunctionBolt: ...
@overload
def bolt(
    *fields: str, streams: Streams | None = None, blocking: bool = False
) -> Callable[[Function], FunctionBolt]: ...
def bolt(*fields: Any, streams: Streams | None = None, blocking: bool = False) -> Any:
    """Make a bolt of a function of one tuple; without fields and streams, a sink. Arguments as for `spout`."""
    if len(fields) == 1 and not isinstance(fields[0], str):
        return FunctionBolt(fields[0], outputs_of((), streams), blocking)
    outputs = outputs_of(fields, streams)
    return lambda function: FunctionBolt(function, outputs, blocking)
