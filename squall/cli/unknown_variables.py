"""Warns of variables that begin with `SQUALL_` and that no command reads: a typing error would pass unnoticed.

Guarantees: one line on stderr for each, with the nearest name there is, and never its value. Only commands that a
variable may be meant for are imported.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator

import click

from squall.cli.layers import every_option, setting_variable
from squall.cli.output import note
from squall.cli.variables import VARIABLES, variable_of
from squall.engine.api.config import SETTINGS
from squall.engine.foreign.plain_text import plain

OWN = frozenset(
    VARIABLES + name
    for name in ("DIR", "SETTINGS", "RUN_DIR", "FAULT_DIR", "FAULT_POINTS", "LINK_FAULTS", "LINK_SEED")
)
"""Variables of all commands, and of Squall's processes."""
_OF_OTHERS = re.compile(r"SQUALL_(TEST_\w+|(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT(_[0-9]+_\w+)?))")
"""Those of Squall's tests, and of Docker and Kubernetes for a service that is named squall."""


def tell_unknown_variables(root: click.Group, invoked: str) -> None:
    """Warn of each; `invoked` is the command of the root that is called."""
    given = sorted(name for name, text in os.environ.items() if name.startswith(VARIABLES) and text)
    known = {*OWN, *map(setting_variable, SETTINGS)}
    doubtful = [name for name in given if name not in known and not _OF_OTHERS.fullmatch(name)]
    if not doubtful:
        return
    known.update(_of_options(root, doubtful, invoked))
    for name in doubtful:
        if name not in known:
            # Without what all names have in common, which would make all of them near.
            ends = [other.removeprefix(VARIABLES) for other in sorted(known)]
            near = difflib.get_close_matches(name.removeprefix(VARIABLES), ends, n=1)
            hint = f"did you mean {VARIABLES}{near[0]}?" if near else "squall config lists the settings"
            note(plain(f"variable {name} is no setting or option, and is not used; {hint}"))


def _of_options(root: click.Group, doubtful: Iterable[str], invoked: str) -> Iterator[str]:
    """The variables of the options of each command that a name may be meant for."""
    context = click.Context(root)
    for command in root.list_commands(context):
        begin = variable_of("", command)
        if command == invoked or any(name.startswith(begin) for name in doubtful):
            found = root.get_command(context, command)
            if found is not None:
                yield from (variable_of(option, path) for path, option, _ in every_option(found, command))
