"""Values with the stream and the task they were emitted to, so that they can be emitted again."""

from __future__ import annotations

from typing import Any


class Routed(tuple[Any, ...]):  # noqa: SLOT001 - a tuple's subclass cannot have any
    """Values that were emitted on another stream than the default one, with that stream, or directly to a task."""

    stream: str
    direct: int | None

    @classmethod
    def on(cls, stream: str, direct: int | None, values: Any) -> Routed:
        routed = cls(values)
        routed.stream, routed.direct = stream, direct
        return routed
