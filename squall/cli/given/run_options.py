"""What a `squall run` is given: its options, then the topology that they name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squall.cli.given.loader import Loaded
    from squall.cli.shown.live import Progress
    from squall.engine.api.config import Config


@dataclass(frozen=True)
class RunOptions:
    """The options of `squall run`, by the names of the command's parameters."""

    target: str
    app_dir: str | None
    workers: int | None
    nodes: int
    name: str | None
    settings: tuple[str, ...]
    duration: str | None
    drain_secs: float
    interval: float | None
    directory: str | None
    faults: tuple[str, ...]
    fault_plans: tuple[str, ...]
    local: bool
    engine: str | None
    master: str | None
    checkpoint: str | None
    batch_rows: int | None
    accept_approx: bool
    quiet: bool
    ui: bool
    as_json: bool
    arguments: tuple[str, ...]

    def of_streamparse(self) -> RunOptions:
        """Read the target as the folder of a streamparse project, and ARGS as its topology."""
        folder = os.path.abspath(self.target)
        name = self.name or "".join(self.arguments[:1]) or os.path.basename(folder)
        return replace(
            self, target="squall.connect.multilang.streamparse_project", arguments=(folder, *self.arguments), name=name
        )


@dataclass(frozen=True)
class LoadedRun:
    """A topology that was loaded, and how it is to run."""

    options: RunOptions
    name: str
    loaded: Loaded
    config: Config
    for_secs: float | None

    def progress(self) -> Progress:
        from squall.cli.shown.live import Progress

        return Progress(self.name, self.options.interval, self.options.quiet or self.options.as_json)

    def clock(self) -> Callable[[], bool]:
        """Start the time of --for; the result tells whether it is over."""
        deadline = float("inf") if self.for_secs is None else time.monotonic() + self.for_secs
        return lambda: time.monotonic() >= deadline
