"""Loads a topology file as the command line names it: FILE[:NAME] and ARGS.

Guarantees: whatever is wrong with the file is said in one line that names file and line; nothing has been started by
then. The file's directory is on the import path, as if it were run as a script.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from engine.errors import SquallError, UsageError
from engine.topology import Topology

DEFAULT_NAME = "topology"


def load_topology(target: str, arguments: list[str]) -> tuple[Topology, ModuleType]:
    """The topology, and the module it came from."""
    path, name = _split(target)
    module = _import(path)
    found = getattr(module, name, None)
    if found is None:
        candidates = [n for n, value in vars(module).items() if isinstance(value, Topology)]
        hint = f"; it has {', '.join(candidates)}: use {path}:{candidates[0]}" if candidates else ""
        raise UsageError(f"{path} defines no {name!r}; define a function {name}(args) or a Topology{hint}")
    if isinstance(found, Topology):
        if arguments:
            raise UsageError(f"{path}:{name} is a Topology and takes no arguments, but got {' '.join(arguments)}")
        return found, module
    if not callable(found):
        raise UsageError(f"{path}:{name} is a {type(found).__name__}; it must be a Topology or a function")
    return _call(path, name, found, arguments), module


def _split(target: str) -> tuple[Path, str]:
    file, colon, name = target.rpartition(":")
    if not colon or Path(target).exists():
        file, name = target, DEFAULT_NAME
    path = Path(file)
    if path.is_dir():
        raise UsageError(f"topology file {file} is a directory")
    if not path.exists():
        raise UsageError(f"topology file {file} does not exist")
    return path, name


def _import(path: Path) -> ModuleType:
    directory = str(path.resolve().parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    module_name = path.stem if path.stem.isidentifier() else "squall_topology"
    if module_name in sys.modules:
        # A topology file may be called like a module that is in use, a test or a library: keep both.
        module_name = f"squall_topology_{module_name}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"topology file {path} is not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UsageError(f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}") from error
    except SquallError:
        raise
    except Exception as error:
        raise UsageError(f"{_place(error, path)}: importing it raised {type(error).__name__}: {error}") from error
    return module


def _call(path: Path, name: str, factory: Any, arguments: list[str]) -> Topology:
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    spread = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    if not parameters and arguments:
        raise UsageError(f"{path}:{name} takes no arguments, but got {' '.join(arguments)}")
    given: tuple[Any, ...] = tuple(arguments) if spread else ((arguments,) if parameters else ())
    try:
        topology = factory(*given)
    except SquallError:
        raise
    except Exception as error:
        raise UsageError(f"{_place(error, path)}: {name}() raised {type(error).__name__}: {error}") from error
    if not isinstance(topology, Topology):
        raise UsageError(
            f"{path}:{name}() returned a {type(topology).__name__}; it must return a Topology (builder.build())"
        )
    return topology


def _place(error: BaseException, path: Path) -> str:
    """file:line of the innermost frame in the user's own file."""
    own = {str(path), str(path.resolve())}
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
    return f"{path}:{lines[-1]}" if lines else str(path)
