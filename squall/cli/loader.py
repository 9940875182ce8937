"""Loads the topology named on the command line: FILE[:NAME] or MODULE[:NAME], and ARGS.

Guarantees: any error in the file is reported in one line that names file and line, before anything is started. That
includes `sys.exit()` and `os._exit()`: the file does not decide how the command ends, only the operator's interrupt
does. The directory that the module is imported from is on the import path: a script's own, or that above its packages.

Not caught: native code that ends the process, and signals. For these, `squall submit` imports the file in a throw-away
process.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import CoroutineType, FunctionType, ModuleType
from typing import Any

from squall.cli.early_exit import EarlyExit, ExitWatch
from squall.cli.help_shown import HelpShown, is_help
from squall.cli.interrupts import NotedInterrupt
from squall.cli.target import Target, read_target
from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.engine.errors import SquallError, UsageError
from squall.engine.foreign.script import spec_of_script
from squall.engine.foreign.text import TRACEBACK_CHARACTERS, isinstance_of, message_of, type_name
from squall.scheduler.client.topology_code import INSTALLED
from squall.scheduler.common.import_path import extend_import_path

_SYNTAX_ERRORS = frozenset({SyntaxError, IndentationError, TabError})


@dataclass(frozen=True)
class Loaded:
    """A topology, and what its workers need to import it."""

    topology: Topology
    script: ModuleType | None
    """The module of a file whose name workers do not know: it travels by value."""
    root: Path | None
    """The directory whose imported modules travel along; None if they are installed ones."""


def load_topology(target: str, arguments: list[str], app_dir: str | None = None) -> Loaded:
    """Load the topology that a command names."""
    wanted = read_target(target, app_dir)
    module = _import_script(wanted) if wanted.is_script else _import(wanted)
    topology = _find(wanted, _Place.of(wanted.label, wanted.path or _file_of(module)), module, arguments)
    return Loaded(topology, module if wanted.is_script else None, _root(wanted, module))


def _find(wanted: Target, place: _Place, module: ModuleType, arguments: list[str]) -> Topology:
    label, name = wanted.label, wanted.name
    with _told(place, f"looking for {name!r} in it"):
        found = getattr(module, name, None)
    if found is None:
        candidates = [n for n, value in vars(module).items() if _as_topology(value) is not None]
        functions = [n for n, value in vars(module).items() if isinstance_of(value, FunctionType)]
        near = difflib.get_close_matches(name, functions, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        if candidates:
            hint = f"; it has {', '.join(candidates)}: use {label}:{candidates[0]}"
        raise UsageError(f"{label} defines no {name!r}; define a function {name}(args) or a Topology{hint}")
    if (topology := _as_topology(found)) is not None:
        if arguments:
            raise UsageError(f"{label}:{name} is a Topology and takes no arguments, but got {' '.join(arguments)}")
        return topology
    if not callable(found):
        raise UsageError(
            f"{label}:{name} is of type {_kind(found)}; it must be a Topology, a Topology and a Config, or a function"
        )
    return _call(place, name, found, arguments)


def _import_script(wanted: Target) -> ModuleType:
    assert wanted.path is not None
    extend_import_path(wanted.import_path)
    module_name = wanted.module if wanted.module.isidentifier() else "squall_topology"
    if module_name in sys.modules:
        # A topology file may have the name of a loaded module, such as a test or a library: keep both.
        module_name = f"squall_topology_{module_name}"
    spec = spec_of_script(module_name, wanted.path)
    if spec is None or spec.loader is None:
        raise UsageError(f"topology file {wanted.path} is not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    with _told(_Place.of(wanted.label, wanted.path), "importing it"):
        spec.loader.exec_module(module)
    return module


def _import(wanted: Target) -> ModuleType:
    """Import a module by its real name, and its packages first."""
    extend_import_path(wanted.import_path)
    missing: ModuleNotFoundError | None = None
    parts = wanted.module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        with _told(_Place.of(wanted.label, wanted.path or _source_of(name)), "importing it"):
            try:
                module = importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name != name:
                    raise
                missing = error
        if missing is not None:
            raise UsageError(_missing(wanted, parts[:count])) from missing
    file = _file_of(module)
    if wanted.path is not None and (file is None or file.resolve() != wanted.path.resolve()):
        raise UsageError(
            f"{wanted.label} is {wanted.module} by the folders that it is in, but Python imports "
            f"{file or 'a module without a file'} under that name; rename one of them"
        )
    return module


def _source_of(module: str) -> Path | None:
    """The file that will be imported; its packages have been."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


