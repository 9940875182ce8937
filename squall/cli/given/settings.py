"""The settings and options of a command, whichever of five places gives them.

Guarantees: of the places that give a setting the first one holds: options, variables, the code, the settings file, the
defaults. All but the code are checked before users' code is imported, and a mistake names its place. An option in the
settings file is in the file's layer, even if it stands for a setting (`[run] workers`). A file that another user could
have put there (neither ours, nor root's, nor of the owner of the code) is refused: it could name code to run.

Relies on: click, which takes options from the command line, else from `option.envvar`, else from the default map.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from squall.engine.api.config import SETTINGS, Config
from squall.engine.errors import ConfigError, UsageError

VARIABLES = "SQUALL_"
OWN_FILE, PROJECT_FILE = "squall.toml", "pyproject.toml"
_FILE = "squall.settings_file"
"""Key of the file's path and settings in the `meta` of a context."""
_WORDS = {"none": None, "null": None, "true": True, "false": False}


class OneText(click.types.StringParamType):
    """A text of an option that may be given several times: its variable has one on each line, as they hold blanks."""

    envvar_list_splitter = "\n"


settings_option = click.option(
    "--set", "settings", multiple=True, type=OneText(), metavar="KEY=VALUE",
    help="A setting, by its name or Storm's key; see squall config.",
)


@dataclass(frozen=True)
class Layers:
    """The settings given to a command, in two parts: the code's come between them."""

    below: dict[str, Any]
    above: dict[str, Any]
    origins: dict[str, str] = field(default_factory=dict)
    """Where each setting in them was given."""

    def config(self, code: Config | None = None) -> Config:
        """The settings that hold, with those of the code."""
        between = {} if code is None else code.explicit()
        return Config(**{**self.below, **between, **self.above})

    def origin(self, key: str, code: Config | None, target: str) -> str:
        """The place that gives a setting of `config(code)`."""
        if key not in self.above and code is not None and key in code.explicit():
            return target
        return self.origins.get(key, "default")


def layers_of(settings: Iterable[str] = (), defaults: Mapping[str, Any] | None = None, **options: Any) -> Layers:
    """Collect the settings given to the current command; `options` stand for the settings of their names."""
    context = click.get_current_context()
    path, in_file = context.meta.get(_FILE, (None, {}))
    places: dict[Any, dict[str, Any]] = {
        ParameterSource.DEFAULT_MAP: {}, ParameterSource.ENVIRONMENT: {}, ParameterSource.COMMANDLINE: {},
    }
    given = {name: {name: value} for name, value in options.items() if value is not None}
    for parameter, values in {"settings": _parsed(settings), **given}.items():
        place = places.get(context.get_parameter_source(parameter), places[ParameterSource.COMMANDLINE])
        for name, value in Config(**values).explicit().items():
            if place.setdefault(name, value) != value:
                raise UsageError(f"setting {name} is given twice: {place[name]!r} and {value!r}; allowed: one value")
    by_file, by_variable, by_option = places.values()
    below = {**(defaults or {}), **in_file, **by_file}
    above = {**_variables(), **by_variable, **by_option}
    origins = {
        **dict.fromkeys(defaults or {}, f"default of {context.command_path}"),
        **dict.fromkeys((*in_file, *by_file), str(path)),
        **{name: VARIABLES + name.upper() for name in above},
        **dict.fromkeys(by_variable, "variable of an option"), **dict.fromkeys(by_option, "option"),
    }
    return Layers(below, above, origins)


def _parsed(settings: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE each; a value that is valid JSON (a number, true, null, a list) is read as JSON, others as text."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {setting!r} is not understood; write KEY=VALUE")
        parsed[key] = _value(text)
    return parsed


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _variables() -> dict[str, Any]:
    """The settings in the environment."""
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


