"""Reads the FILE[:NAME] or MODULE[:NAME] of a command: which module holds the topology, and how it is imported.

Guarantees: a module of a package keeps its real name, so its relative imports work, and workers can import it: named as
`package.module`, as a file in a folder with an `__init__.py`, or as a file below --app-dir. Any other file is a script:
no name of it is known to workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from squall.cli.given.checks import some_path
from squall.cli.given.settings import use_settings_file
from squall.engine.errors import UsageError

C = TypeVar("C", bound=Callable[..., Any])
DEFAULT_NAME = "topology"
SOURCES = "src"
"""The folder that holds the packages of a project in the `src/` layout."""


@dataclass(frozen=True)
class Target:
    """A module that holds a topology, and the topology's name in it."""

    label: str
    """FILE or MODULE as the user wrote it."""
    name: str
    module: str
    """Its real name; a file's stem if it is a script."""
    path: Path | None
    """Its file; None if the user named a module."""
    root: Path
    """The directory from which it is imported."""
    is_script: bool = False
    """Whether workers cannot import it by its name."""
    app_dir: Path | None = None
    """Another directory to import from; None for none."""

    @property
    def import_path(self) -> list[str]:
        return [str(folder.resolve()) for folder in (self.root, self.app_dir) if folder is not None]


def target_options(command: C) -> C:
    """Add the argument FILE[:NAME], and --app-dir."""
    return target_argument(click.option(
        "--app-dir", metavar="DIR", type=click.Path(), callback=_directory,
        help="Directory to import modules from (default: this one, or src in it; for a FILE, that of its package).",
    )(command))


def target_argument(command: C) -> C:
    """Add the argument FILE[:NAME]."""
    return click.argument("target", metavar="FILE[:NAME]", is_eager=True, callback=use_settings_beside)(command)


def use_settings_beside(context: click.Context, parameter: click.Parameter, target: str | None) -> str | None:
    """Read the settings file beside the code. The argument is read first: the file may set the other options."""
    label, _ = _split(target or "")
    path = Path(label)
    use_settings_file(context, path.resolve().parent if path.is_file() else Path())
    return target


def _directory(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    some_path(context, parameter, path)
    if path is not None and not Path(path).is_dir():
        raise UsageError(f"--app-dir is {path}; allowed: a directory")
    return path


def read_target(text: str, app_dir: str | None = None) -> Target:
    """Find out what is named; UsageError if it is no file, and cannot be a module."""
    label, name = _split(text)
    folder = None if app_dir is None else Path(app_dir)
    if not _is_module_name(label):
        return _of_file(label, name, folder)
    if folder is None:
        folder = Path()
        first = label.partition(".")[0]
        if not _has(folder, first) and _has(folder / SOURCES, first):
            folder /= SOURCES
    return Target(label, name, label, None, folder)


def _split(text: str) -> tuple[str, str]:
    label, colon, name = text.rpartition(":")
    if not colon or Path(text).exists():
        return text, DEFAULT_NAME
    if not label:
        raise UsageError(f"no file precedes the colon in {text}; write FILE or FILE:NAME")
    if not name:
        raise UsageError(f"no name follows the colon in {text}; write FILE or FILE:NAME")
    return label, name


def _is_module_name(label: str) -> bool:
    path = Path(label)
    if path.exists() and not (path / "__init__.py").is_file():
        return False
    return not label.endswith(".py") and all(part.isidentifier() for part in label.split("."))


def _has(folder: Path, module: str) -> bool:
    return (folder / module).is_dir() or (folder / f"{module}.py").is_file()


def _of_file(label: str, name: str, app_dir: Path | None) -> Target:
    path = Path(label)
    if path.is_dir():
        raise UsageError(f"topology file {label} is a directory")
    if not path.exists():
        raise UsageError(f"topology file {label} does not exist")
    if not path.is_file():
        raise UsageError(f"topology file {label} is not a regular file")
    if (found := _real_name(path.resolve(), app_dir)) is not None:
        root, module = found
        return Target(label, name, module, path, root)
    return Target(label, name, path.stem, path, path.resolve().parent, is_script=True, app_dir=app_dir)


def _real_name(path: Path, app_dir: Path | None) -> tuple[Path, str] | None:
    """(root, module name) of a file: relative to `app_dir`, or to the folder above its packages. None for a script."""
    if path.suffix != ".py":
        return None
    root = path.parent
    if app_dir is not None:
        root = app_dir.resolve()
        if not path.is_relative_to(root):
            return None
    else:
        while (root / "__init__.py").is_file() and root.name.isidentifier():
            root = root.parent
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    packaged = app_dir is not None or root != path.parent
    return (root, ".".join(parts)) if packaged and all(part.isidentifier() for part in parts) else None
