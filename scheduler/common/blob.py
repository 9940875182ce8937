"""A topology as bytes: how user code travels to the workers.

Guarantees: if a topology cannot be pickled, submission fails with an error that names component and attribute.

Classes and functions of importable modules travel by name and are imported by the worker (its import path is the
submitter's); those of the topology file itself and of `__main__` travel by value.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Iterator
from types import CellType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from squall.engine.api.of_function import OfFunction
from squall.engine.api.topology import ComponentSpec, Topology
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import message_of, repr_of, text_of_error
from squall.scheduler.common.import_path import extend_import_path

_MAX_DEPTH = 4
"""Levels of attributes to search for the one that cannot be pickled: deeper names help nobody."""


def dump(topology: Topology, by_value: ModuleType | None = None) -> bytes:
    """Pickle a topology; `by_value` is the module of the topology file, which workers cannot import."""
    # The program itself, in a process of multiprocessing that has imported it under this name.
    with _by_value(by_value), _by_value(sys.modules.get("__mp_main__")):
        try:
            return bytes(cloudpickle.dumps(topology))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # users' code, as the tasks' methods are
            raise UsageError(_explain(topology, error)) from error


def load(data: bytes, sys_path: list[str]) -> Topology:
    """Unpickle a topology in a worker, after extending the import path."""
    extend_import_path(sys_path)
    try:
        topology = pickle.loads(data)
    except BaseException as error:  # users' code, as the tasks' methods are
        raise ClusterError(f"the topology's code cannot be loaded in a worker: {text_of_error(error)}") from error
    if not isinstance(topology, Topology):
        raise ClusterError(f"the code store holds a {type(topology).__name__} where a topology should be")
    _make_importable()
    return topology


def _make_importable() -> None:
    """Let classes that travelled by value be found by name, so that their instances can be sent between workers.

    Pickle names a class by module and name and looks it up there. Without this it would import the topology file once
    more in the worker and refuse, because the class found there is another one.
    """
    for cls in list(cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.values()):
        if "." not in cls.__qualname__:
            module = sys.modules.setdefault(cls.__module__, ModuleType(cls.__module__))
            # `__main__` of a worker is the program of a daemon that forked it, whose names mean nothing to users.
            if cls.__module__ == "__main__" or not hasattr(module, cls.__qualname__):
                setattr(module, cls.__qualname__, cls)


def copy_component(spec: ComponentSpec) -> Any:
    """Copy a component's user object for one task."""
    return pickle.loads(cloudpickle.dumps(spec.component))


@contextlib.contextmanager
def _by_value(module: ModuleType | None) -> Iterator[None]:
    """Have cloudpickle send a module's code. It sends modules outside sys.modules anyway, and cannot register them."""
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
            place = "the function, or in a class's " if isinstance(spec.component, OfFunction) else ""
            return (
                f"component {spec.id!r} cannot be sent to a worker: {culprit}; create it in {place}open() or prepare() "
                "instead"
            )
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
            f"{name} is a {type(value).__qualname__}, which cannot be pickled ({message_of(error)})"
        )
    return None


def _parts(value: Any) -> list[tuple[str, Any]]:
    """The attributes that pickle would visit: a class may leave out others."""
    if isinstance(value, dict):
        return [(f"[{repr_of(key)}]", inner) for key, inner in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"[{index}]", inner) for index, inner in enumerate(value)]
    if isinstance(value, FunctionType):
        # A cell is empty until the variable around the function has a value.
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        named = {name: value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__}
        named |= {name: cell.cell_contents for name, cell in cells if cell != CellType()}
        return [(f"'s variable {name}", inner) for name, inner in named.items()]
    try:
        state = value.__getstate__()
    except KeyboardInterrupt:
        raise
    except BaseException:
        # Its state cannot be read either; `value` is to blame all the same.
        return []
    attributes: dict[str, Any] = {}
    for part in state if isinstance(state, tuple) else (state,):  # a tuple if the class has __slots__
        if isinstance(part, dict):
            attributes.update(part)
    return [(f".{attribute}", inner) for attribute, inner in attributes.items()]
