"""Arguments and options that several commands have, and the types of their values. FILE[:NAME] or MODULE[:NAME] is read
here: which module holds the topology, and how it is imported.

Guarantees: a module of a package keeps its real name, so its relative imports work, and workers can import it: named as
`package.module`, as a file in a folder with an `__init__.py`, or as a file below --app-dir. Any other file is a script:
workers do not know its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from squall.cli.settings import use_settings_file
from squall.engine.errors import UsageError
from squall.scheduler.common.duration import MAX_SECS


class Seconds(click.types.FloatParamType):
    """A number of seconds from `least`, or above it, to `most`."""

    def __init__(self, least: float = 0.0, most: float = MAX_SECS, *, above: bool = False) -> None:
        self._least, self._most, self._above = least, most, above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        secs: float = super().convert(value, param, ctx)
        if not self._least <= secs <= self._most or (self._above and secs == self._least):
            numbers = f"above {self._least:g} and at most" if self._above else f"from {self._least:g} to"
            self.fail(f"{value} is not a number of seconds {numbers} {self._most:.10g}", param, ctx)
        return secs


class SomePath(click.Path):
    """A path; an empty one would mean the current directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("'' is no path of a file or directory", param, ctx)
        return super().convert(value, param, ctx)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
wait_option = click.option(
    "-w", "--wait", "wait_secs", type=Seconds(), metavar="SECS",
    help="Longest wait for pending messages (default: the message timeout).",
)


C = TypeVar("C", bound=Callable[..., Any])
DEFAULT_NAME = "topology"


@dataclass(frozen=True)
class GivenTopology:
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
    """True if workers cannot import it by its name."""
    app_dir: Path | None = None
    """Another directory to import from; None for none."""

    @property
    def import_path(self) -> list[str]:
        return [str(folder.resolve()) for folder in (self.root, self.app_dir) if folder is not None]


@dataclass(frozen=True, kw_only=True)
class TopologyOptions:
    """What commands that load a topology are given, by the names of their parameters."""

    target: str
    arguments: tuple[str, ...]
    app_dir: str | None
    settings: tuple[str, ...]


def target_options(command: C) -> C:
    """Add the arguments of `target_argument`, and --app-dir."""
    return target_argument(click.option(
        "--app-dir", metavar="DIR", type=click.Path(exists=True, file_okay=False),
        help="Directory to import modules from (default: this one; for a FILE, that of its package).",
    )(command))


def target_argument(command: C) -> C:
    """Add the arguments FILE[:NAME] and [-- ARGS]."""
    command = click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]")(command)
    return click.argument("target", metavar="FILE[:NAME]", is_eager=True, callback=use_settings_beside)(command)


def use_settings_beside(context: click.Context, parameter: click.Parameter, target: str | None) -> str | None:
    """Read the settings file beside the code. The argument is read first: the file may set the other options."""
    path = Path(_split(target or "")[0])
    use_settings_file(context, path.resolve().parent if path.is_file() else Path())
    return target


def flux_file(text: str) -> str | None:
    """Return the Flux file that is named; None if it is something else. UsageError if there is no such file."""
    label, _ = _split(text)
    if not label.endswith((".yaml", ".yml")):
        return None
    if label != text:
        raise UsageError(f"{text} names a topology in a Flux file, which holds one; write {label}")
    if not Path(label).is_file():
        raise UsageError(f"topology file {label} {'is no regular file' if Path(label).exists() else 'does not exist'}")
    return label


def read_target(text: str, app_dir: str | None = None) -> GivenTopology:
    """Find out what is named; UsageError if it is no file, and cannot be a module."""
    label, name = _split(text)
    folder, path = None if app_dir is None else Path(app_dir), Path(label)
    if _is_module_name(label):
        return GivenTopology(label, name, label, None, folder or Path())
    if not path.is_file():
        raise UsageError(f"topology file {label} {'is no regular file' if path.exists() else 'does not exist'}")
    if (found := _real_name(path.resolve(), folder)) is not None:
        root, module = found
        return GivenTopology(label, name, module, path, root)
    return GivenTopology(label, name, path.stem, path, path.resolve().parent, is_script=True, app_dir=folder)


def _split(text: str) -> tuple[str, str]:
    label, colon, name = text.rpartition(":")
    if not colon or Path(text).exists():
        return text, DEFAULT_NAME
    if not label or not name:
        raise UsageError(f"{text} is not understood; write FILE or FILE:NAME")
    return label, name


def _is_module_name(label: str) -> bool:
    path = Path(label)
    if path.exists() and not (path / "__init__.py").is_file():
        return False
    return not label.endswith(".py") and all(part.isidentifier() for part in label.split("."))


def _real_name(path: Path, app_dir: Path | None) -> tuple[Path, str] | None:
    """Return (root, module name) of a file: relative to `app_dir`, or to the folder above its packages. None for a
    script."""
    root = path.parent
    if app_dir is not None:
        root = app_dir.resolve()
    else:
        while (root / "__init__.py").is_file() and root.name.isidentifier():
            root = root.parent
    if path.suffix != ".py" or not path.is_relative_to(root) or (app_dir is None and root == path.parent):
        return None
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return (root, ".".join(parts)) if all(part.isidentifier() for part in parts) else None
