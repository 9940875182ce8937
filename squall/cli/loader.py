"""Loads a topology file named on the command line: FILE[:NAME] and ARGS.

Guarantees: any error in the file is reported in one line that names file and line, before anything is started. That
includes `sys.exit()` and `os._exit()`: the file does not decide how the command ends, only the operator's interrupt
does. The file's directory is on the import path, as if the file were run as a script.

Not caught: native code that ends the process, and signals. For these, `squall submit` imports the file in a throw-away
process.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CoroutineType, ModuleType
from typing import Any

from squall.cli.early_exit import EarlyExit, ExitWatch
from squall.cli.interrupts import NotedInterrupt
from squall.engine.api.topology import Topology
from squall.engine.errors import SquallError, UsageError
from squall.engine.foreign.text import TRACEBACK_CHARACTERS, isinstance_of, message_of, type_name
from squall.scheduler.common.import_path import extend_import_path

DEFAULT_NAME = "topology"
_SYNTAX_ERRORS = frozenset({SyntaxError, IndentationError, TabError})


def load_topology(target: str, arguments: list[str]) -> tuple[Topology, ModuleType]:
    """Load a file. Returns the topology and its module."""
    path, name = _split(target)
    module = _import(path)
    with _told(path, f"looking for {name!r} in it"):
        found = getattr(module, name, None)
    if found is None:
        candidates = [n for n, value in vars(module).items() if isinstance_of(value, Topology)]
        hint = f"; it has {', '.join(candidates)}: use {path}:{candidates[0]}" if candidates else ""
        raise UsageError(f"{path} defines no {name!r}; define a function {name}(args) or a Topology{hint}")
    if isinstance_of(found, Topology):
        if arguments:
            raise UsageError(f"{path}:{name} is a Topology and takes no arguments, but got {' '.join(arguments)}")
        return found, module
    if not callable(found):
        raise UsageError(f"{path}:{name} is of type {_kind(found)}; it must be a Topology or a function")
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
    if not path.is_file():
        raise UsageError(f"topology file {file} is not a regular file")
    if not name:
        raise UsageError(f"no name follows the colon in {target}; write FILE or FILE:NAME")
    return path, name


def _import(path: Path) -> ModuleType:
    extend_import_path([str(path.resolve().parent)])
    module_name = path.stem if path.stem.isidentifier() else "squall_topology"
    if module_name in sys.modules:
        # A topology file may have the name of a loaded module, such as a test or a library: keep both.
        module_name = f"squall_topology_{module_name}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"topology file {path} is not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    with _told(path, "importing it"):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _told(path: Path, doing: str) -> Iterator[None]:
    """Turn any error of users' code inside into a UsageError, but the operator's interrupt into KeyboardInterrupt."""
    with NotedInterrupt() as interrupt, ExitWatch(_in_full(doing, path)) as exits:
        try:
            yield
        except BaseException as error:
            if interrupt.came:
                # Even if the file turned it into another error.
                raise KeyboardInterrupt from error
            raise _refusal(exits.came or error, path, doing) from error
        if exits.came is not None:
            raise _refusal(exits.came, path, doing) from exits.came


def _refusal(error: BaseException, path: Path, doing: str) -> UsageError:
    if type(error) in _SYNTAX_ERRORS and isinstance(error, SyntaxError) and error.filename is not None:
        return UsageError(f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}")
    if isinstance_of(error, SquallError):
        # Its message suffices, such as a TopologyError's with all mistakes.
        return UsageError(message_of(error, TRACEBACK_CHARACTERS))
    text = message_of(error)
    said = text if isinstance_of(error, EarlyExit) else f"{_kind(error)}: {text}" if text else _kind(error)
    location = _location(error, path)
    if isinstance_of(error, Exception):
        return UsageError(f"{location}: {doing} raised {said}")
    # Python would let these end the process, with their exit code or an unchecked text.
    return UsageError(f"{location}: {_in_full(doing, path)} ended by {said}; a topology file must run to its end")


def _in_full(doing: str, path: Path) -> str:
    return doing.replace("importing it", f"importing {path}")


def _call(path: Path, name: str, factory: Any, arguments: list[str]) -> Topology:
    with _told(path, f"looking at {name}"):
        try:
            parameters = list(inspect.signature(factory).parameters.values())
        except (TypeError, ValueError):
            parameters = []
    spread = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    if not parameters and arguments:
        raise UsageError(f"{path}:{name} takes no arguments, but got {' '.join(arguments)}")
    given: tuple[Any, ...] = tuple(arguments) if spread else ((arguments,) if parameters else ())
    with _told(path, f"{name}()"):
        topology = factory(*given)
    if not isinstance_of(topology, Topology):
        if isinstance_of(topology, CoroutineType):
            topology.close()  # or Python warns that it was never awaited
        raise UsageError(
            f"{path}:{name}() returned a value of type {_kind(topology)}; it must return a Topology (builder.build())"
        )
    return topology  # type: ignore[no-any-return]


def _kind(value: object) -> str:
    return type_name(value).rpartition(".")[2]


def _location(error: BaseException, path: Path) -> str:
    """file:line of the innermost frame in the user's own file."""
    own = {str(path), str(path.resolve())}
    # Read it by the base class: an exception may redefine it.
    frames = traceback.extract_tb(BaseException.__dict__["__traceback__"].__get__(error))
    lines = [frame.lineno for frame in frames if frame.filename in own]
    return f"{path}:{lines[-1]}" if lines else str(path)
