"""Finds and reads `squall.toml`, or `[tool.squall]` in `pyproject.toml`: settings and options beside the code.

    workers = 2                       a setting, by Squall's name or Storm's key
    "shop.currency" = "EUR"           a key of the user's own, which has a dot
    [run]                             options of a command, as on the command line
    nodes = 2

Guarantees: every mistake is named with file, line and what is allowed; nothing of a file with a mistake is used. A file
that another user could have put there (neither ours, nor root's, nor of the owner of the code) is refused.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from squall.cli.variables import SECRETS
from squall.engine.api.config import SETTINGS, canonical_name, check_setting
from squall.engine.errors import ConfigError, UsageError

OWN_FILE, PROJECT_FILE = "squall.toml", "pyproject.toml"
_NO_VALUE = (dict, list, datetime.date, datetime.time)
_NONE = "none"
"""How a file writes None, which TOML does not have."""


@dataclass(frozen=True)
class SettingsFile:
    """The content of a settings file; empty if there is none."""

    path: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Command -> name of its parameter -> value, as click's default map."""
    text: str = ""
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Setting, or command and option (`run --nodes`), -> the tables and the key in the file."""

    def origin(self, what: str) -> str:
        """file:line of one of `places`."""
        return f"{self.path}:{line_of(self.text, self.places[what])}"


def find(start: Path) -> Path | None:
    """The nearest settings file, from a directory upwards."""
    # The current directory may be gone, and a folder above it may be closed to us.
    with contextlib.suppress(FileNotFoundError, PermissionError):
        start = start.resolve()
        for folder in (start, *start.parents):
            if (folder / OWN_FILE).is_file():
                return folder / OWN_FILE
            project = folder / PROJECT_FILE
            if project.is_file() and _names_us(project):
                return project
    return None


def _names_us(project: Path) -> bool:
    """Whether it has a [tool.squall]. A file that is no TOML is its own tools' matter if it does not seem to."""
    text = project.read_text(encoding="utf-8", errors="replace")
    if "tool.squall" not in text:
        return False
    try:
        return isinstance(tomllib.loads(text).get("tool", {}).get("squall"), dict)
    except tomllib.TOMLDecodeError:
        return True


def read(path: Path, commands: click.Group, trusted_uid: int | None = None) -> SettingsFile:
    """Read and check a settings file. `trusted_uid`: an owner to trust, as its code is run."""
    owner = path.stat().st_uid
    if owner not in (os.getuid(), 0, trusted_uid):
        raise UsageError(f"{path} belongs to another user (uid {owner}); allowed: your own settings file, or root's")
    text = _read(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    table: tuple[str, ...] = ("tool", "squall") if path.name == PROJECT_FILE else ()
    for name in table:
        document = document[name]
    reader = _Reader(path, text, table)
    reader.read(document, commands)
    if reader.mistakes:
        raise ConfigError("; ".join(reader.mistakes))
    return SettingsFile(path, reader.settings, reader.options, text, reader.places)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # Windows' editors write a byte order mark.
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}") from None


