"""A topology as bytes: how user code travels to the workers.

Guarantees: if a topology cannot be pickled, submission fails with an error that names component and attribute.

Classes and functions of importable modules travel by name and are imported by the worker (its import path is the
submitter's); those of the topology file itself and of `__main__` travel by value.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any, ClassVar

import cloudpickle

from squall.engine.api.functions import OfFunction
from squall.engine.api.topology import ComponentSpec, Topology
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import message_of, text_of_error
from squall.ipc.rundir import RunDir
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.environment import enter_surroundings, extend_import_path, reset_logging
from squall.scheduler.common.messages import TopologyRecord


def dump(topology: Topology, by_value: ModuleType | None = None) -> bytes:
    """Pickle a topology; `by_value` is the module of the topology file, which workers cannot import."""
    # The program itself, in a process of multiprocessing that has imported it under this name.
    with _by_value(by_value), _by_value(sys.modules.get("__mp_main__")):
        try:
            return _pickled(topology)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # users' code, as the tasks' methods are
            raise UsageError(_explain(topology, error)) from error


def load_code(run_dir: str, record: TopologyRecord, spoilt: bool = False) -> Topology:
    """Take on the submitter's surroundings, then load the topology, from half of its code if a fault has `spoilt` it.
    ClusterError if that fails. Called by a worker or, long before, by the spare that becomes one."""
    enter_surroundings(RunDir(run_dir), record)
    code = CodeStore(RunDir(run_dir).code).get(record.blob)
    reset_logging()
    return load(code[: len(code) // 2] if spoilt else code, record.sys_path)


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
    return pickle.loads(_pickled(spec.component))


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    make, fields = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return make, tuple(code.co_filename if field == "<dynamic-code>" else field for field in fields)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Keeps the name of the file for tracebacks, where cloudpickle writes "<dynamic-code>"."""

    dispatch_table: ClassVar[Any] = ChainMap({CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table)


def _pickled(value: Any) -> bytes:
    with io.BytesIO() as buffer:
        _Pickler(buffer).dump(value)
        return buffer.getvalue()


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
        why = _refusal(spec.component)
        if why is not None:
            place = "the function, or in a class's " if isinstance(spec.component, OfFunction) else ""
            return (
                f"component {spec.id!r} cannot be sent to a worker: {_culprit(spec)} cannot be pickled "
                f"({message_of(why)}); create it in {place}open() or prepare() instead"
            )
    return f"the topology cannot be sent to a worker: {text_of_error(error)}"


def _culprit(spec: ComponentSpec) -> str:
    """The attribute that cannot be pickled, or the component as a whole."""
    for name, value in getattr(spec.component, "__dict__", {}).items():
        if _refusal(value) is not None:
            return f"{spec.id}.{name}, a {type(value).__qualname__},"
    return spec.id


def _refusal(value: Any) -> BaseException | None:
    """Why a value cannot be pickled; None if it can be."""
    try:
        cloudpickle.dumps(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    return None
