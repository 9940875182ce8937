"""`--env NAME[=VALUE]` and `--env-file FILE`: variables for the processes of a topology.

Guarantees: no message quotes a value, as it may be a secret. A variable that is not set is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from squall.cli.checks import some_path
from squall.cli.variables import SECRETS, OneText
from squall.engine.errors import UsageError

C = TypeVar("C", bound=Callable[..., Any])
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def environment_options(command: C) -> C:
    """Add --env and --env-file."""
    env = click.option(
        "--env", SECRETS, multiple=True, type=OneText(), metavar="NAME[=VALUE]",
        help="A variable for the workers; without VALUE, as it is set here.",
    )
    files = click.option(
        "--env-file", "variable_files", multiple=True, metavar="FILE", type=click.Path(), callback=_paths,
        help="A file with lines NAME=VALUE or NAME. --env wins.",
    )
    return env(files(command))


def _paths(context: click.Context, parameter: click.Parameter, paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        some_path(context, parameter, path)
    return paths


def read_environment(variables: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    """The variables of both options, files first; UsageError names the option, or file and line, of a mistake."""
    read: dict[str, str] = {}
    for file in files:
        for number, line in enumerate(_lines(file), 1):
            text = line.strip().removeprefix("export ").lstrip()
            if text and not text.startswith("#"):
                name, value = _variable(text, f"{file}:{number}")
                read[name] = _unquoted(value) if "=" in text else value
    read |= dict(_variable(text, "--env") for text in variables)
    for name, value in read.items():
        check_text(value, f"the value of {name}")
    return read


def check_text(text: str, what: str) -> None:
    """UsageError unless a text can be sent to Nimbus. Does not quote it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is no valid UTF-8, as everything sent to Nimbus must be") from None


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise UsageError(f"--env-file {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--env-file {file} is no text in UTF-8") from None


def _variable(text: str, place: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name = name.strip() if place != "--env" else name
    if not _NAME.fullmatch(name):
        # Not the text: it may begin with a value.
        raise UsageError(f"{place}: the name of a variable is missing or not allowed; write NAME=VALUE or NAME")
    if equals:
        return name, value
    if name not in os.environ:
        raise UsageError(f"{place} {name}: no such variable is set here; set it, or write {name}=VALUE")
    return name, os.environ[name]


def _unquoted(value: str) -> str:
    value = value.strip()
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value
