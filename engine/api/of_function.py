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

This module holds what both have in common: the function, its checks, and how it travels.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from squall.engine.api.stream import DEFAULT_STREAM, Outputs, Stream
from squall.engine.errors import ComponentError, UsageError
from squall.engine.foreign.methods import deferred_kind
from squall.engine.foreign.text import repr_of, type_name

Function = Callable[..., Any]
Streams = Mapping[str, Sequence[str] | Stream]


class OfFunction:
    """The common part. Called, it calls the function."""

    kind: str
    """"spout" or "bolt"."""
    __name__: str

    def __init__(self, function: Function, outputs: Outputs, blocking: bool) -> None:
        parameters = parameters_of(self.kind, function)
        self.check(function, outputs, parameters)
        self.takes_context = any(one.name == "context" for one in parameters if is_named(one))
        self.function, self.outputs, self.blocking = function, outputs, blocking
        self.has_one_field = len(_default_fields(outputs)) == 1
        # Shown, and found in its module, as the function would be.
        self.__name__ = name_of(function)
        self.__doc__ = getattr(function, "__doc__", None)
        self.__module__ = getattr(function, "__module__", "")
        self.__qualname__ = getattr(function, "__qualname__", "")

    def check(self, function: Function, outputs: Outputs, parameters: list[inspect.Parameter]) -> None:
        """Raise UsageError if it cannot be such a component."""
        raise TypeError(f"{type(self).__name__} must define check")

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        module, name = self.__module__, self.__qualname__
        if module and name and module != "__main__" and not _is_sent(module):
            found = _found(sys.modules.get(module), name)
            if type(found) is type(self) and found.function is self.function:
                return _by_name, (module, name)
        return type(self), (self.function, self.outputs, self.blocking)


def parameters_of(kind: str, function: Any) -> list[inspect.Parameter]:
    """The parameters of a function to decorate. UsageError for what is no such function."""
    mistake = ""
    if isinstance(function, OfFunction):
        mistake = "a component already"
    elif isinstance(function, type):
        mistake = "a class: its instances are components without it"
    elif not callable(function):
        mistake = f"of type {type_name(function)}"
    elif (deferred := deferred_kind(function)) and deferred.startswith("async"):
        mistake = f"{deferred}: the base class Async{kind.capitalize()} is for that"
    if mistake:
        raise UsageError(
            f"@{kind} is put on {name_of(function)}, which is {mistake}; allowed: a function, with or without yield"
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return [inspect.Parameter("tup", inspect.Parameter.POSITIONAL_ONLY)] if kind == "bolt" else []
    return [one for one in parameters if one.kind is not one.VAR_KEYWORD]


def is_named(parameter: inspect.Parameter) -> bool:
    """Whether it can be given by name."""
    return parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def is_needed(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL


def shown(parameters: list[inspect.Parameter]) -> str:
    return f"({', '.join(map(str, parameters))})"[:80]


def yields(function: Any) -> bool:
    """Whether it is a generator function, perhaps with some arguments given."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.isgeneratorfunction(function)


def name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else repr_of(function)


def _default_fields(outputs: Outputs) -> Sequence[str]:
    found = outputs.get(DEFAULT_STREAM, ()) if isinstance(outputs, Mapping) else outputs
    return found.fields if isinstance(found, Stream) else found


def _is_sent(module: str) -> bool:
    """Whether cloudpickle was told to send the code of this module. If it is not imported, nobody told it."""
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
    """What `@spout` or `@bolt` with these arguments declares."""
    if streams is None:
        return fields
    return {DEFAULT_STREAM: fields, **streams} if fields else dict(streams)
