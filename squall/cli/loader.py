"""Loads the topology named on the command line: FILE[:NAME] or MODULE[:NAME], and ARGS; or a Flux file (.yaml).

Guarantees: an error in the file is reported in one line that names file and line, before anything is started; a file
that ends its process by `sys.exit()` while it is imported is an error, too. The directory that the module is imported
from is on the import path: a script's own, or that above its packages.

A function that takes ARGS may end the command by `sys.exit()`, as argparse does for wrong ARGS and when it is asked for
its help.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from squall.cli.options import GivenTopology, flux_file, read_target
from squall.cli.output import note
from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.engine.errors import SquallError, UsageError
from squall.engine.foreign.files import spec_of_script
from squall.engine.foreign.text import TRACEBACK_CHARACTERS, isinstance_of, message_of, type_name
from squall.scheduler.client.topology_code import INSTALLED
from squall.scheduler.common.environment import extend_import_path


@dataclass(frozen=True)
class Loaded:
    """A topology, and what its workers need to import it."""

    topology: Topology
    script: ModuleType | None
    """The module of a file whose name workers do not know: it travels by value."""
    root: Path | None
    """The directory whose imported modules travel along; None if they are installed ones."""
    build: Callable[[list[str]], Topology]
    """Makes the topology anew, by these ARGS."""


def load_topology(target: str, arguments: list[str], app_dir: str | None = None) -> Loaded:
    """Load the topology that a command names."""
    if (file := flux_file(target)) is not None:
        return _load_flux(file, arguments, app_dir)
    wanted, module = _module_of(target, app_dir)
    build = partial(_find, wanted, module)
    return Loaded(build(arguments), module if wanted.is_script else None, _root(wanted, module), build)


def name_in_file(target: str, arguments: list[str]) -> str | None:
    """Return the name that a Flux file gives to its topology; None if there is none, or it is another kind of file."""
    if (file := flux_file(target)) is None:
        return None
    from squall.connect.flux_file import read_flux

    with _told(file, None, "reading it"):
        return read_flux(file, arguments).name


def _load_flux(file: str, arguments: list[str], app_dir: str | None) -> Loaded:
    from squall.connect.flux import load_flux

    folder = Path(file).resolve().parent
    root = folder if app_dir is None else Path(app_dir).resolve()

    def build(arguments: list[str]) -> Topology:
        with _told(file, None, "loading it"):
            topology, ignored = load_flux(file, arguments)
        note(*ignored)
        return topology

    extend_import_path([str(root), str(folder)])
    return Loaded(build(arguments), None, root, build)


def load_function(target: str, app_dir: str | None = None, script: ModuleType | None = None) -> Callable[..., Any]:
    """Load the function FILE:FUNCTION. `script`: the topology's file, if workers cannot import it; it is not imported a
    second time, so that its functions travel with the topology."""
    return _function_of(target, app_dir, script)[2]


def load_result(target: str, app_dir: str | None, script: ModuleType | None) -> Callable[[list[str]], Any]:
    """Load the same, to be called with ARGS, if it takes any. UsageError also for what it raises."""
    wanted, module, function = _function_of(target, app_dir, script)
    takes = bool(inspect.signature(function).parameters)
    return lambda arguments: _call(wanted, _file_of(module), function, arguments if takes else [])


def _function_of(
    target: str, app_dir: str | None, script: ModuleType | None
) -> tuple[GivenTopology, ModuleType, Callable[..., Any]]:
    wanted = read_target(target, app_dir)
    if script is not None and wanted.path is not None and wanted.path.samefile(script.__file__ or ""):
        module = script
    else:
        wanted, module = _module_of(target, app_dir)
    function = vars(module).get(wanted.name)
    if ":" not in target or not callable(function):
        raise UsageError(f"{target!r} names no function; write FILE:FUNCTION, such as {wanted.label}:result")
    return wanted, module, function


def _module_of(target: str, app_dir: str | None) -> tuple[GivenTopology, ModuleType]:
    """Import the module that a target names."""
    wanted = read_target(target, app_dir)
    extend_import_path(wanted.import_path)
    return wanted, _import_script(wanted) if wanted.is_script else _import(wanted)


def _find(wanted: GivenTopology, module: ModuleType, arguments: list[str]) -> Topology:
    label, name = wanted.label, wanted.name
    found = vars(module).get(name)
    if found is None:
        candidates = [n for n, value in vars(module).items() if _as_topology(value) is not None]
        functions = [n for n, value in vars(module).items() if isinstance_of(value, FunctionType)]
        near = candidates[:1] or difflib.get_close_matches(name, functions, n=1)
        hint = f"; did you mean {label}:{near[0]}?" if near else ""
        raise UsageError(f"{label} defines no {name!r}; define a function {name}(args) or a Topology{hint}")
    if (topology := _as_topology(found)) is not None:
        if arguments:
            raise UsageError(f"{label}:{name} is a Topology and takes no arguments, but got {' '.join(arguments)}")
        return topology
    if not callable(found):
        raise UsageError(
            f"{label}:{name} is of type {_kind(found)}; it must be a Topology, a Topology and a Config, or a function"
        )
    topology = _as_topology(made := _call(wanted, _file_of(module), found, arguments))
    if topology is None:
        raise UsageError(
            f"{label}:{name}() returned a value of type {_kind(made)}; "
            "it must return a Topology (builder.build()), or a Topology and a Config"
        )
    return topology


def _import_script(wanted: GivenTopology) -> ModuleType:
    assert wanted.path is not None
    module_name = wanted.module if wanted.module.isidentifier() else "squall_topology"
    if module_name in sys.modules:
        # A topology file may have the name of a loaded module, such as a test or a library: keep both.
        module_name = f"squall_topology_{module_name}"
    spec = spec_of_script(module_name, wanted.path)
    if spec is None or spec.loader is None:
        raise UsageError(f"topology file {wanted.path} is not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    with _told(wanted.label, wanted.path, "importing it"):
        spec.loader.exec_module(module)
    return module


def _import(wanted: GivenTopology) -> ModuleType:
    """Import a module by its real name."""
    try:
        with _told(wanted.label, None, "importing its package"):
            # This imports the packages that the module is in.
            spec = importlib.util.find_spec(wanted.module)
        with _told(wanted.label, None if spec is None or spec.origin is None else Path(spec.origin), "importing it"):
            module = importlib.import_module(wanted.module)
    except UsageError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{wanted.module}.".startswith(f"{cause.name}."):
            raise UsageError(f"there is no file {wanted.label}, and no module {cause.name!r}; see --app-dir") from error
        raise
    file = _file_of(module)
    if wanted.path is not None and (file is None or file.resolve() != wanted.path.resolve()):
        raise UsageError(
            f"{wanted.label} is {wanted.module} by the folders that it is in, but Python imports "
            f"{file or 'a module without a file'} under that name; rename one of them"
        )
    return module


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file) if isinstance(file, str) else None


def _root(wanted: GivenTopology, module: ModuleType) -> Path | None:
    """The directory from which the module was imported, unless it is one of installed modules."""
    file = _file_of(module)
    if wanted.is_script or file is None:
        return wanted.root if file is not None else None
    depth = module.__name__.count(".") + (file.name == "__init__.py")
    root = file.resolve().parents[depth]
    return None if INSTALLED & set(root.parts) else root


def _call(wanted: GivenTopology, path: Path | None, factory: Any, arguments: list[str]) -> Any:
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if not parameters and arguments:
        raise UsageError(f"{wanted.label}:{wanted.name} takes no arguments, but got {' '.join(arguments)}")
    spread = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    given: tuple[Any, ...] = tuple(arguments) if spread else ((arguments,) if parameters else ())
    try:
        with _told(wanted.label, path, f"{wanted.name}()", SystemExit):
            return factory(*given)
    except SystemExit as error:
        if error.code or not {"-h", "--help"}.isdisjoint(arguments):
            raise
        # Nothing has run: a script must not take that for success.
        raise UsageError(f"{wanted.label}:{wanted.name}() ended by sys.exit(); it must return a Topology") from None


def _as_topology(value: Any) -> Topology | None:
    """The topology of a Topology or of (Topology, Config); None if it is something else."""
    if type(value) is tuple and len(value) == 2 and all(map(isinstance_of, value, (Topology, Config))):
        found, config = value
        # What the command line sets comes later: it may allow what these settings do not.
        value = replace(found, config=found.config.replace(**config.explicit()))
    return value if isinstance_of(value, Topology) else None


@contextlib.contextmanager
def _told(label: str, path: Path | None, doing: str, *passes: type[BaseException]) -> Iterator[None]:
    """Turn any error of users' code inside into a UsageError, but an interrupt and what `passes`."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, *passes)):
            raise
        raise UsageError(_refusal(error, label, path, doing)) from error


def _refusal(error: BaseException, label: str, path: Path | None, doing: str) -> str:
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    if isinstance_of(error, SquallError):
        # Its message suffices, such as a TopologyError's with all mistakes.
        return message_of(error, TRACEBACK_CHARACTERS)
    text = message_of(error)
    return f"{_location(error, label, path)}: {doing} raised {_kind(error)}{f': {text}' if text else ''}"


def _kind(value: object) -> str:
    return type_name(value).rpartition(".")[2]


def _location(error: BaseException, label: str, path: Path | None) -> str:
    """file:line of the innermost frame in the user's own file."""
    # Read it by the base class: an exception may redefine it.
    frames = traceback.extract_tb(BaseException.__dict__["__traceback__"].__get__(error))
    own = [frame for frame in frames if path is not None and frame.filename in (str(path), str(path.resolve()))]
    if not own:
        return label
    return f"{label if label.endswith('.py') else own[-1].filename}:{own[-1].lineno}"
