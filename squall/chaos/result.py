"""A topology's result, outside of the topology: what its sinks wrote, read back by a function of the user's after each
run, and compared with that of the first run, which has no faults.

Guarantees: no run finds the result of an earlier one: the topology is built anew for each, in a new directory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

from squall.engine.api.topology import Topology
from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of

PLACE = "{}"
_SHOWN_CHARACTERS = 60


class Result:
    """Reads the results of runs, one after the other."""

    def __init__(self, build: Callable[[Path], Topology], read: Callable[[Path], Any], directory: Path) -> None:
        """`build`, `read`: make the topology, and read its result, in a run's own directory, which is below
        `directory`."""
        self._build, self._read, self._directory = build, read, directory
        self._first: list[Any] = []
        """The results of the first run, before it and after it."""

    def begin(self) -> Topology:
        """Build the topology for a run. UsageError if the result of an earlier run is still there."""
        self._path = Path(tempfile.mkdtemp(prefix="result-", dir=self._directory))
        topology = self._build(self._path)
        try:
            before = self._read(self._path)
        except UsageError:  # there may be nothing to read yet
            before = None
        if len(self._first) == 2 and before == self._first[1] != self._first[0]:
            raise UsageError(
                "--result: the result of the run before is still there, and would hide what the next one loses; let "
                f"the topology write below a directory that an ARG gives, and write {PLACE} for it: each run has one"
            )
        if not self._first:
            self._first.append(before)
        return topology

    def end(self) -> str:
        """Read the result of a run; return how it differs from that of the first one, "" if it does not."""
        try:
            value = self._read(self._path)
        except UsageError as error:
            if len(self._first) < 2:
                raise
            return f"the result cannot be read: {error}"
        finally:
            shutil.rmtree(self._path)
        if len(self._first) < 2:
            self._first.append(value)
            if value == self._first[0]:
                raise UsageError(f"--result: the first run changed nothing: the result is {_shown(value)}, as before")
        wanted = self._first[1]
        return "" if value == wanted else f"the result differs from that without faults: {_difference(wanted, value)}"


def _difference(wanted: Any, got: Any) -> str:
    if isinstance(wanted, Mapping) and isinstance(got, Mapping):
        differ = [key for key in wanted.keys() & got.keys() if wanted[key] != got[key]]
        parts = [f"{_shown(key)} is {_shown(got[key])} and not {_shown(wanted[key])}" for key in differ[:3]]
        missing, new = len(wanted.keys() - got.keys()), len(got.keys() - wanted.keys())
        counts = f"{missing} of {len(wanted)} keys are missing, {new} are new, {len(differ)} have other values"
        return "; ".join([counts, *parts])
    if isinstance(wanted, Set) and isinstance(got, Set):
        return f"{len(wanted - got)} of {len(wanted)} are missing, {len(got - wanted)} are new"
    return f"{_shown(got)} and not {_shown(wanted)}"


def _shown(value: Any) -> str:
    return repr_of(value, _SHOWN_CHARACTERS)
