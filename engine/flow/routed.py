"""Values with the stream and the task they were emitted to, where they may have to be emitted again."""

from __future__ import annotations

from typing import Any


class Routed(tuple[Any, ...]):  # noqa: SLOT001 - a tuple's subclass cannot have any
    """Values that were not emitted on the default stream, and where they were emitted to."""

    stream: str
    direct: int | None

    @classmethod
    def on(cls, stream: str, direct: int | None, values: Any) -> Routed:
        routed = cls(values)
        routed.stream, routed.direct = stream, direct
        return routed