def name_variables(command: click.Command, path: str) -> None:
    """Name the variable of each option of a command, and of those in it: `SQUALL_`, the command, the long name.

    Click's own names are those of the function's parameters, which people do not see: SQUALL_RUN_AS_JSON for --json.
    """
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            name_variables(inner, f"{path}_{name}")
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar is None and option.allow_from_autoenv:
            words = f"{VARIABLES}{path}_{max(option.opts, key=len).lstrip('-')}"
            option.envvar = words.replace("-", "_").upper()


def place_of(error: click.BadParameter) -> str:
    """Name the variable or the file that gave a bad value; "" if none did."""
    option, context = error.param, error.ctx
    if option is None or context is None:
        return ""
    source = context.get_parameter_source(option.name or "")
    if source is ParameterSource.ENVIRONMENT:
        return f", from the variable {option.envvar}"
    return f", from {context.meta[_FILE][0]}" if source is ParameterSource.DEFAULT_MAP else ""


def use_settings_file(context: click.Context, start: Path, named: str | None = None) -> None:
    """Make the options of the settings file the defaults of this command's; `start`: where to look for one."""
    if _FILE in context.meta:
        # Named by SQUALL_SETTINGS, which counts for every command.
        return
    path = Path(named) if named else _find(start)
    if path is None:
        return
    if not path.is_file():
        raise UsageError(f"SQUALL_SETTINGS is {named}; allowed: a file")
    if path.stat().st_uid not in (os.getuid(), 0, start.stat().st_uid):
        raise UsageError(f"{path} belongs to another user; allowed: your own settings file, or root's")
    root = context.find_root()
    settings, options = _read(path, root.command)
    context.meta[_FILE] = path, settings
    for name in context.command_path.split()[len(root.command_path.split()):]:
        options = options.get(name, {})
    context.default_map = options


def _find(start: Path) -> Path | None:
    """The nearest settings file, from a directory upwards."""
    # The current directory may be gone, and a folder above it may be closed to us.
    with contextlib.suppress(FileNotFoundError, PermissionError):
        for folder in (start.resolve(), *start.resolve().parents):
            if (folder / OWN_FILE).is_file():
                return folder / OWN_FILE
            project = folder / PROJECT_FILE
            if project.is_file() and "\n[tool.squall" in "\n" + project.read_text(errors="replace"):
                return project
    return None


def _read(path: Path, commands: click.Command) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of a file, and the options by command."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    if path.name == PROJECT_FILE:
        document = document.get("tool", {}).get("squall", {})
    settings: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for key, value in document.items():
        command = _inside(commands, key) if isinstance(value, dict) else None
        if command is None:
            settings.update(_flat(key, value))
        else:
            options[key] = _options(path, key, value, command)
    with _named(path):
        return Config(**settings).explicit(), options


def _inside(group: click.Command, name: str) -> click.Command | None:
    return group.get_command(click.Context(group), name) if isinstance(group, click.Group) else None


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A table's keys with dots between; TOML has no None, and says "none"."""
    if isinstance(value, dict):
        for inner, one in value.items():
            yield from _flat(f"{key}.{inner}", one)
    else:
        yield key, None if value == "none" else value


def _options(path: Path, name: str, table: Mapping[str, Any], command: click.Command) -> dict[str, Any]:
    """The options of a command in a table, by the names of its parameters. Click checks the values."""
    known = {
        max(option.opts, key=len).lstrip("-"): option
        for option in command.params if isinstance(option, click.Option) and not option.is_eager
    }
    read: dict[str, Any] = {}
    for key, value in table.items():
        option = known.get(key.replace("_", "-"))
        if option is None and (inner := _inside(command, key)) is not None and isinstance(value, dict):
            read[key] = _options(path, f"{name} {key}", value, inner)
        elif option is None:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"options are {', '.join(known)}"
            raise UsageError(f"{path}: squall {name} has no option {key}; {hint}")
        else:
            if isinstance(option.type, click.Path) and value and isinstance(value, str):
                # Relative to the file, wherever the command is called.
                value = str(path.parent / value)
            read[str(option.name)] = [value] if option.multiple and isinstance(value, str) else value
    return read
