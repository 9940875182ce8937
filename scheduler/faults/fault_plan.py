"""A fault plan: faults from files and from the command line, each a line (see `scheduler.faults.fault`).

::

    seed: 7
    for: 60s
    faults:
      - kill worker count[0] at 3s
      - partition node-1 node-2 for 3s at 2s every 10s

Guarantees: every Plan can be carried out; otherwise one UsageError names every fault that has a mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from squall.engine.errors import UsageError
from squall.scheduler.common.duration import parse_duration_secs
from squall.scheduler.faults.fault import Fault, parse
from squall.scheduler.faults.resolution import View, check


class _File(msgspec.Struct, forbid_unknown_fields=True, rename={"for_": "for"}):
    faults: list[str]
    seed: int | None = None
    for_: str | int | None = None


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults that can be carried out."""

    faults: tuple[Fault, ...]
    seed: int = 0
    for_secs: float | None = None
    """Seconds after which it ends, even if faults are still to come; None: it ends with its last fault."""


def read_plan(lines: Sequence[str], paths: Sequence[str], view: View | None, for_secs: float | None) -> FaultPlan:
    """The faults of these files, then those of `--fault` in `lines`. `for_secs`: the length of the run."""
    sources: list[tuple[str, str]] = []
    seeds: list[int] = []
    ends_secs = [] if for_secs is None else [for_secs]
    for path in paths:
        file = _read(path)
        sources += [(f"{path}: fault {number}", line) for number, line in enumerate(file.faults, 1)]
        seeds += [file.seed] if file.seed is not None else []
        ends_secs += [parse_duration_secs(str(file.for_))] if file.for_ is not None else []
    if len(seeds) > 1:
        raise UsageError(f"{', '.join(paths)} have a seed each; a run has one")
    sources += [("--fault", line) for line in lines]
    faults, mistakes = [], []
    for source, line in sources:
        try:
            fault = parse(line)
            check(fault, view)
            faults.append(fault)
        except UsageError as error:
            mistakes.append(f"{source}: {error}")
    if mistakes:
        raise UsageError("; ".join(mistakes))
    return FaultPlan(tuple(faults), seeds[0] if seeds else 0, min(ends_secs, default=None))


def _read(path: str) -> _File:
    try:
        return msgspec.yaml.decode(Path(path).read_bytes(), type=_File)
    except OSError as error:
        raise UsageError(f"cannot read plan {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        said = " ".join(str(error).split())[:300]
        raise UsageError(f"plan {path}: {said}; a plan has a list of faults, and may have seed and for") from None
