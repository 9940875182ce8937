"""A source by itself, as its thread calls it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from squall.connect import Source
from squall.engine.api.replaying import Record
from tests.process.waiting import wait_for


class Alone:
    """Calls a source as its thread does, until the end of a `with`."""

    def __init__(self, source: Source, state: Path | None = None) -> None:
        """`state`: its shared state directory."""
        self.source, self.told = source, list[str]()
        source.tell = lambda error: self.told.append(str(error))  # type: ignore[method-assign]
        source.is_taken = lambda: True  # type: ignore[method-assign]
        context: Any = SimpleNamespace(
            topology_name="alone", component_id="source", task_index=0, state_root=state, shared_state_dir=state,
            component_tasks=lambda _: [1])
        source.connect(context)
        self.read = source.read_from(None)

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.disconnect()

    def until(
        self, enough: Callable[[list[Record]], object], between: Callable[[], object] = lambda: None
    ) -> list[Record]:
        found = list[Record]()

        def look() -> object:
            more = next(self.read)
            assert isinstance(more, list)
            found.extend(more)
            between()
            return enough(found)

        wait_for("enough records", look)
        return found
