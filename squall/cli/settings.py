"""The settings and options of a command, whichever of five places gives them.

Guarantees: of the places that give a setting the last one holds: the defaults, the settings file, the code, variables,
options. All but the code are checked before users' code is imported. An option in the settings file is in the file's
layer, even if it stands for a setting (`[run] workers`). A file that another user could have put there (neither ours,
nor root's, nor of the owner of the code) is refused: it could name code to run.

Relies on: click, which takes options from the command line, else from a variable, else from the default map.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from squall.engine.api.config import SETTINGS, Config
from squall.engine.errors import ConfigError, UsageError

VARIABLES = "SQUALL_"
OWN_FILE, PROJECT_FILE = "squall.toml", "pyproject.toml"
_SETTINGS = "squall.settings_file"
"""Key of the settings from the file in the `meta` of a context."""
_WORDS = {"none": None, "null": None, "true": True, "false": False}
_IN_FILE, _IN_CODE, _IN_VARIABLE, _ON_COMMAND_LINE = "settings file", "code", "variable", "option"
_PLACES = {ParameterSource.DEFAULT_MAP: _IN_FILE, ParameterSource.ENVIRONMENT: _IN_VARIABLE}

settings_option = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="A setting, by its name or Storm's key; see squall config.",
)


@dataclass(frozen=True)
class Layers:
    """The settings given to a command."""

    places: dict[str, dict[str, Any]]
    """Place -> settings, the last wins. Among them is the code, whose settings are known later."""

    def config(self, code: Config | None = None) -> Config:
        """Return the settings that hold, with those of the code."""
        merged: dict[str, Any] = {}
        for layer in self._ordered(code).values():
            merged |= layer
        return Config(**merged)

    def origin(self, key: str, code: Config | None) -> str:
        """Name the place that gives a setting of `config(code)`."""
        return next((place for place, layer in reversed(self._ordered(code).items()) if key in layer), "default")

    def _ordered(self, code: Config | None) -> dict[str, dict[str, Any]]:
        return self.places | {_IN_CODE: {} if code is None else code.explicit()}


def layers_of(settings: Iterable[str] = (), defaults: Mapping[str, Any] | None = None, **options: Any) -> Layers:
    """Collect the settings given to the current command; `options` stand for the settings of their names."""
    context = click.get_current_context()
    places: dict[str, dict[str, Any]] = {
        "default of the command": dict(defaults or {}), _IN_FILE: dict(context.meta.get(_SETTINGS, {})), _IN_CODE: {},
        _IN_VARIABLE: _variables(), _ON_COMMAND_LINE: {},
    }
    given = {name: {name: value} for name, value in options.items() if value is not None}
    for parameter, values in {"settings": dict(map(_parsed, settings)), **given}.items():
        source = context.get_parameter_source(parameter)
        places[_PLACES.get(source, _ON_COMMAND_LINE) if source else _ON_COMMAND_LINE] |= Config(**values).explicit()
    return Layers(places)


def _parsed(setting: str) -> tuple[str, Any]:
    """Read KEY=VALUE; a value that is valid JSON (a number, true, null, a list) is read as JSON, others as text."""
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {setting!r} is not understood; write KEY=VALUE")
    return key, _value(text)


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def check_variables(command: str, parameters: Iterable[click.Parameter]) -> None:
    """Refuse a variable that nearly has the name of a setting, or of a variable of the command's parameters."""
    own = f"{command.replace('-', '_')}_"
    options = {f"{own}{each.name}" for each in parameters}
    others = {*SETTINGS, *(str(each.envvar).removeprefix(VARIABLES).lower() for each in parameters if each.envvar)}
    for variable in os.environ:
        name = variable.removeprefix(VARIABLES).lower()
        known = options if name.startswith(own) else others
        # Only near ones: SQUALL_TAP_LIMIT is right for another command than top, and others may be anybody's.
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        if variable.startswith(VARIABLES) and near and name not in known:
            raise UsageError(f"{variable} is no setting or option; did you mean {VARIABLES}{near[0].upper()}?")


def _variables() -> dict[str, Any]:
    """Return the settings in the environment."""
    given: dict[str, Any] = {}
    for name in SETTINGS:
        if text := os.environ.get(VARIABLES + name.upper()):
            with _named(VARIABLES + name.upper()):
                given |= Config(**{name: _value(text)}).explicit()
    return given


@contextlib.contextmanager
def _named(place: object) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None


def use_settings_file(context: click.Context, start: Path) -> None:
    """Make the options in the settings file the defaults of the command's; `start`: where to look for the file."""
    path = _find(start)
    if path is None:
        return
    if path.stat().st_uid not in (os.getuid(), 0, start.stat().st_uid):
        raise UsageError(f"{path} belongs to another user; only your own settings file, or root's, is read")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    if path.name == PROJECT_FILE:
        document = document.get("tool", {}).get("squall", {})
    root = context.find_root()
    commands = root.command
    settings: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for key, value in document.items():
        command = commands.get_command(root, key) if isinstance(commands, click.Group) else None
        if command is None or not isinstance(value, dict):
            settings.update(_flat(key, value))
        else:
            options[key] = _options(path, value, command)
    context.default_map = options if context is root else options.get(str(context.info_name), {})
    with _named(path):
        context.meta[_SETTINGS] = Config(**settings).explicit()


def _find(start: Path) -> Path | None:
    """Find the nearest settings file, from a directory upwards."""
    # The current directory may be gone, and a folder above it may be closed to us.
    with contextlib.suppress(FileNotFoundError, PermissionError):
        for folder in (start.resolve(), *start.resolve().parents):
            if (folder / OWN_FILE).is_file():
                return folder / OWN_FILE
            project = folder / PROJECT_FILE
            if project.is_file() and "\n[tool.squall" in "\n" + project.read_text(errors="replace"):
                return project
    return None


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a table's keys with dots between; TOML has no None, and says "none"."""
    if isinstance(value, dict):
        for inner, one in value.items():
            yield from _flat(f"{key}.{inner}", one)
    else:
        yield key, None if value == "none" else value


def _options(path: Path, table: Mapping[str, Any], command: click.Command) -> dict[str, Any]:
    """Return the options of a command in a table, by the names of its parameters. Click checks the values."""
    known = {
        max(option.opts, key=len).lstrip("-"): option for option in command.params if isinstance(option, click.Option)
    }
    read: dict[str, Any] = {}
    for key, value in table.items():
        option = known.get(key.replace("_", "-"))
        if option is None:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"options are {', '.join(known)}"
            raise UsageError(f"{path}: squall {command.name} has no option {key}; {hint}")
        if isinstance(option.type, click.Path) and value and isinstance(value, str):
            # Relative to the file, wherever the command is called.
            value = str(path.parent / value)
        read[str(option.name)] = [value] if option.multiple and isinstance(value, str) else value
    return read
