"""A topology as bytes: how user code travels to the workers.

Guarantees: what cannot be pickled is refused at submission by an error that names component and attribute.

Classes and functions of importable modules travel by name and are imported by the worker (its import path is the
submitter's); those of the topology file itself and of `__main__` travel by value.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import cloudpickle

from squall.engine.api.topology import ComponentSpec, Topology
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import message_of, repr_of, text_of_error
from squall.scheduler.common import unpickler
from squall.scheduler.common.import_path import extend_import_path

_MAX_DEPTH = 4
"""How far into attributes of attributes to look for the one that cannot be pickled."""


def dump(topology: Topology, by_value: ModuleType | None = None) -> bytes:
    """The topology pickled; `by_value` is the module of the topology file, which workers cannot import."""
    with _by_value(by_value):
        try:
            return bytes(cloudpickle.dumps(topology))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # users' code, as the tasks' methods are
            raise UsageError(_explain(topology, error)) from error


def load(data: bytes, sys_path: list[str]) -> Topology:
    """The topology, in a worker. Extends the import path first."""
    extend_import_path(sys_path)
    try:
        topology = unpickler.loads(data)
    except BaseException as error:  # users' code, as the tasks' methods are
        raise ClusterError(f"the topology's code cannot be loaded in a worker: {text_of_error(error)}") from error
    if not isinstance(topology, Topology):
        raise ClusterError(f"the code store holds a {type(topology).__name__} where a topology should be")
    _make_importable()
    return topology


def _make_importable() -> None:
    """Let classes that came by value be found by name, so that their instances can be sent between workers.

    Pickle names a class by module and name and looks it up there. Without this it would import the topology file once
    more in the worker and refuse, because the class it finds then is another one.
    """
    for cls in list(cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.values()):
        if "." not in cls.__qualname__:
            module = sys.modules.setdefault(cls.__module__, ModuleType(cls.__module__))
            if not hasattr(module, cls.__qualname__):
                setattr(module, cls.__qualname__, cls)


def copy_component(spec: ComponentSpec) -> Any:
    """A user object of its own for one task."""
    return pickle.loads(cloudpickle.dumps(spec.component))


@contextlib.contextmanager
def _by_value(module: ModuleType | None) -> Iterator[None]:
    """Have cloudpickle send a module's code. What is not in sys.modules it sends anyway, and refuses to register."""
    name = "" if module is None else module.__name__
    registers = name in sys.modules and name not in cloudpickle.list_registry_pickle_by_value()
    if registers:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        if registers:
            cloudpickle.unregister_pickle_by_value(module)


def _explain(topology: Topology, error: BaseException) -> str:
    for spec in topology.components.values():
        culprit = _find(spec.component, spec.id, _MAX_DEPTH)
        if culprit is not None:
            return f"component {spec.id!r} cannot be sent to a worker: {culprit}"
    return f"the topology cannot be sent to a worker: {text_of_error(error)}"


def _find(value: Any, name: str, depth: int) -> str | None:
    """The innermost attribute that cannot be pickled, and why; None if `value` can be."""
    try:
        cloudpickle.dumps(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if depth:
            for attribute, inner in _parts(value):
                found = _find(inner, f"{name}{attribute}", depth - 1)
                if found is not None:
                    return found
        return (
            f"{name} is a {type(value).__qualname__}, which cannot be pickled ({message_of(error)}); "
            "create it in open() or prepare() instead"
        )
    return None


def _parts(value: Any) -> list[tuple[str, Any]]:
    """What pickle would look into: a class may leave attributes behind that cannot travel."""
    if isinstance(value, dict):
        return [(f"[{repr_of(key)}]", inner) for key, inner in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"[{index}]", inner) for index, inner in enumerate(value)]
    try:
        state = value.__getstate__()
    except KeyboardInterrupt:
        raise
    except BaseException:
        # It does not let itself be taken apart either; that `value` is to blame is known without it.
        return []
    attributes: dict[str, Any] = {}
    for part in state if isinstance(state, tuple) else (state,):  # a tuple where there are slots
        if isinstance(part, dict):
            attributes.update(part)
    return [(f".{attribute}", inner) for attribute, inner in attributes.items()]
