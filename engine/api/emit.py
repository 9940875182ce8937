"""Emit: values with the stream, and perhaps the task, that they go to, for components that yield what they emit."""

from __future__ import annotations

from typing import Any

from squall.engine.api.stream import DEFAULT_STREAM


class Emit:
    """`Emit(values, stream)` goes to a stream; with `task`, to that one task of a stream declared direct."""

    __slots__ = ("stream", "task", "values")

    def __init__(self, values: Any, stream: str = DEFAULT_STREAM, task: int | None = None) -> None:
        self.values = values
        """A tuple or list with a value for each field of the stream."""
        self.stream = stream
        """The stream on which they are emitted."""
        self.task = task
        """The task that they go to; None: as the groupings say."""

    def __repr__(self) -> str:
        task = "" if self.task is None else f", task={self.task}"
        return f"Emit({self.values!r}, {self.stream!r}{task})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Emit):
            return NotImplemented
        return (self.values, self.stream, self.task) == (other.values, other.stream, other.task)
