"""An object that stands for another.

Pure. Thread: any.
"""

from __future__ import annotations

from typing import Any


class Around:
    """Stands for an object of the user's or the engine's: has its class, and all its attributes that a subclass does
    not define. So the engine treats a component behind it as the kind that it is."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._inner.__class__


class WithoutLast(Around):
    """Stands for a custom grouping; hides the last value of each tuple, which is no field of the user's."""

    def __reduce__(self) -> Any:
        return WithoutLast, (self._inner,)

    def choose_tasks(self, source_task: int, values: Any) -> Any:
        return self._inner.choose_tasks(source_task, values[:-1])