class _Reader:
    def __init__(self, path: Path, text: str, table: tuple[str, ...]) -> None:
        self.mistakes: list[str] = []
        self.settings: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        self.places: dict[str, tuple[str, ...]] = {}
        self._path, self._text, self._table = path, text, table

    def read(self, document: Mapping[str, Any], commands: click.Group) -> None:
        for key, value in document.items():
            command = commands.get_command(click.Context(commands), key) if isinstance(value, dict) else None
            if command is not None:
                self.options[key] = self._options((key,), value, command)
            elif key == "tool" and isinstance(value, dict) and "squall" in value:
                what = f"[tool.squall] is for {PROJECT_FILE}; allowed here: its lines without it"
                self._mistake(("tool", "squall"), what)
            elif isinstance(value, dict) and (meant := _meant(key, value, commands)):
                self._mistake((key,), f"unknown command [{key}]; did you mean [{meant}]?")
            else:
                for path, one in _flat((key,), value):
                    self._setting(path, one)

    def _setting(self, path: tuple[str, ...], value: Any) -> None:
        key = ".".join(path)
        if isinstance(value, datetime.date | datetime.time | dict):
            self._mistake(path, f"setting {key} is {value}; allowed: a number, a text, true, false or a list")
            return
        if value == _NONE and canonical_name(key) is not None:
            value = None
        if canonical_name(key) is not None or "." not in key or key.startswith(("topology.", "squall.")):
            try:
                key, value = check_setting(key, value)
            except ConfigError as error:
                self._mistake(path, str(error))
                return
        if key in self.settings:
            self._mistake(path, f"setting {key} is given twice, by its name and by Storm's key")
            return
        self.settings[key] = value
        self.places[key] = (*self._table, *path)

    def _options(self, path: tuple[str, ...], table: Mapping[str, Any], command: click.Command) -> dict[str, Any]:
        if isinstance(command, click.Group):
            return self._groups(path, table, command)
        known = options_of(command)
        read: dict[str, Any] = {}
        for key, value in table.items():
            option = known.get(key.replace("_", "-"))
            if option is None:
                self._mistake((*path, key), _unknown(path, key, known))
                continue
            try:
                read[str(option.name)] = self._value(option, value, command)
            except (click.BadParameter, UsageError) as error:
                said = error.format_message() if isinstance(error, click.BadParameter) else str(error)
                if option.name == SECRETS:
                    said = f"option {option.opts[0]} is not as it must be; allowed: a list of texts"
                self._mistake((*path, key), said[:1].lower() + said[1:].removesuffix("."))
            self.places[" ".join((*path, f"--{key.replace('_', '-')}"))] = (*self._table, *path, key)
        return read

    def _groups(self, path: tuple[str, ...], table: Mapping[str, Any], group: click.Group) -> dict[str, Any]:
        read: dict[str, Any] = {}
        for key, value in table.items():
            command = group.get_command(click.Context(group), key)
            if command is None or not isinstance(value, dict):
                self._mistake((*path, key), f"unknown command [{'.'.join((*path, key))}]")
            else:
                read[key] = self._options((*path, key), value, command)
        return read

    def _value(self, option: click.Option, value: Any, command: click.Command) -> Any:
        if isinstance(option.type, click.Path) and isinstance(value, str) and value:
            # Relative to the file, wherever the command is called.
            value = str(self._path.parent / value)
        if option.multiple and not isinstance(value, list):
            raise UsageError(f"option {option.opts[0]} is {value!r}; allowed: a list")
        values = value if option.multiple else [value]
        if any(isinstance(one, _NO_VALUE) for one in values) or (option.is_flag and not isinstance(value, bool)):
            allowed = "true or false" if option.is_flag else "a value"
            raise UsageError(f"option {option.opts[0]} is {value!r}; allowed: {allowed}")
        option.process_value(click.Context(command), value)
        return value

    def _mistake(self, path: tuple[str, ...], said: str) -> None:
        self.mistakes.append(f"{self._path}:{line_of(self._text, (*self._table, *path))}: {said}")


def _flat(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat((*path, key), inner)
    else:
        yield path, value


def options_of(command: click.Command) -> dict[str, click.Option]:
    """The options of a command that a file may set, by their long names without dashes."""
    return {
        max(option.opts, key=len).lstrip("-"): option
        for option in command.params if isinstance(option, click.Option) and not option.is_eager
    }


def _meant(key: str, table: Mapping[str, Any], commands: click.Group) -> str | None:
    """The command that a table is meant for: one of a near name that has all its options."""
    for near in difflib.get_close_matches(key, commands.list_commands(click.Context(commands)), n=3):
        command = commands.get_command(click.Context(commands), near)
        if command is not None and {name.replace("_", "-") for name in table} <= set(options_of(command)):
            return near
    return None


def _unknown(path: tuple[str, ...], key: str, known: Mapping[str, click.Option]) -> str:
    command = " ".join(path)
    if canonical_name(key) in SETTINGS:
        return f"{key} is a setting, no option of squall {command}; write it above [{'.'.join(path)}]"
    near = difflib.get_close_matches(key.replace("_", "-"), known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; options are {', '.join(known)}"
    return f"squall {command} has no option {key}{hint}"


def line_of(text: str, path: tuple[str, ...]) -> int:
    """The line that sets a key: the first after which the text, cut there, is TOML that has it."""
    lines = text.splitlines()
    begins = 1
    for number in range(1, len(lines) + 1):
        try:
            found: Any = tomllib.loads("\n".join(lines[:number]) + "\n")
        except tomllib.TOMLDecodeError:
            continue
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if found is not None:
            # A value of several lines begins after the line up to which the text was TOML.
            while begins < number and (not lines[begins - 1].strip() or lines[begins - 1].lstrip().startswith("#")):
                begins += 1
            return begins
        begins = number + 1
    return 1
