"""Whether a method does something when it is called, or only makes an object that would (a coroutine, a generator).

The engine calls methods and goes on when they come back. A call that only makes such an object passes for success
although nothing was done, so it is refused: in `build()` where the definition shows it, else when it happens.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import CoroutineType, MethodType
from typing import Any

from squall.engine.errors import ComponentError
from squall.engine.foreign.text import repr_of

SPOUT_METHODS = (
    "open", "next_tuple", "ack", "fail", "on_failure", "on_dead_letter", "activate", "deactivate", "close",
)
BOLT_METHODS = ("prepare", "execute", "cleanup")
GROUPING_METHODS = ("prepare", "choose_tasks")


def call_mistake(function: Any, arguments: int) -> str | None:
    """Why it cannot be called with so many arguments, as far as can be seen; None if it can."""
    if not callable(function):
        return f"as {repr_of(function)}, which cannot be called"
    try:
        signature = inspect.signature(function)
    except Exception:  # of the C kind, or with an odd __signature__: the call itself will tell
        return None
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return f"with the parameters {str(signature)[:80]}; it is called with {arguments}"
    return None


def deferred_kind(function: Any) -> str | None:
    """What kind of function that does nothing when it is called, as far as can be seen; None for any other."""
    while isinstance(function, functools.partial | MethodType):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    for candidate in (function, type(function).__call__ if callable(function) else None):
        if inspect.iscoroutinefunction(candidate):
            return "async def"
        if inspect.isasyncgenfunction(candidate):
            return "async def with yield"
        if inspect.isgeneratorfunction(candidate):
            return "a generator function (it has yield)"
    return None


class Returned:
    """What becomes of a value that one method of one task returned, where None is expected."""

    def __init__(self, component: str, task: int, method: str, warn: Callable[[str], None] | None = None) -> None:
        """`warn(text)` tells the operator, once per component."""
        self._who, self._method, self._warn = f"{component}[{task}]", method, warn

    def __call__(self, value: Any) -> None:
        """Raises ComponentError for what would do something if somebody ran it."""
        kind = type(value).__qualname__
        if isinstance(value, Awaitable | AsyncIterator | Iterator):
            if isinstance(value, CoroutineType):
                value.close()  # or Python says that it was never awaited
            raise ComponentError(
                f"{self._who} returned a {kind} from {self._method}, and nothing runs it; allowed is a plain "
                f"{self._method} that returns None when its work is done (and blocking = True for what waits in it)"
            )
        if self._warn is None:
            return
        self._warn(
            f"{self._who} returned a value of type {kind} from {self._method}, where it is ignored; allowed is None: "
            "emit through the collector"
        )


def checked(function: Callable[..., Any], returned: Callable[[Any], None]) -> Callable[..., None]:
    """`function`, which looks at what it returns before anybody is told that it has returned."""

    def call(*arguments: Any) -> None:
        value = function(*arguments)
        if value is not None:
            returned(value)

    return call
