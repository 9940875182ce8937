"""Which setting holds: options, then variables, then the code, then the settings file, then the defaults.

Guarantees: every layer is checked before users' code is imported, and a mistake names where it stands. An option that
the settings file sets is in the file's layer, even if it stands for a setting (`[run] workers`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from squall.cli import settings_file
from squall.cli.settings import parse_settings, parse_value
from squall.cli.settings_file import SettingsFile
from squall.cli.variables import SECRETS, VARIABLES, variable_of
from squall.engine.api.config import SETTINGS, Config, canonical_name, check_setting
from squall.engine.errors import ConfigError, UsageError

_FILE = "squall.settings_file"


@dataclass(frozen=True)
class Layers:
    """The settings given to a command, in two parts: the code's come between them."""

    below: dict[str, Any]
    above: dict[str, Any]
    origins: dict[str, str] = field(default_factory=dict)
    """Setting above -> where it was given; of several places the one that holds."""
    file: SettingsFile = field(default_factory=SettingsFile)
    by_option: dict[str, str] = field(default_factory=dict)
    """Setting below -> the option in the file that stands for it."""
    command: str = ""

    def config(self, code: Config | None = None) -> Config:
        """The settings that hold, with those of the code."""
        between = {} if code is None else code.explicit()
        return Config(**{**self.below, **between, **self.above})

    def origin(self, key: str, code: Config | None, target: str) -> str:
        """Where a setting of `config(code)` comes from."""
        if key in self.above:
            return self.origins[key]
        if code is not None and key in code.explicit():
            return target
        what = self.by_option.get(key, key)
        if what in self.file.places:
            return self.file.origin(what)
        return f"default of squall {self.command}" if key in self.below else "default"


def use_settings_file(context: click.Context, start: Path | None, named: str | None = None) -> None:
    """Make the options of the settings file the defaults of this command's; `start`: where to look for one."""
    found = context.meta.get(_FILE)
    if found is None or found.path is None:
        path = Path(named) if named is not None else None if start is None else settings_file.find(start)
        trusted = None if start is None else start.stat().st_uid
        root = context.find_root().command
        # A program may call a command by itself.
        group = root if isinstance(root, click.Group) else click.Group(commands=[root])
        found = SettingsFile() if path is None else settings_file.read(path, group, trusted)
        context.meta[_FILE] = found
    options: Any = found.options
    for name in command_path(context).split():
        options = options.get(name, {})
    context.default_map = options


def file_in_use(context: click.Context) -> SettingsFile:
    found = context.meta.get(_FILE)
    return found if isinstance(found, SettingsFile) else SettingsFile()


def command_path(context: click.Context) -> str:
    """The words of a command after `squall`."""
    words = [] if context.parent is None else [command_path(context.parent), str(context.info_name)]
    return " ".join(words).lstrip()


def layers_of(
    settings: Iterable[str] = (), defaults: Mapping[str, Any] | None = None, **options: Any
) -> Layers:
    """Collect the settings given to the current command; `options` stand for the settings of their names."""
    context = click.get_current_context()
    file = file_in_use(context)
    below = {**(defaults or {}), **file.settings}
    by_option: dict[str, str] = {}
    path = command_path(context)
    above, origins = _variables()
    for given in _given_here(context, settings, options):
        if given.source is ParameterSource.DEFAULT_MAP:
            below[given.name] = given.value
            by_option[given.name] = f"{path} {given.option}"
        else:
            above[given.name] = given.value
            by_variable = given.source is ParameterSource.ENVIRONMENT
            origins[given.name] = variable_of(given.option, path) if by_variable else given.option
    for layer in (below, above):
        Config(**layer)
    return Layers(below, above, origins, file, by_option, path)


class _Given(NamedTuple):
    """A setting that an option of the current command gives."""

    name: str
    value: Any
    option: str
    source: ParameterSource | None


_RANKS = {ParameterSource.DEFAULT_MAP: 0, ParameterSource.ENVIRONMENT: 1}
"""Of the places where an option may be given, the first ones; on the command line it wins over both."""


def _given_here(context: click.Context, settings: Iterable[str], options: Mapping[str, Any]) -> list[_Given]:
    """What the options of the current command set, in the order in which later ones win."""
    by_set = parse_settings(settings)
    Config(**by_set)
    found: dict[tuple[int, str], _Given] = {}
    single = {name: {name: value} for name, value in options.items() if value is not None}
    for parameter, values in {"settings": by_set, **single}.items():
        option = "--set" if parameter == "settings" else f"--{parameter.replace('_', '-')}"
        source = context.get_parameter_source(parameter)
        rank = _RANKS.get(source, len(_RANKS)) if source is not None else len(_RANKS)
        for key, value in values.items():
            name = canonical_name(key) or key
            given = _Given(name, value, option, source)
            before = found.setdefault((rank, name), given)
            if before.value != value:
                raise UsageError(
                    f"setting {name} is {before.value!r} by {before.option} and {value!r} by {option}; give one of them"
                )
    return [found[place] for place in sorted(found)]


def options_in_force(context: click.Context) -> list[tuple[str, Any, str]]:
    """(command and option, value, origin) of each option that a variable or the settings file sets."""
    file = file_in_use(context)
    rows: dict[str, tuple[str, Any, str]] = {}
    for path, name, option in every_option(context.find_root().command):
        variable, what = variable_of(name, path), f"{path} --{name}"
        if os.environ.get(variable) and option.allow_from_autoenv:
            rows[what] = (f"squall {what}", _shown(option, os.environ[variable]), variable)
        elif what in file.places:
            options: Any = file.options
            for part in path.split():
                options = options[part]
            rows[what] = (f"squall {what}", _shown(option, options[str(option.name)]), file.origin(what))
    return list(rows.values())


def _shown(option: click.Option, value: Any) -> Any:
    """The value of an option; of variables only the names."""
    if option.name != SECRETS:
        return value
    return [text.partition("=")[0] for text in (value.splitlines() if isinstance(value, str) else value)]


def every_option(command: click.Command, path: str = "") -> Iterator[tuple[str, str, click.Option]]:
    """(words of its command, name, option) of each option of a command and of those in it."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from every_option(inner, f"{path} {name}".lstrip())
    else:
        yield from ((path, name, option) for name, option in settings_file.options_of(command).items())


def setting_variable(name: str) -> str:
    return VARIABLES + name.upper()


def _variables() -> tuple[dict[str, Any], dict[str, str]]:
    """(settings, origins) from the environment."""
    given: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in SETTINGS:
        variable = setting_variable(name)
        if text := os.environ.get(variable):
            try:
                given[name] = check_setting(name, parse_value(text))[1]
            except ConfigError as error:
                raise UsageError(f"{variable}: {error}") from None
            origins[name] = variable
    return given, origins
