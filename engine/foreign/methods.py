"""Detects methods that only make a coroutine or a generator when called, and do nothing.

The engine calls a method and goes on when it returns. A call that only makes such an object would pass for success, so
it is refused: in `build()` if the definition shows it, else when it happens.

Guarantees: a method that works when called is left alone, whatever decorates it.

Thread: any; a `Returned` is its task's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import CoroutineType, MethodType
from typing import Any

from squall.engine.errors import ComponentError

GENERATOR = "a generator function (it has yield)"


def deferred_kind(function: Any) -> str | None:
    """The kind of a function that does nothing when called, as far as its definition shows; None for any other."""
    while isinstance(function, functools.partial | MethodType):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    for candidate in (function, type(function).__call__ if callable(function) else None):
        if inspect.iscoroutinefunction(candidate):
            return "async def"
        if inspect.isasyncgenfunction(candidate):
            return "async def with yield"
        if inspect.isgeneratorfunction(candidate):
            return GENERATOR
    return None


class Returned:
    """Checks the values that one method of one task returns, where None is expected."""

    def __init__(self, component: str, task: int, method: str, warn: Callable[[str], object] | None = None) -> None:
        """`warn(text)` tells the operator, once per component."""
        self._who, self._method, self.warn = f"{component}[{task}]", method, warn

    def __call__(self, value: Any) -> None:
        """Check one value. ComponentError for a coroutine, an iterator or the like, which nobody would run."""
        kind = type(value).__qualname__
        if isinstance(value, Awaitable | AsyncIterator | Iterator):
            if isinstance(value, CoroutineType):
                value.close()  # or Python warns that it was never awaited
            raise ComponentError(
                f"{self._who} returned a {kind} from {self._method}, and nothing runs it; allowed: a plain "
                f"{self._method} that returns None when its work is done (with blocking = True if it waits)"
            )
        if self.warn is None:
            return
        self.warn(
            f"{self._who} returned a value of type {kind} from {self._method}, where it is ignored; allowed: None; "
            f"{'define refused to fail rows' if self._method == 'commit' else 'emit through the collector'}"
        )


def checked(function: Callable[..., Any], returned: Callable[[Any], None]) -> Callable[..., None]:
    """Wrap `function` so that `returned` checks each result before the caller sees the call return."""

    def call(*arguments: Any) -> None:
        value = function(*arguments)
        if value is not None:
            returned(value)

    return call