def _missing(wanted: Target, parts: list[str]) -> str:
    """Say which part of the module's name is not there, and what is."""
    package, name = ".".join(parts[:-1]), parts[-1]
    if package:
        places = list(getattr(sys.modules[package], "__path__", []))
        said = f"package {package} has no module {name!r}" if places else f"{package} is a module, not a package"
    else:
        places = [str(wanted.root)]
        where = "this directory" if wanted.root == Path() else str(wanted.root)
        said = f"there is no file {wanted.label}, and no module {name!r} in {where} or among the installed ones"
    near = difflib.get_close_matches(name, [module.name for module in pkgutil.iter_modules(places)], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "; see --app-dir" if not package else ""
    return f"{said}{hint}"


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file) if isinstance(file, str) else None


def _root(wanted: Target, module: ModuleType) -> Path | None:
    """The directory from which the module was imported, unless it is one of installed modules."""
    file = _file_of(module)
    if wanted.is_script or file is None:
        return wanted.root if file is not None else None
    depth = module.__name__.count(".") + (file.name == "__init__.py")
    root = file.resolve().parents[depth]
    return None if INSTALLED & set(root.parts) else root


@dataclass(frozen=True)
class _Place:
    """Where users' code is, for messages."""

    label: str
    files: frozenset[str]

    @classmethod
    def of(cls, label: str, path: Path | None) -> _Place:
        return cls(label, frozenset() if path is None else frozenset({str(path), str(path.resolve())}))


@contextlib.contextmanager
def _told(place: _Place, doing: str) -> Iterator[None]:
    """Turn any error of users' code inside into a UsageError, but the operator's interrupt into KeyboardInterrupt."""
    with NotedInterrupt() as interrupt, ExitWatch(_in_full(doing, place)) as exits:
        try:
            yield
        except BaseException as error:
            if interrupt.came:
                # Even if the file turned it into another error.
                raise KeyboardInterrupt from error
            raise _refusal(exits.came or error, place, doing) from error
        if exits.came is not None:
            raise _refusal(exits.came, place, doing) from exits.came


def _refusal(error: BaseException, place: _Place, doing: str) -> UsageError:
    if type(error) in _SYNTAX_ERRORS and isinstance(error, SyntaxError) and error.filename is not None:
        return UsageError(f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}")
    if isinstance_of(error, SquallError):
        # Its message suffices, such as a TopologyError's with all mistakes.
        return UsageError(message_of(error, TRACEBACK_CHARACTERS))
    text = message_of(error)
    said = text if isinstance_of(error, EarlyExit) else f"{_kind(error)}: {text}" if text else _kind(error)
    location = _location(error, place)
    if isinstance_of(error, Exception):
        return UsageError(f"{location}: {doing} raised {said}")
    # Python would let these end the process, with their exit code or an unchecked text.
    return UsageError(f"{location}: {_in_full(doing, place)} ended by {said}; a topology file must run to its end")


def _in_full(doing: str, place: _Place) -> str:
    return doing.replace("importing it", f"importing {place.label}")


def _call(place: _Place, name: str, factory: Any, arguments: list[str]) -> Topology:
    with _told(place, f"looking at {name}"):
        try:
            parameters = list(inspect.signature(factory).parameters.values())
        except (TypeError, ValueError):
            parameters = []
    spread = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    if not parameters and arguments:
        raise UsageError(f"{place.label}:{name} takes no arguments, but got {' '.join(arguments)}")
    given: tuple[Any, ...] = tuple(arguments) if spread else ((arguments,) if parameters else ())
    try:
        with _told(place, f"{name}()"):
            topology = factory(*given)
    except UsageError as error:
        if error.__cause__ is not None and is_help(error.__cause__, arguments):
            raise HelpShown(str(error)) from error
        raise
    found = _as_topology(topology)
    if found is None:
        if isinstance_of(topology, CoroutineType):
            topology.close()  # or Python warns that it was never awaited
        raise UsageError(
            f"{place.label}:{name}() returned a value of type {_kind(topology)}; "
            "it must return a Topology (builder.build()), or a Topology and a Config"
        )
    return found


def _as_topology(value: Any) -> Topology | None:
    """The topology of a Topology or of (Topology, Config); None if it is something else."""
    if type(value) is tuple and len(value) == 2 and isinstance_of(value[1], Config):
        found, config = value
        return replace(found, config=found.configured(config)) if isinstance_of(found, Topology) else None
    return value if isinstance_of(value, Topology) else None


def _kind(value: object) -> str:
    return type_name(value).rpartition(".")[2]


def _location(error: BaseException, place: _Place) -> str:
    """file:line of the innermost frame in the user's own file."""
    # Read it by the base class: an exception may redefine it.
    frames = traceback.extract_tb(BaseException.__dict__["__traceback__"].__get__(error))
    own = [frame for frame in frames if frame.filename in place.files]
    if not own:
        return place.label
    file = place.label if place.label.endswith(".py") else own[-1].filename
    return f"{file}:{own[-1].lineno}"
