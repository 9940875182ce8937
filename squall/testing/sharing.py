"""Objects that a test shares with the components it runs in its own process.

Each task has a copy of its component, made by pickle. A `Shared` object is not copied: the copies and the test hold
the same one. Sending it to another process fails, because it could not be shared there.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

import cloudpickle

from squall.engine.api.topology import ComponentSpec
from squall.engine.errors import UsageError


class Shared:
    """Base of objects shared within one process."""

    refusal: str
    """Error text if it is sent to another process."""

    def __reduce__(self) -> NoReturn:
        raise UsageError(self.refusal)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, shared: list[Shared]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, Shared):
            return None
        self._shared.append(value)
        return len(self._shared) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: list[Shared]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, index: Any) -> Any:
        return self._shared[index]


def copy_sharing(spec: ComponentSpec) -> Any:
    """Copy a user object for one task, without its `Shared` parts. UsageError if it cannot be copied."""
    shared: list[Shared] = []
    file = io.BytesIO()
    try:
        _Pickler(file, shared).dump(spec.component)
        file.seek(0)
        return _Unpickler(file, shared).load()
    except Exception as error:
        raise UsageError(
            f"component {spec.id!r} cannot be copied for its tasks: {type(error).__name__}: {error}; create what "
            "cannot be pickled in open() or prepare()"
        ) from error
