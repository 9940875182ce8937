"""Unpickles files of a run directory, which outlives the modules that its pickles name.

Guarantees: a class of Squall's that has moved to another module is found by its name, if users' code builds on it or
files hold it. Everything else is as with `pickle.loads`.

Relies on: such classes keeping their names; the file being its owner's, because pickle executes whatever it says.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from squall.engine import clock, errors
from squall.engine.api import (
    component,
    config,
    context,
    failure,
    hooks,
    plan,
    prefix,
    replaying,
    stream,
    topology,
    user_metrics,
)
from squall.engine.api import tuple as tuples
from squall.engine.flow import routed
from squall.engine.foreign import identity
from squall.engine.tracking import attempts

_MODULES = (
    attempts, clock, component, config, context, errors, failure, hooks, identity, plan, prefix, replaying, routed,
    stream, topology, tuples, user_metrics,
)
OURS = {
    name: value
    for module in _MODULES
    for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
}
"""Name -> definition, of all these modules."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            if module.startswith("squall.") and name in OURS:
                return OURS[name]
            raise


def loads(data: bytes) -> Any:
    """As `pickle.loads`, which is tried first because it is faster and reads most files."""
    try:
        return pickle.loads(data)
    except (ImportError, AttributeError):
        return _Unpickler(io.BytesIO(data)).load()
