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
    * The function of a module travels to workers by name, as a class does; that of a topology file, of `__main__` or of
      a notebook, and one inside of another function, travels by value, which needs cloudpickle. What is unpickled or
      copied is a component of its own, for one task.

Relies on: `engine.api.replaying` for `@spout`; this module holds what both have in common, and `@bolt`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, ClassVar, overload

from squall.engine.api.component import BasicBolt
from squall.engine.api.stream import DEFAULT_STREAM, Emit, Outputs, Stream
from squall.engine.errors import ComponentError, UsageError
from squall.engine.foreign.methods import deferred_kind
from squall.engine.foreign.text import repr_of, type_name

if TYPE_CHECKING:
    from squall.engine.api.collectors import BasicCollector
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.tuple import Tuple

Function = Callable[..., Any]
Streams = Mapping[str, Sequence[str] | Stream]


class OfFunction:
    """The common part of spouts and bolts. Called, it calls the function."""

    kind: ClassVar[str]
    """"spout" or "bolt"."""
    positional: ClassVar[int]
    """Number of arguments that the function is called with."""
    by_name: ClassVar[tuple[str, ...]]
    """Parameters that it may have besides."""
    __name__: str

    def __init__(self, function: Function, outputs: Outputs, blocking: bool) -> None:
        deferred = deferred_kind(function) or ""
        if isinstance(function, type | OfFunction) or not callable(function) or deferred.startswith("async"):
            raise UsageError(
                f"@{self.kind} is put on {name_of(function)}; allowed: a function, with or without yield (for async "
                f"def there is the base class Async{self.kind.capitalize()})"
            )
        self.takes = self._bind(function)
        """Those of `by_name` that the function has."""
        self.function, self.outputs, self.blocking = function, outputs, blocking
        self.has_one_field = len(_default_fields(outputs)) == 1
        # Shown, and found in its module, as the function would be.
        self.__name__ = name_of(function)
        self.__doc__ = getattr(function, "__doc__", None)
        self.__module__ = getattr(function, "__module__", "")
        self.__qualname__ = getattr(function, "__qualname__", "")

    def _bind(self, function: Function) -> frozenset[str]:
        """Return which parameters of `by_name` the function has. UsageError if it cannot be called with these."""
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # written in C
            return frozenset()
        takes = frozenset(self.by_name).intersection(signature.parameters)
        try:
            signature.bind(*[None] * self.positional, **dict.fromkeys(takes))
        except TypeError as error:
            raise UsageError(
                f"@{self.kind} function {name_of(function)}: {error}; allowed parameters: "
                f"{'one for the tuple, ' * self.positional}{', '.join(self.by_name)} (give others by functools.partial)"
            ) from None
        return takes

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        module, name = self.__module__, self.__qualname__
        if module and name and module != "__main__" and not _is_sent(module):
            found = _found(sys.modules.get(module), name)
            if type(found) is type(self) and found.function is self.function:
                return _by_name, (module, name)
        return type(self), (self.function, self.outputs, self.blocking)


def name_of(function: Any) -> str:
    """Return the name of a function, behind what `functools.partial` has made of it."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else repr_of(function)


def _default_fields(outputs: Outputs) -> Sequence[str]:
    found = outputs.get(DEFAULT_STREAM, ()) if isinstance(outputs, Mapping) else outputs
    return found.fields if isinstance(found, Stream) else found


def _is_sent(module: str) -> bool:
    """Return True if cloudpickle was told to send the code of this module. If it is not imported, nobody told it."""
    cloudpickle = sys.modules.get("cloudpickle")
    if cloudpickle is None:
        return False
    sent = cloudpickle.list_registry_pickle_by_value()
    return any(module == name or module.startswith(f"{name}.") for name in sent)


def _found(module: Any, name: str) -> Any:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _by_name(module: str, name: str) -> Any:
    found = _found(importlib.import_module(module), name)
    if not isinstance(found, OfFunction):
        raise ComponentError(f"{module}.{name} is {repr_of(found)}; when it was sent, @spout or @bolt had made it")
    return type(found)(found.function, found.outputs, found.blocking)


def outputs_of(fields: tuple[Any, ...], streams: Streams | None) -> Outputs:
    """Return the outputs that `@spout` or `@bolt` with these arguments declares."""
    if streams is None:
        return fields
    if not isinstance(streams, Mapping):
        raise UsageError(f"streams is {repr_of(streams)}; allowed: a dict from names to field names or Stream objects")
    return {DEFAULT_STREAM: fields, **streams} if fields else dict(streams)


class FunctionBolt(OfFunction, BasicBolt):
    """A bolt made by `@bolt`; without outputs, a sink. What can be decided before the first tuple is in `prepare`."""

    kind, positional, by_name = "bolt", 1, ("context",)

    def __init__(self, function: Function, outputs: Outputs, blocking: bool) -> None:
        super().__init__(function, outputs, blocking)
        self.yields = deferred_kind(function) is not None
        if self.yields and not outputs:
            raise UsageError(
                f'@bolt function {self.__name__} yields, but names no field to emit; allowed: @bolt("field", ...)'
            )

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        call = functools.partial(self.function, context=context) if self.takes else self.function
        make = _yielding if self.yields else _returning if self.outputs else _sink
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
        elif kind is Emit:
            made.by(collector)
        elif made is not None:
            collector.emit((made,) if has_one_field else made)

    return execute


def _yielding(call: Function, has_one_field: bool) -> Execute:
    def execute(tup: Tuple, collector: BasicCollector) -> None:
        emit = collector.emit
        for made in call(tup):
            kind = made.__class__
            if kind is tuple:
                emit(made)
            elif kind is Emit:
                made.by(collector)
            elif made is not None:
                emit((made,) if has_one_field else made)

    return execute


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
    """Make a bolt of a function of one tuple: `@bolt("square")`, or `bolt(print)` for a sink.

    `fields`, `streams` and `blocking` are those of `spout`. The function takes the tuple, and may take `context`; what
    it yields or returns is emitted, anchored to the tuple. UsageError if it takes anything else.
    """
    if len(fields) == 1 and not isinstance(fields[0], str):
        return FunctionBolt(fields[0], outputs_of((), streams), blocking)
    outputs = outputs_of(fields, streams)
    return lambda function: FunctionBolt(function, outputs, blocking)
